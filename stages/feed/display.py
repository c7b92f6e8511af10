"""The live display of a load test: a few lines drawn over and over in a terminal, a line a second elsewhere.

Owns what it has drawn. Never touches a neighbor: it reads the player's counts.
"""

import shutil
import statistics
import sys
import time

from stages.feed.load import Player
from stages.feed.neighbor import Neighbor

PLAIN_S = 1.0
DRAWN_S = 0.1
MOST_LINES = 12
BAR = 24


class Display:
    """Shows a load as it goes on."""

    def __init__(self, stream=None):
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty()
        self.step = ""
        self._next_at = 0.0
        self._n_lines = 0
        self._before: tuple[float, int, int] | None = None
        self._rates = (0.0, 0.0)
        self._began_at = time.monotonic()

    def on_step(self, name: str) -> None:
        """Note what is being done."""
        self.step = name

    def on_prepare(self, n_neighbors: int) -> None:
        """Say that tables are made, or read, which can take a while."""
        if not n_neighbors:
            return
        tables = "a table" if n_neighbors == 1 else f"{n_neighbors:,} tables"
        print(f"preparing {tables}", file=self.stream, flush=True)

    def watch(self, player: Player, now: float) -> None:
        """Draw, if it is time to."""
        if now < self._next_at:
            return
        self._next_at = now + (DRAWN_S if self.is_terminal else PLAIN_S)
        self._measure(player, now)
        if self.is_terminal:
            self._draw([self._summary(player), *self._neighbors(player)])
        else:
            print(self._summary(player), file=self.stream, flush=True)

    def _measure(self, player: Player, now: float) -> None:
        sent = sum(each.n_octets_sent for each in player.neighbors)
        updates = sum(each.n_updates for each in player.neighbors)
        if self._before is not None and now > self._before[0]:
            seconds = now - self._before[0]
            self._rates = ((sent - self._before[1]) / seconds, (updates - self._before[2]) / seconds)
        self._before = (now, sent, updates)

    def _summary(self, player: Player) -> str:
        listeners = [each for each in player.neighbors if each.plan.n_expected != 0]
        elapsed = time.monotonic() - self._began_at
        n_up = sum(each.is_established for each in player.neighbors)
        words = [
            f"{elapsed:6.1f} s", f"{self.step:<9}", f"sessions {n_up}/{len(player.neighbors)}",
            f"sent {self._rates[0] / 1e6:.1f} MB/s", f"heard {self._rates[1]:,.0f} UPDATEs/s",
            f"held {sum(each.n_held for each in listeners):,}",
        ]  # fmt: skip
        if player.probes is not None and player.probes.delays_s:
            words.append(f"delay {statistics.median(player.probes.delays_s[-201:]) * 1e3:.2f} ms")
        return "  ".join(words)

    def _neighbors(self, player: Player) -> list[str]:
        shown = [self._neighbor(each) for each in player.neighbors[:MOST_LINES]]
        n_more = len(player.neighbors) - MOST_LINES
        return shown + ([f"  and {n_more} more"] if n_more > 0 else [])

    @staticmethod
    def _neighbor(neighbor: Neighbor) -> str:
        name = f"  {neighbor.plan.name[:18]:<18}"
        if neighbor.failure:
            return f"{name} {neighbor.failure}"
        if neighbor.plan.n_expected == 0:
            return f"{name} sent {neighbor.n_octets_sent:,} octets{'' if neighbor.wants_to_send else ', all'}"
        held = neighbor.n_held
        full = min(BAR, BAR * held // neighbor.plan.n_expected) if neighbor.plan.n_expected else 0
        bar = f"{'█' * full}{'░' * (BAR - full)} " if neighbor.plan.n_expected else ""
        return (
            f"{name} {bar}holds {held:,}, {neighbor.n_updates:,} UPDATEs{', complete' if neighbor.complete_at else ''}"
        )

    def _draw(self, lines: list[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        del lines[max(1, rows - 1) :]  # what has left the top of a terminal cannot be drawn over
        up = f"\x1b[{self._n_lines}A" if self._n_lines else ""
        # A line that breaks would be two to go up.
        self.stream.write(up + "".join(f"\r\x1b[K{line[: columns - 1]}\n" for line in lines))
        self.stream.flush()
        self._n_lines = len(lines)

    def end(self) -> None:
        """Draw no more; what stands stays."""
        self._n_lines = 0


def summary_lines(report: dict) -> list[str]:
    """Return the report for a person."""
    lines = []
    for step in report["steps"]:
        found = {key: value for key, value in step.items() if key not in ("do", "seconds", "verdict", "answers")}
        lines.append("  ".join([f"{step['do']:<10} {step['seconds']:8.2f} s", *_words(found)]))
        for name, each in list(found.items())[:MOST_LINES]:
            if isinstance(each, dict):
                lines.append("  ".join([f"  {name}:", *_words(each)]))
        for name, verdict in list(step.get("verdict", {}).items())[:MOST_LINES]:
            lines.append(f"  {name}: {_verdict(verdict)}")
        for name in step.get("wrong", []):
            lines.append(f"  {name}: {step['answers'][name]['answer']}: wrong by {step['answers'][name]['source']}")
    for name, each in list(report["neighbors"].items())[:MOST_LINES]:
        faults = {key: each[key] for key in FAULTS if each[key]}
        if faults:
            lines.append(f"{name}: " + ", ".join(f"{count:,} {FAULTS[key]}" for key, count in faults.items()))
    if report["failure"]:
        lines.append(f"failed: {report['failure']}")
    return lines


FAULTS = {
    "invalid_updates": "UPDATEs to be treated as withdraw",
    "discarded_attributes": "attributes to be discarded",
    "wrong_first_as": "attribute sets without the speaker's own AS first",
    "repeated": "announcements of what stood already",
    "spurious_withdrawals": "withdrawals of what was not announced",
}


def _verdict(verdict: dict) -> str:
    faults = [f"{verdict[key]:,} {words}" for key, words in VERDICTS.items() if verdict[key]]
    examples = [f"{prefix}" for each in verdict.get("examples", {}).values() for prefix in each][:3]
    words = ("; ".join(faults) + f" (such as {', '.join(examples)})") if faults else "holds exactly what it must"
    return words + (f"; was told {verdict['returned']:,} of its own" if verdict["returned"] else "")


VERDICTS = {"missing": "missing", "extra": "too many", "wrong": "with attributes that nobody announced"}


def _words(values: dict) -> list[str]:
    return [f"{name} {_text(value)}" for name, value in values.items() if not isinstance(value, dict | list)]


def _text(value) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
