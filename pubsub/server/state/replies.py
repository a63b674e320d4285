"""The origin of a request, the destination of an answer, and the answers of one loop, which leave after its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from pubsub.protocol.messages import Message, Outcome, Status
from pubsub.protocol.names import parse_endpoint
from pubsub.protocol.transfers import Transfer
from pubsub.server.state.measures import Timing

LISTENER: Final = -1
"""The link over which other servers reach this one."""


@dataclass(slots=True)
class Origin:
    """The destination of an answer.

    Attributes:
        link: index of the proxy, LISTENER for this server's own address, or the address of another server.
        origin: identity to which the proxy passes the answer on; b"" if it is for the proxy itself.
        callback: number that the request named for its answer; 0 for none.
        speaker: ID of the server with the key of this connection; "" if that key is not authorized, or no longer; None
            if no key is required. Set only on LISTENER.
        waits: True if the answer may be held; see `Outgoing`.
        timing: observed when the request is answered; see `Outgoing`.
        topic: the topic of a client's request; "" for none.
    """

    link: int | str
    origin: bytes
    callback: int
    speaker: str | None = None
    waits: bool = True
    timing: Timing | None = None
    topic: str = ""


@dataclass(slots=True)
class Outgoing:
    """A message for the shell to send.

    Attributes:
        link: index of the proxy, LISTENER for this server's own address, or the address of another server.
        origin: identity to which the proxy passes the message on; b"" if it is for the proxy itself.
        destination: the callback that it answers; 0 for none.
        source: this server's callback for the answer; 0 for none.
        waits: True if a store with two members holds the message until both have the data behind it. Messages that only
            show that this process lives, or its condition, are not held.
        timing: observed when a successful answer was sent; None for no observation.
    """

    link: int | str
    origin: bytes
    destination: int
    source: int
    message: Message
    waits: bool = True
    timing: Timing | None = None


class Replies:
    """The answers of one loop.

    Args:
        server: ID of this server.
        counters: of this server.
    """

    def __init__(self, server: str, counters: Counter[str]) -> None:
        self._server, self._counters = server, counters
        self._answers: list[tuple[Origin, Status | Transfer]] = []
        self._places: dict[Hashable, int] = {}

    def answer(self, origin: Origin, outcome: Outcome, **facts: object) -> None:
        self._answers.append((origin, Status(self._server, outcome, **facts)))  # type: ignore[arg-type]

    def answer_together(self, key: Hashable, origin: Origin, outcome: Outcome, **facts: object) -> None:
        """Answer a request, and replace the earlier answer with this key in the same loop: one answer covers all."""
        place = self._places.setdefault(key, len(self._answers))
        if place < len(self._answers):
            self._answers[place] = origin, Status(self._server, outcome, **facts)  # type: ignore[arg-type]
        else:
            self.answer(origin, outcome, **facts)

    def refuse(self, origin: Origin, reason: str, **facts: object) -> None:
        """Answer a request with unusable bytes.

        Args:
            origin: of the request.
            reason: a few words for a person.
            facts: for a train: its progress before the refusal.
        """
        self._counters["refused"] += 1
        if origin.callback:
            self.answer(origin, Outcome.REFUSED, reason=_words(reason), **facts)

    def reply(self, origin: Origin, message: Status | Transfer) -> None:
        self._answers.append((origin, message))

    def take(self) -> list[tuple[Origin, Status | Transfer]]:
        """Return and clear the answers."""
        answers, self._answers = self._answers, []
        self._places.clear()
        return answers

    def retry(self, outcome: Outcome, reason: str) -> None:
        """Replace the answers of a loop that was rolled back, so that the requests are tried again.

        These answers name logs, counters and positions that no longer exist. The refusal of unusable bytes stays,
        unless it reports the progress of a train.
        """
        retry = Status(self._server, outcome, reason=reason)
        self._answers = [(origin, answer if _stands(answer) else retry) for origin, answer in self._answers]


def _stands(answer: Status | Transfer) -> bool:
    """Return True if an answer concerns only the request's bytes, so that a rollback of the loop does not change it."""
    return isinstance(answer, Status) and answer.outcome is Outcome.REFUSED and answer.last < 0


def _words(text: str) -> str:
    """Return a text as one word of a header."""
    return "".join(ch if "!" <= ch <= "~" else "_" for ch in text)[:200]


def is_its_own(origin: Origin, sender: str | None) -> bool:
    """Check that another server speaks for itself: the sender it names has the ID that its key is authorized for.

    Args:
        sender: the ID that the message names; None if the sender does not matter.
    """
    if isinstance(origin.link, str):
        named = parse_endpoint(origin.link)[0]  # The process at that address has the key of the named server.
        return not named or sender is None or sender == named
    return origin.speaker is None or (origin.speaker != "" and sender in {None, origin.speaker})
