"""The plan of the kernel's routes: what is wanted, what is installed, and what must be done about the difference.

Owns the rules by which a row comes into the queue, becomes an action, and is settled by the kernel's answer. Never
speaks to the kernel. The columns themselves belong to the fib's `Plan`; all are indexed by prefix row.

Columns: wanted (way the route should go, 0: no route), installed (way the kernel's route goes, 0: none, ELSEWHERE:
one of ours with a way not known or no longer right), flags (below), trouble (errno of the last refusal, 0: none).
Columns by way: is_usable, n_wanted, n_installed. Counts are kept as things happen, in `tally`: at each errno the
rows in that trouble, and at N_UNCONFIRMED and N_WANTED the rows that are so.
"""

import cython
import numpy as np

ELSEWHERE = 0xFFFFFFFF
QUEUED, UNCONFIRMED, BESIDE, SENT, UNSURE = 1, 2, 4, 8, 16
"""Flags. BESIDE: a route of others stands beside ours, same prefix and metric. SENT: the kernel's answer is awaited.
UNSURE: the kernel may have more routes in our name than the plan says, as others wrote there, or as what was told of
them is older than our own last change; it is settled once the kernel has no route to remove, or takes one as the only
one."""
N_UNCONFIRMED, N_WANTED = 256, 257  # places in `tally`, after the errnos
TALLY = 258

ELSEWHERE_WAY = cython.declare(cython.uint, 0xFFFFFFFF)
IS_QUEUED = cython.declare(cython.uchar, 1)
IS_UNCONFIRMED = cython.declare(cython.uchar, 2)
IS_BESIDE = cython.declare(cython.uchar, 4)
IS_SENT = cython.declare(cython.uchar, 8)
IS_UNSURE = cython.declare(cython.uchar, 16)
IS_SPOILED = cython.declare(cython.uchar, 4 | 16)
IS_IN_MOTION = cython.declare(cython.uchar, 4 | 8 | 16)  # what is installed may not stay, or not be all
AT_UNCONFIRMED = cython.declare(cython.Py_ssize_t, 256)
AT_WANTED = cython.declare(cython.Py_ssize_t, 257)
INSTALL = cython.declare(cython.uchar, 1)  # as kernels.netlink numbers them
REPLACE = cython.declare(cython.uchar, 2)
REMOVE = cython.declare(cython.uchar, 3)
ENOENT = cython.declare(cython.int, 2)
ESRCH = cython.declare(cython.int, 3)


def adopt(
    rows: cython.const[cython.uint][::1],
    ways: cython.const[cython.uint][::1],
    installed: cython.uint[::1],
    flags: cython.uchar[::1],
    n_installed: cython.uint[::1],
    tally: cython.longlong[::1],
) -> int:
    """Note routes of ours that the kernel is found to have, all unconfirmed; return how many rows had none before.

    Which way a prefix goes that has several is not known, and the kernel has more in our name than the plan says.
    """
    n_new: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.uint
    way: cython.uint
    with cython.nogil:
        for i in range(rows.shape[0]):
            row, way = rows[i], ways[i]
            if installed[row] == 0:
                n_new += 1
            else:
                if installed[row] != ELSEWHERE_WAY:
                    n_installed[installed[row]] -= 1
                flags[row] |= IS_UNSURE
                way = ELSEWHERE_WAY
            if way != ELSEWHERE_WAY:
                n_installed[way] += 1
            installed[row] = way
            if not flags[row] & IS_UNCONFIRMED:
                flags[row] |= IS_UNCONFIRMED
                tally[AT_UNCONFIRMED] += 1
    return n_new


def want(
    rows: cython.const[cython.uint][::1],
    ways: cython.const[cython.uint][::1],
    wanted: cython.uint[::1],
    installed: cython.uint[::1],
    flags: cython.uchar[::1],
    trouble: cython.const[cython.uchar][::1],
    is_usable: cython.const[cython.uchar][::1],
    n_wanted: cython.uint[::1],
    tally: cython.longlong[::1],
):
    """Set what is wanted of `rows` (way 0: no route) and return those that must now be queued."""
    n: cython.Py_ssize_t = rows.shape[0]
    result = np.empty(n, np.uint32)
    queue: cython.uint[::1] = memoryview(result)
    n_queued: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.uint
    is_done: cython.bint
    with cython.nogil:
        for i in range(n):
            row = rows[i]
            if row == 0:  # not wanted, and not known either
                continue
            if flags[row] & IS_UNCONFIRMED:
                flags[row] &= ~IS_UNCONFIRMED & 0xFF
                tally[AT_UNCONFIRMED] -= 1
            is_done = ways[i] != 0 and installed[row] == ways[i]
            if wanted[row] != ways[i]:
                if wanted[row] != 0:
                    n_wanted[wanted[row]] -= 1
                    tally[AT_WANTED] -= 1
                if ways[i] != 0:
                    n_wanted[ways[i]] += 1
                    tally[AT_WANTED] += 1
                wanted[row] = ways[i]
                is_done = is_done and is_usable[ways[i]] and trouble[row] == 0 and not flags[row] & IS_IN_MOTION
            if is_done:
                continue
            if not flags[row] & IS_QUEUED:
                flags[row] |= IS_QUEUED
                queue[n_queued] = row
                n_queued += 1
    return result[:n_queued]


def enqueue(rows: cython.const[cython.uint][::1], flags: cython.uchar[::1]):
    """Mark `rows` as queued and return those that were not."""
    n: cython.Py_ssize_t = rows.shape[0]
    result = np.empty(n, np.uint32)
    queue: cython.uint[::1] = memoryview(result)
    n_queued: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            if not flags[rows[i]] & IS_QUEUED:
                flags[rows[i]] |= IS_QUEUED
                queue[n_queued] = rows[i]
                n_queued += 1
    return result[:n_queued]


