"""The steps of a scenario: what each does with the neighbors, and what it measures.

Owns the list of steps by name. A step is a function of the run and of keys with defaults, which are its keys in the
file too (scenario.py checks them); what it returns stands in the report.
"""

import time
from pathlib import Path

import numpy as np

from stages.feed import garbage as kinds_of_garbage
from stages.feed.churn import Churn, Replay, first_piece
from stages.feed.load import LoadFailed, Player
from stages.feed.mrt import MrtSource
from stages.feed.neighbor import Neighbor

ANSWER_S = 1.0
NOTIFICATION_S = 5.0  # for one that must come; a loaded speaker may take its time
SETTLE_S = 0.2


class Run:
    """A scenario under way: the player, and what the steps have found."""

    def __init__(self, player: Player, late: set[str]):
        self.player = player
        self.late = late
        self.report: list[dict] = []
        self.is_good = True

    def chosen(self, names: list[str] | None) -> list[Neighbor]:
        """Return neighbors by name; all that are not late without."""
        if names is None:
            return [each for each in self.player.neighbors if each.plan.name not in self.late]
        return [self.player.by_name[name] for name in names]

    def perform(self, steps: list[tuple[str, dict]]) -> None:
        """Do all steps, one after the other; what each has found is in `report`, of one that fails too."""
        for name, keys in steps:
            began_at = time.monotonic()
            entry = {"do": name}
            self.report.append(entry)
            try:
                entry.update(STEPS[name](self, **keys) or {})
            except LoadFailed as failure:
                entry.update(failure.found)
                raise
            finally:
                entry["seconds"] = round(time.monotonic() - began_at, 4)


def connect(run: Run, *, neighbors: list | None = None, limit_s: float = 10.0) -> dict:
    """Bring sessions up."""
    chosen = run.chosen(neighbors)
    for neighbor in chosen:
        neighbor.complete_at = neighbor.first_update_at = 0.0
    run.player.connect(chosen, limit_s)
    run.late -= {neighbor.plan.name for neighbor in chosen}
    return {"sessions": len(chosen)}


def send(run: Run, *, neighbors: list | None = None) -> dict:
    """Let senders send their tables; does not wait."""
    if not run.player.started_at:
        run.player.start_clock()
    chosen = [each for each in run.chosen(neighbors) if each.is_established and each in run.player.senders]
    for neighbor in chosen:
        run.player.start_sending(neighbor)
    return {"senders": len(chosen)}


def converge(run: Run, *, neighbors: list | None = None) -> dict:
    """Wait until listeners hold exactly what they must, and judge them."""
    player = run.player
    chosen = [each for each in run.chosen(neighbors) if each.plan.n_expected != 0 and each.is_established]
    began_at = time.monotonic()
    try:
        player.wait_for_routes(chosen)
        player.run_for(SETTLE_S)
    except LoadFailed as failure:
        failure.found = {"verdict": _judged(run, chosen)}
        raise
    last = max((each.complete_at for each in chosen), default=0.0)
    return {
        "converged_s": player.since(last),
        "converged_after_s": round(max(0.0, last - began_at), 4),
        "verdict": _judged(run, chosen),
    }


def _judged(run: Run, chosen: list[Neighbor]) -> dict[str, dict]:
    verdicts = {each.plan.name: run.player.judge_one(each) for each in chosen}
    run.is_good &= all(each.is_good for each in verdicts.values())
    return {name: each.as_dict() for name, each in verdicts.items()}


def probe(run: Run, *, count: int = 1000, interval_s: float = 0.0, sender: str = "", background: bool = False) -> dict:
    """Send single changes and measure their way to the first listener; in the background, until `probe-end`."""
    player = run.player
    if sender:
        _must_be_up([player.by_name[sender]])
    player.load.n_probes, player.load.probe_interval_s = count, interval_s
    player.start_probes(player.by_name[sender] if sender else None)
    if background:
        return {}
    player.end_probes(is_cut=False)
    return player.probes.summary()


