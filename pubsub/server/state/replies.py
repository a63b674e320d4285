"""Where a request came from, where an answer goes, and the answers of one loop, which leave after its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from pubsub.protocol.messages import Message, Outcome, Status, Transfer
from pubsub.server.state.measures import Timing

LISTENER: Final = -1
"""The link that other servers use to reach this one."""


@dataclass(slots=True)
class Origin:
    """Where an answer goes.

    Attributes:
        link: index of the proxy, LISTENER for our own address, or the address of another server.
        origin: whom it is to be passed on to there; b"" for nobody else.
        callback: the one that the request named; 0 for none.
        speaker: ID of the server whose key the connection has, "" where that is not authorized (any more); None where
            no key is asked for. Of our own address only.
        waits: whether the answer waits; see `Outgoing`.
        timing: what is observed when it is answered; see `Outgoing`.
        topic: that a client's request is about; "" for none.
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
        link: index of the proxy, LISTENER for our own address, or the address of another server.
        origin: whom it is to be passed on to there; b"" for nobody else.
        destination: the callback it answers; 0 for none.
        source: our callback that is to get the answer; 0 for none.
        waits: whether it waits, where the store has two members, until both have what it rests on. What only says that
            this process lives, or how it is, does not.
        timing: what is observed when it has been sent, if it says success; None: nothing.
    """

    link: int | str
    origin: bytes
    destination: int
    source: int
    message: Message
    waits: bool = True
    timing: Timing | None = None


class Replies:
    """What is answered in one loop.

    Args:
        server: this server's ID.
        counters: what the server counts.
    """

    def __init__(self, server: str, counters: Counter[str]) -> None:
        self._server, self._counters = server, counters
        self._answers: list[tuple[Origin, Status | Transfer]] = []
        self._places: dict[Hashable, int] = {}

    def answer(self, origin: Origin, outcome: Outcome, **facts: object) -> None:
        """Answer a request."""
        self._answers.append((origin, Status(self._server, outcome, **facts)))  # type: ignore[arg-type]

    def answer_together(self, key: Hashable, origin: Origin, outcome: Outcome, **facts: object) -> None:
        """Answer a request in place of those answered with this key in this loop: it says all that they say."""
        place = self._places.setdefault(key, len(self._answers))
        if place < len(self._answers):
            self._answers[place] = origin, Status(self._server, outcome, **facts)  # type: ignore[arg-type]
        else:
            self.answer(origin, outcome, **facts)

    def refuse(self, origin: Origin, reason: str, **facts: object) -> None:
        """Answer a request whose bytes cannot be served.

        Args:
            reason: a few words for a person.
            facts: of a train, how far it went before.
        """
        self._counters["refused"] += 1
        if origin.callback:
            self.answer(origin, Outcome.REFUSED, reason=_words(reason), **facts)

    def reply(self, origin: Origin, message: Status | Transfer) -> None:
        """Answer another server."""
        self._answers.append((origin, message))

    def take(self) -> list[tuple[Origin, Status | Transfer]]:
        """The answers, which are on their way now."""
        answers, self._answers = self._answers, []
        self._places.clear()
        return answers

    def retry(self, outcome: Outcome, reason: str) -> None:
        """The loop was taken back: answer its requests so, to be tried again.

        What was answered speaks of logs, counters and positions that are not there any more; a refusal of bytes stands,
        but for one that says how far a train went before.
        """
        retry = Status(self._server, outcome, reason=reason)
        self._answers = [(origin, answer if _stands(answer) else retry) for origin, answer in self._answers]


def _stands(answer: Status | Transfer) -> bool:
    """Whether an answer is true of the request's bytes, whatever becomes of the loop."""
    return isinstance(answer, Status) and answer.outcome is Outcome.REFUSED and answer.last < 0


def _words(text: str) -> str:
    """A text as one word of a header."""
    return "".join(ch if "!" <= ch <= "~" else "_" for ch in text)[:200]