def take(
    queue: cython.const[cython.uint][::1],
    wanted: cython.uint[::1],
    installed: cython.uint[::1],
    flags: cython.uchar[::1],
    trouble: cython.uchar[::1],
    is_usable: cython.const[cython.uchar][::1],
    tally: cython.longlong[::1],
):
    """Take rows from the queue and return (rows, actions, targets, idle, later).

    rows, actions, targets: what is to be done, of rows that are marked as sent until they are settled. idle: rows
    neither wanted nor installed, which nobody needs. later: rows to be queued again, as their answer is awaited.

    A route whose way cannot be used is to be absent. Where another route stands beside ours, the kernel might replace
    that one: ours is removed instead, and comes back when there is room (see `settle`). What is to be absent and may
    be there all the same is removed.
    """
    n: cython.Py_ssize_t = queue.shape[0]
    rows_column, targets_column = np.empty(n, np.uint32), np.empty(n, np.uint32)
    actions_column, idle_column, later_column = np.empty(n, np.uint8), np.empty(n, np.uint32), np.empty(n, np.uint32)
    rows: cython.uint[::1] = memoryview(rows_column)
    targets: cython.uint[::1] = memoryview(targets_column)
    actions: cython.uchar[::1] = memoryview(actions_column)
    idle: cython.uint[::1] = memoryview(idle_column)
    later: cython.uint[::1] = memoryview(later_column)
    n_rows: cython.Py_ssize_t = 0
    n_idle: cython.Py_ssize_t = 0
    n_later: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.uint
    target: cython.uint
    with cython.nogil:
        for i in range(n):
            row = queue[i]
            if not flags[row] & IS_QUEUED:
                continue
            if flags[row] & IS_SENT:
                later[n_later] = row
                n_later += 1
                continue
            flags[row] &= ~IS_QUEUED & 0xFF
            target = wanted[row] if is_usable[wanted[row]] else 0
            if target == installed[row] and (target != 0 or not flags[row] & IS_UNSURE):
                if trouble[row] != 0:
                    tally[trouble[row]] -= 1
                    trouble[row] = 0
                if wanted[row] == 0:
                    flags[row] &= ~IS_BESIDE & 0xFF
                    idle[n_idle] = row
                    n_idle += 1
                continue
            if flags[row] & IS_SPOILED and installed[row] != 0:
                target = 0
            flags[row] |= IS_SENT
            rows[n_rows] = row
            targets[n_rows] = target
            actions[n_rows] = REMOVE if target == 0 else INSTALL if installed[row] == 0 else REPLACE
            n_rows += 1
    return (
        rows_column[:n_rows],
        actions_column[:n_rows],
        targets_column[:n_rows],
        idle_column[:n_idle],
        later_column[:n_later],
    )


def settle(
    rows: cython.const[cython.uint][::1],
    actions: cython.const[cython.uchar][::1],
    targets: cython.const[cython.uint][::1],
    errors: cython.const[cython.int][::1],
    wanted: cython.uint[::1],
    installed: cython.uint[::1],
    flags: cython.uchar[::1],
    trouble: cython.uchar[::1],
    n_installed: cython.uint[::1],
    tally: cython.longlong[::1],
):
    """Account the kernel's answers (errno, 0: done) to the rows and return (refused, idle, again).

    refused: indices into `rows` of what was not done; its trouble is in the column. Nothing is lost by removing
    a route that is not there (ESRCH, ENOENT). idle: rows neither wanted nor installed any more, nor queued. again: rows
    that made room for the route beside them, and are to be installed when there is room; and those of which more may
    have to be removed.
    """
    n: cython.Py_ssize_t = rows.shape[0]
    refused_column, idle_column, again_column = np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.uint32)
    again: cython.uint[::1] = memoryview(again_column)
    n_again: cython.Py_ssize_t = 0
    refused: cython.uint[::1] = memoryview(refused_column)
    idle: cython.uint[::1] = memoryview(idle_column)
    n_refused: cython.Py_ssize_t = 0
    n_idle: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.uint
    is_spoiled: cython.bint
    with cython.nogil:
        for i in range(n):
            row = rows[i]
            flags[row] &= ~IS_SENT & 0xFF
            if errors[i] != 0 and not (actions[i] == REMOVE and (errors[i] == ESRCH or errors[i] == ENOENT)):
                if trouble[row] != 0:
                    tally[trouble[row]] -= 1
                trouble[row] = cython.cast(cython.uchar, errors[i] if 0 < errors[i] < 255 else 255)
                tally[trouble[row]] += 1
                refused[n_refused] = cython.cast(cython.uint, i)
                n_refused += 1
                continue
            if trouble[row] != 0:
                tally[trouble[row]] -= 1
                trouble[row] = 0
            if installed[row] != 0 and installed[row] != ELSEWHERE_WAY:
                n_installed[installed[row]] -= 1
            if targets[i] != 0:
                n_installed[targets[i]] += 1
            installed[row] = targets[i]
            is_spoiled = flags[row] & IS_SPOILED != 0
            flags[row] &= ~IS_BESIDE & 0xFF
            if actions[i] != REMOVE or errors[i] != 0:
                flags[row] &= ~IS_UNSURE & 0xFF
            if targets[i] == 0 and wanted[row] == 0 and not flags[row] & IS_UNSURE:
                if not flags[row] & IS_QUEUED:
                    idle[n_idle] = row
                    n_idle += 1
            elif is_spoiled:
                again[n_again] = row
                n_again += 1
    return refused_column[:n_refused], idle_column[:n_idle], again_column[:n_again]


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
