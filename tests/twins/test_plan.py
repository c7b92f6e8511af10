"""The plan's kernel: compiled, uncompiled and the oracle agree through any sequence of steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import plan, uncompiled
from tests.oracles import plan as oracle

TWINS = {"compiled": plan, "uncompiled": uncompiled("plan")}
N_ROWS, N_WAYS = 8, 4
USABLE = {1, 2}

wants = st.lists(st.tuples(st.integers(1, N_ROWS - 1), st.integers(0, N_WAYS - 1)), min_size=1, max_size=6)
takes = st.tuples(st.integers(1, 9))
answers = st.lists(st.sampled_from([0, 0, 0, 2, 3, 17, 300]), min_size=9, max_size=9).map(tuple)
adoptions = st.tuples(st.integers(1, N_ROWS - 1), st.sampled_from([1, 2, 3, oracle.ELSEWHERE]))
spoiled = st.integers(1, N_ROWS - 1)
steps = st.lists(wants | takes | answers | adoptions | spoiled | spoiled.map(lambda row: -row), max_size=16)


class Columns:
    """The columns of one plan."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.wanted = np.zeros(N_ROWS, np.uint32)
        self.installed = np.zeros(N_ROWS, np.uint32)
        self.flags = np.zeros(N_ROWS, np.uint8)
        self.trouble = np.zeros(N_ROWS, np.uint8)
        self.is_usable = np.array([way in USABLE for way in range(N_WAYS)], np.uint8)
        self.n_wanted = np.zeros(N_WAYS, np.uint32)
        self.n_installed = np.zeros(N_WAYS, np.uint32)
        self.tally = np.zeros(plan.TALLY, np.int64)
        self.queue: list[int] = []
        self.sent: list[tuple] = []

    def want(self, wanted: list[tuple[int, int]]) -> None:
        rows, ways = (np.array(column, np.uint32) for column in zip(*wanted, strict=True))
        columns = (self.wanted, self.installed, self.flags, self.trouble, self.is_usable, self.n_wanted, self.tally)
        queued = self.kernel.want(rows, ways, *columns)
        self.queue += queued.tolist()

    def adopt(self, row: int, way: int) -> int:
        columns = (self.installed, self.flags, self.n_installed, self.tally)
        return self.kernel.adopt(np.array([row], np.uint32), np.array([way], np.uint32), *columns)

    def take(self, n: int):
        taken, self.queue = np.array(self.queue[:n], np.uint32), self.queue[n:]
        columns = (self.wanted, self.installed, self.flags, self.trouble, self.is_usable, self.tally)
        *work, idle, later = self.kernel.take(taken, *columns)
        self.queue += later.tolist()
        self.sent.append(work)
        return work, idle

    def settle(self, rows, actions, targets, errors):
        columns = (self.wanted, self.installed, self.flags, self.trouble, self.n_installed, self.tally)
        return self.kernel.settle(rows, actions, targets, errors, *columns)


def take(columns: Columns, slow: oracle.Plan, n: int) -> None:
    """Take from both queues, and compare."""
    work, idle = columns.take(n)
    slow_work, slow_idle = slow.take(n)
    assert list(zip(*(column.tolist() for column in work), strict=True)) == slow_work
    assert idle.tolist() == slow_idle


def answer(columns: Columns, slow: oracle.Plan, errors: tuple[int, ...]) -> None:
    """Answer what was taken first of what is not answered, and compare."""
    rows, actions, targets = columns.sent.pop(0)
    answers = np.array(errors[: len(rows)], np.int32)
    refused, idle, again = columns.settle(rows, actions, targets, answers)
    work = zip(rows.tolist(), actions.tolist(), targets.tolist(), answers.tolist(), strict=True)
    results = [slow.settle(*item) for item in work]
    assert refused.tolist() == [i for i, (is_refused, *_) in enumerate(results) if is_refused]
    assert idle.tolist() == [rows[i] for i, (_, is_idle, _) in enumerate(results) if is_idle]
    assert again.tolist() == [rows[i] for i, (*_, is_again) in enumerate(results) if is_again]


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=150, deadline=None)
@given(chosen=steps)
def test_any_sequence_of_steps_is_the_oracles(twin, chosen):
    """Wants, batches on their way and answers in any order leave the same rows, the same queue, the same counts."""
    columns, slow = Columns(TWINS[twin]), oracle.Plan(USABLE)
    for step in chosen:
        if isinstance(step, list):
            columns.want(step)
            for row, way in step:
                slow.want(row, way)
        elif isinstance(step, int):
            row = abs(step)
            columns.flags[row] |= plan.BESIDE if step > 0 else plan.UNSURE
            setattr(slow.row(row), "is_beside" if step > 0 else "is_unsure", True)
        elif len(step) == 1:
            take(columns, slow, *step)
        elif len(step) == 2:
            assert columns.adopt(*step) == slow.adopt(*step)
        elif columns.sent:
            answer(columns, slow, step)
        assert columns.queue == slow.queue
    for number in range(1, N_ROWS):
        row = slow.row(number)
        expected = (row.wanted, row.installed, min(row.trouble, 255))
        assert (columns.wanted[number], columns.installed[number], columns.trouble[number]) == expected
    troubles = [min(row.trouble, 255) for row in slow.rows.values()]
    assert columns.tally[1:256].tolist() == [troubles.count(code) for code in range(1, 256)]
    assert columns.tally[plan.N_UNCONFIRMED] == sum(row.is_unconfirmed for row in slow.rows.values())
    assert columns.tally[plan.N_WANTED] == sum(row.wanted != 0 for row in slow.rows.values())
    for counted, name in ((columns.n_wanted, "wanted"), (columns.n_installed, "installed")):
        ways = [getattr(row, name) for row in slow.rows.values()]
        assert counted[1:].tolist() == [ways.count(way) for way in range(1, N_WAYS)]


@pytest.mark.parametrize("twin", TWINS)
def test_row_0_is_nobody(twin):
    """A withdrawal of a prefix that has no row is passed over."""
    columns = Columns(TWINS[twin])
    columns.want([(0, 0), (0, 0)])
    assert columns.queue == []


@pytest.mark.parametrize("twin", TWINS)
def test_a_row_is_queued_once(twin):
    """Rows that wait already are not queued again."""
    columns = Columns(TWINS[twin])
    rows = np.array([3, 4, 3], np.uint32)
    assert columns.kernel.enqueue(rows, columns.flags).tolist() == [3, 4]
    assert columns.kernel.enqueue(rows, columns.flags).tolist() == []