def probe_end(run: Run) -> dict:
    """End probes that go on in the background, when those on their way have arrived."""
    if run.player.probes is None:
        raise LoadFailed("no probes are under way: let a probe step with background = true come before")
    run.player.end_probes(is_cut=True)
    return run.player.probes.summary()


def churn(
    run: Run, *, neighbors: list | None = None, seconds: float = 30.0, updates_per_s: float = 200.0,
    withdraw_share: float = 0.1, seed: int = 1,
) -> dict:  # fmt: skip
    """Let senders change their routes with the shape of the Internet's churn, then put all in order again."""
    changes = []
    for number, neighbor in enumerate(_senders(run, neighbors)):
        table = first_piece(run.player.sources[neighbor.plan.name].tables(neighbor.plan))
        changes.append(
            Churn(
                run.player, neighbor, table, updates_per_s=updates_per_s, seconds=seconds,
                withdraw_share=withdraw_share, seed=seed + number,
            )
        )  # fmt: skip
    return _go_on(run, changes)


def replay(
    run: Run, *, path: str = "", neighbors: list | None = None, peer: str = "", speed: float = 1.0,
    first_as: str = "replace",
) -> dict:  # fmt: skip
    """Let senders send the UPDATEs of a peer of an MRT file at their times, `speed` times as fast.

    Without `peer` each plays another one, the first that with the most.
    """
    sources = replayed(run, {"path": path, "neighbors": neighbors, "peer": peer, "first_as": first_as})
    senders = run.player.senders[:1] if neighbors is None else run.chosen(neighbors)
    _must_be_up(senders)
    return _go_on(
        run,
        [Replay(run.player, neighbor, source, speed) for neighbor, source in zip(senders, sources, strict=True)],
    )


def replayed(run: Run, keys: dict) -> list[MrtSource]:
    """Return the sources of a `replay` step with these keys: one for each neighbor, or for the first sender."""
    names = keys.get("neighbors")
    n = len(run.player.senders[:1] if names is None else names)
    path, peer, first_as = Path(keys.get("path", "")), keys.get("peer", ""), keys.get("first_as", "replace")
    return [MrtSource(path, peer, first_as, rank=rank) for rank in range(n)]


def _must_be_up(neighbors: list[Neighbor]) -> None:
    down = [each.plan.name for each in neighbors if not each.is_established]
    if down:
        raise LoadFailed(f"{', '.join(down[:3])}: has no session: let a connect step come before")


def _senders(run: Run, neighbors: list | None) -> list[Neighbor]:
    chosen = run.chosen(neighbors)
    sending = [each for each in chosen if each.is_established and (each.sent_at or each.source is not None)]
    found = [each for each in sending if run.player.judge.n_announced(each.plan.name)]
    if not found:
        raise LoadFailed("there is nobody whose routes could change: let a send step come before")
    return found


def _go_on(run: Run, changes: list) -> dict:
    player = run.player
    player.on_turn += changes
    player.until(lambda: all(each.is_done for each in changes), "changes to end")
    player.on_turn = [each for each in player.on_turn if each not in changes]
    for each in changes:
        each.finish()
    player.expect_anew()
    return {each.neighbor.plan.name: each.report() for each in changes}


def flap(
    run: Run, *, what: str = "sessions", neighbors: list | None = None, share: float = 1.0, times: int = 3,
    pause_s: float = 1.0, is_orderly: bool = True, seed: int = 1,
) -> dict:  # fmt: skip
    """Let sessions, or a share of the prefixes, go and come back some times."""
    chosen = _senders(run, neighbors)
    rng = np.random.default_rng(seed)
    for _ in range(times):
        if what == "sessions":
            some = [each for each in chosen if rng.random() < share]
            for neighbor in some:
                run.player.disconnect(neighbor, is_orderly)
                run.player.judge.forget(neighbor.plan.name)
            run.player.run_for(pause_s)
            run.player.connect(some, 30.0)
            for neighbor in some:
                run.player.note_all(neighbor)
                run.player.start_sending(neighbor)
        else:
            _flap_prefixes(run, chosen, share, pause_s)
        run.player.run_for(pause_s)
    run.player.expect_anew()
    return {"times": times, "senders": len(chosen)}


