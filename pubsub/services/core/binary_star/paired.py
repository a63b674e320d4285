"""A service that is one of two: its core gets what clients and workers say only while its server is active.

What a client *calls* for is a vote (`star.BinaryStar.request`), and what workers say is none: workers that have found
the way to a passive broker must not make it active where every client still reaches the other. While the server is not
active everything is read, and dropped.

Nothing is carried over between two terms. With each one the service begins with nothing, as the other server did: its
clients ask again, and its workers come anew. What a term left to be sent is never sent after it, nor is it by a server
that stood still meanwhile (`confirm`). Only the good-bye to workers is, so that they need not find out by its silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from pubsub.errors import DecodeError
from pubsub.services.core.binary_star.star import HEARTBEAT_SECONDS, BinaryStar
from pubsub.services.core.binary_star.states import Role, State, decode_word, encode_word
from pubsub.services.core.interface import (
    Act,
    Asked,
    BaseCore,
    Core,
    Dial,
    Frames,
    HangUp,
    Noticed,
    Requested,
    Send,
    WorkerCore,
)

STATE: Final = "state"
"""The port by which this server says what it is: a PUBLISHER."""

PEER: Final = "peer"
"""The port by which it hears what the other is: a SUBSCRIBER. To be read before those of clients."""

Service = TypeVar("Service", bound=Core)


class Paired(BaseCore, Generic[Service]):
    """One server of a pair, and its service.

    Args:
        role: which of the two it is.
        make: makes the service's core, one for each term; each is given to `start` when its term begins.
        heartbeat: seconds; the same at both servers.
    """

    def __init__(self, role: Role, make: Callable[[], Service], heartbeat: float = HEARTBEAT_SECONDS) -> None:
        super().__init__()
        self._make = make
        self._star = BinaryStar(role, 0.0, heartbeat)
        self._heartbeat = heartbeat
        self._service = self._prepared()
        self._in_term = False
        self._answers: list[Act] = []
        self._dialled: dict[str, None] = {}

    @property
    def state(self) -> State:
        """What this server is."""
        return self._star.state

    def start(self, now: float) -> None:
        """Begin, and say so."""
        self._star = BinaryStar(self._star.role, now, self._heartbeat)
        self._turn(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """The other server says what it is, or somebody wants something of the service."""
        if port == PEER:
            self._hear(frames, now)
            return
        asked = self._service.asked(port, frames)
        votes = asked is not None and asked.right == "call"
        takes = self._star.request(now) if votes else self._star.active(now)
        self._turn(now)
        if takes:
            self._service.receive(port, peer, frames, now)
            self._collect()
        else:
            self.counters["not_active"] += 1

    def _hear(self, frames: Sequence[bytes], now: float) -> None:
        try:
            word = decode_word(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        self._star.hear(word, now)
        self._turn(now)

    def tick(self, now: float) -> None:
        """Say what is due, and have the service do what is."""
        active = self._star.active(now)
        self._turn(now)
        if active:
            due = self._service.timer()
            if due is not None and due <= now:
                self._service.tick(now)
                self._collect()

    def timer(self) -> float | None:
        """When something is to be said, or the service is due."""
        due = self._service.timer() if self._in_term else None
        return self._star.deadline() if due is None else min(due, self._star.deadline())

    def confirm(self, now: float) -> None:
        """To be called right before what `take_sends` gives is sent: where this server stood still, it is not."""
        stalls = self._star.stalls
        self._star.active(now)
        if self._star.stalls != stalls:
            self._sends.clear()
            self._turn(now)

    def take_sends(self) -> list[Act]:
        """What is to be done at the sockets: first what the other server is told."""
        taken = super().take_sends() + self._answers
        self._answers = []
        return taken

    def reads(self, port: str) -> bool:
        """Whether a gated port is to be read: as the service says, and always where what comes is dropped."""
        return not self._in_term or self._service.reads(port)

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """A message was not sent."""
        if send.port != STATE and self._in_term:
            self._service.undelivered(send, now, gone=gone)
            self._collect()

    def refused(self, port: str, reason: str, now: float) -> None:
        """Who listens where the service had a port dialled does not let us in."""
        if port in self._dialled:
            self._service.refused(port, reason, now)
            self._collect()

    def ended(self, port: str, now: float) -> None:
        """The connection of a port that the service had dialled has ended."""
        if port in self._dialled:
            self._service.ended(port, now)
            self._collect()

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """What right a message needs: the service says, active or not."""
        return self._service.asked(port, frames)

    def leave(self, now: float) -> None:
        """End in order."""
        if self._in_term:
            self._service.leave(now)
            self._collect()

    def _turn(self, now: float) -> None:
        """Follow what the server has become, and say what is to be said."""
        for turn in self._star.take_turns():
            self._sends.clear()  # A word that was not sent yet is not true any more.
            role = self._star.role.value
            self._events.append(Noticed(f"the {role} is now: {turn.after.value} ({turn.why})", turn.wrong))
            if turn.wrong or turn.after is not State.ACTIVE:
                self._end_term(now)
        if self._star.state is State.ACTIVE and not self._in_term:
            self._in_term = True
            self.counters["terms"] += 1
            self._service.start(now)
            self._collect()
        word = self._star.due(now)
        if word is not None:
            self._sends = [Send(STATE, b"", (encode_word(word),))]

    def _end_term(self, now: float) -> None:
        if not self._in_term:
            return
        self._in_term = False
        self._answers.clear()
        self._service.leave(now)
        self._collect()
        self._answers += [HangUp(port) for port in self._dialled]
        self._dialled.clear()
        self._service = self._prepared()

    def _prepared(self) -> Service:
        """The service's core for the next term."""
        service = self._make()
        service.counters = self.counters
        return service

    def _collect(self) -> None:
        """Take what the service has to send and to tell."""
        for act in self._service.take_sends():
            if isinstance(act, Dial):
                self._dialled[act.port] = None
            elif isinstance(act, HangUp):
                self._dialled.pop(act.port, None)
            self._answers.append(act)
        for event in self._service.take_events():
            self._events.append(self._outside(event) if isinstance(event, Requested) else event)

    def _outside(self, event: Requested) -> Requested:
        """A request of the service's, as whoever does it is told of it."""
        return event


class PairedServer(Paired[WorkerCore]):
    """A server of a pair whose requests are done by whoever runs it. A `WorkerCore`.

    Its tokens are its own: a reply to what was asked in an earlier term is dropped.
    """

    def __init__(self, role: Role, make: Callable[[], WorkerCore], heartbeat: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(role, make, heartbeat)
        self._count = 0
        self._tokens: dict[int, int] = {}

    def _outside(self, event: Requested) -> Requested:
        self._count += 1
        self._tokens[self._count] = event.token
        return Requested(self._count, event.body, event.service)

    def _end_term(self, now: float) -> None:
        super()._end_term(now)
        self._tokens.clear()

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request."""
        known = self._of_this_term(token, now)
        if known is not None:
            del self._tokens[token]
            self._service.reply(known, body, now)
            self._collect()

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Send a part of the answer."""
        known = self._of_this_term(token, now)
        if known is not None:
            self._service.reply_part(known, body, now)
            self._collect()

    def fail(self, token: int, reason: str, now: float) -> None:
        """The handler failed."""
        known = self._of_this_term(token, now)
        if known is not None:
            del self._tokens[token]
            self._service.fail(known, reason, now)
            self._collect()

    def _of_this_term(self, token: int, now: float) -> int | None:
        self._star.active(now)
        self._turn(now)
        return self._tokens.get(token)
