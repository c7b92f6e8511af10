"""The plan as a map of rows, for one row at a time."""

ELSEWHERE = 0xFFFFFFFF


class Row:
    """What is known of one prefix."""

    def __init__(self):
        self.wanted = 0
        self.installed = 0
        self.is_queued = False
        self.is_beside = False
        self.is_unsure = False
        self.is_sent = False
        self.is_unconfirmed = False
        self.trouble = 0


class Plan:
    """Rows by number; the queue in order."""

    def __init__(self, usable: set[int]):
        self.usable = usable
        self.rows: dict[int, Row] = {}
        self.queue: list[int] = []

    def row(self, number: int) -> Row:
        return self.rows.setdefault(number, Row())

    def adopt(self, number: int, way: int) -> bool:
        """Note a route the kernel is found to have; return whether it is the first of its prefix."""
        row = self.row(number)
        is_first = not row.installed
        row.installed = way if is_first else ELSEWHERE
        row.is_unsure |= not is_first
        row.is_unconfirmed = True
        return is_first

    def want(self, number: int, way: int) -> None:
        """Note what is wanted; what differs from the kernel, or is of no use to anybody, is queued."""
        row = self.row(number)
        is_at_rest = not (row.is_sent or row.is_beside or row.is_unsure or row.trouble) and way in self.usable
        is_done = row.installed == way != 0 and (row.wanted == way or is_at_rest)
        row.wanted = way
        row.is_unconfirmed = False
        if not is_done and not row.is_queued:
            row.is_queued = True
            self.queue.append(number)

    def take(self, n: int) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Take `n` rows from the queue; return [(row, action, target)] and the rows nobody needs."""
        work, idle = [], []
        taken, self.queue = self.queue[:n], self.queue[n:]
        for number in taken:
            row = self.row(number)
            if row.is_sent:
                self.queue.append(number)
                continue
            row.is_queued = False
            target = row.wanted if row.wanted in self.usable else 0
            if target != row.installed or (target == 0 and row.is_unsure):
                if (row.is_beside or row.is_unsure) and row.installed:
                    target = 0
                row.is_sent = True
                work.append((number, 3 if target == 0 else 1 if row.installed == 0 else 2, target))
                continue
            row.trouble = 0
            if row.wanted == 0:
                row.is_beside = False
                idle.append(number)
        return work, idle

    def settle(self, number: int, action: int, target: int, error: int) -> tuple[bool, bool, bool]:
        """Account an answer; return (was it refused, is the row idle now, is it to be tried again)."""
        row = self.row(number)
        row.is_sent = False
        if error and not (action == 3 and error in (2, 3)):
            row.trouble = error
            return True, False, False
        row.trouble = 0
        row.installed = target
        was_spoiled, row.is_beside = row.is_beside or row.is_unsure, False
        if not (action == 3 and error == 0):  # there may be one more where there was one to remove
            row.is_unsure = False
        is_done = target == 0 and row.wanted == 0 and not row.is_unsure
        return False, is_done and not row.is_queued, was_spoiled and not is_done