def _flap_prefixes(run: Run, chosen: list[Neighbor], share: float, pause_s: float) -> None:
    from stages.feed import wire

    for is_back in (False, True):
        for neighbor in chosen:
            neighbor.source = wire.encode_changes(_shares(run.player, neighbor, share, is_back))
            run.player.want(neighbor)
        run.player.until(lambda: not any(each.wants_to_send for each in chosen), "changes to be taken")
        run.player.run_for(pause_s)


def _shares(player: Player, neighbor: Neighbor, share: float, is_back: bool):
    """Give a share of a sender's table, announced or withdrawn, and tell the judge."""
    from common.bgp.constants import NONE

    for table in player.sources[neighbor.plan.name].tables(neighbor.plan):
        some = table.chosen(slice(0, round(table.n_prefixes * share)))
        if not is_back:
            some.set = np.full(some.n_prefixes, NONE, np.uint32)
        player.judge.note(neighbor.plan.name, some)
        yield some


def pause(run: Run, *, neighbors: list | None = None) -> dict:
    """Let neighbors read nothing more; their KEEPALIVEs go on."""
    chosen = run.chosen(neighbors)
    for neighbor in chosen:
        neighbor.is_paused = True
        run.player.want(neighbor)
    return {"paused": len(chosen)}


def resume(run: Run, *, neighbors: list | None = None) -> dict:
    """Let neighbors read again."""
    for neighbor in run.chosen(neighbors):
        neighbor.is_paused = False
        neighbor.heard_at = time.monotonic()
        run.player.want(neighbor)
    return {}


def wait(run: Run, *, seconds: float = 1.0) -> dict:
    """Go on for some time."""
    run.player.run_for(seconds)
    return {}


def garbage(
    run: Run, *, neighbors: list | None = None, kinds: list | None = None, answer_s: float = ANSWER_S,
    back_s: float = 90.0,
) -> dict:  # fmt: skip
    """Send malformed messages of each kind over a session of its own, and judge what comes back.

    A session that has been silent for `answer_s` stands.
    """
    neighbor = run.chosen(neighbors)[0]
    answers, wrong = {}, []
    found = {"kinds": 0, "wrong": wrong, "answers": answers}
    try:
        for name in kinds or kinds_of_garbage.KINDS:
            answers[name] = _answer_to(run.player, neighbor, kinds_of_garbage.KINDS[name], answer_s, back_s)
            found["kinds"] = len(answers)
            if not answers[name]["is_right"]:
                wrong.append(name)
        run.player.disconnect(neighbor)  # what it has announced meanwhile goes
        run.player.connect([neighbor], back_s)
    except LoadFailed as failure:
        failure.found = found
        raise
    finally:
        run.is_good &= not wrong
    return found


def _answer_to(player: Player, neighbor: Neighbor, kind, answer_s: float, back_s: float) -> dict:
    if not neighbor.is_established:
        player.connect([neighbor], back_s)
    name = neighbor.plan.name
    player.ignored.add(name)
    try:
        from ipaddress import ip_address

        neighbor.send(kind.make(neighbor.plan.asn, ip_address(neighbor.plan.address).packed))
        player.want(neighbor)
        is_due = kind.codes and not kind.may_stand
        end = time.monotonic() + (max(answer_s, NOTIFICATION_S) if is_due else answer_s)
        player.until(lambda: bool(neighbor.failure) or time.monotonic() >= end, "an answer")
        told = neighbor.notification
        codes = None if told is None else (told.code, told.subcode)
        is_right = kinds_of_garbage.judged(kind, codes, not neighbor.failure)
        return {"is_right": is_right, "answer": neighbor.failure or "the session stands", "source": kind.source}
    finally:
        player.ignored.discard(name)


STEPS = {
    "connect": connect,
    "send": send,
    "converge": converge,
    "probe": probe,
    "probe-end": probe_end,
    "churn": churn,
    "replay": replay,
    "flap": flap,
    "pause": pause,
    "resume": resume,
    "wait": wait,
    "garbage": garbage,
}
