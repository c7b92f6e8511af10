"""Control sockets: a stage answers questions about itself, one msgpack map for one.

Owns the form of question and answer and what happens to a question nobody knows. Never blocks the stage: an answer
that is long is given in pages, and the question for the next one says where it begins ("next").

    {ask: "neighbors", ...} -> {ok: True, ...} or {error: "why", errors?: [each error of a configuration]}
"""

from collections.abc import Callable, Iterable
from ipaddress import ip_network
from typing import Any, Final

import msgpack

from common.bgp.prefixes import Network
from common.bus.question import ControlError, ask
from common.bus.schema import SchemaError
from common.bus.wire import ListenPort, Unread, decode_map
from common.runtime.log import Log, event

__all__ = ["Control", "ControlError", "Handler", "ask", "n_on_page", "network_within"]

Handler = Callable[[dict[str, Any]], dict[str, Any]]

PAGE_ROUTES: Final = 100
PAGE_OCTETS: Final = 1 << 14
"""Octets of attribute sets put into words on one page. With these limits a page takes a few milliseconds, whatever a
peer has sent."""
MAX_UNREAD_ANSWERS: Final = 64
"""Answers that wait for one asker to read them; further ones are dropped."""


def network_within(question: dict[str, Any], is_wide: bool) -> Network | None:
    """Return the network a question is about (`within`), None: all; ControlError if it is none of that family."""
    text = question.get("within")
    if text is None:
        return None
    try:
        network = ip_network(text, strict=False)
    except (TypeError, ValueError) as error:
        raise ControlError(f"not a prefix: {text!r:.80}") from error
    if (network.version == 6) != is_wide:
        raise ControlError(f"{network} is no prefix of the family asked for")
    return network


def n_on_page(n_wanted: Any, n_octets: Iterable[int]) -> int:
    """Return how many routes go on a page, at least one: no more than are wanted (0, None: no matter how many).

    `n_octets` gives the size of each route's attribute set.
    """
    limit = max(1, min(int(n_wanted or PAGE_ROUTES), PAGE_ROUTES))
    n_routes = n_before = 0
    for size in n_octets:
        n_before += size
        if n_routes == limit or (n_routes and n_before > PAGE_OCTETS):
            break
        n_routes += 1
    return n_routes


class Control:
    """Answers the questions put to one stage."""

    def __init__(self, log: Log, handlers: dict[str, Handler] | None = None):
        self.handlers: dict[str, Handler] = dict(handlers or {})
        self.port: ListenPort | None = None
        self._log = log

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one question; an error is an answer too."""
        handler = self.handlers.get(question.get("ask")) if isinstance(question.get("ask"), str) else None
        if handler is None:
            return {"error": f"no question {question.get('ask')!r:.60}", "questions": sorted(self.handlers)}
        try:
            return {"ok": True, **(handler(question) or {})}
        except ControlError as error:
            return {"error": str(error)} | ({"errors": error.errors} if error.errors else {})
        except Exception as error:
            # The question comes from outside: whatever it brings about must not end the stage.
            event(self._log, "control-error", "warning", ask=question.get("ask"), problem=repr(error))
            return {"error": f"{type(error).__name__}: {error}"}

    def on_frames(self, peer: bytes, frames: list) -> None:
        """Answer one message; garbage is counted, logged and dropped."""
        try:
            question = decode_map(frames)
        except SchemaError as error:
            event(self._log, "control-garbage", "warning", peer=peer, problem=error)
            return
        grant = self.port.grant_of(peer)
        if grant is None or grant.may_ask(question.get("ask")):
            answer = self.answer(question)
        else:
            event(self._log, "question-refused", "warning", key=grant, ask=question.get("ask"))
            answer = {"error": f"the key {grant} may not ask {question.get('ask')!r:.60}"}
        try:
            self.port.send(peer, [msgpack.packb(answer, default=_plain)])
        except Unread:
            event(self._log, "answer-dropped", "warning", peer=peer, ask=question.get("ask"))

    def on_gone(self, peer: bytes) -> None:
        """Nothing is kept of who has asked."""

    def close(self) -> None:
        if self.port is not None:
            self.port.close()


def _plain(value: Any) -> Any:
    """Return a value msgpack knows for one it does not: numbers of numpy, sets, addresses."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
