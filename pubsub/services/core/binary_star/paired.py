"""A service as one of a pair: its core receives messages of clients and workers only while its server is active.

A *call* of a client is a vote (`star.BinaryStar.request`). Messages of workers are not votes: workers that have found a
passive broker must not make it active while every client still reaches the other. While the server is not active, it
reads and drops everything.

Nothing is carried over between two terms. Each term begins with a new core, as on the other server: clients repeat
their requests, and workers register again. Unsent messages of a term are dropped at its end, and also when the server
was paused in between (`confirm`). Only the goodbye to workers is sent, so that they need not wait for silence.
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
"""Port of the PUBLISHER that sends the state of this server."""

PEER: Final = "peer"
"""Port of the SUBSCRIBER that receives the state of the other server. It is read before the ports of clients."""

Service = TypeVar("Service", bound=Core)


class Paired(BaseCore, Generic[Service]):
    """One server of a pair, and its service.

    Args:
        role: the role of this server in the pair.
        make: makes the service's core for each term; `start` is called when the term begins.
        heartbeat: seconds, the same at both servers.
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
        return self._star.state

    def start(self, now: float) -> None:
        self._star = BinaryStar(self._star.role, now, self._heartbeat)
        self._turn(now)

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        if port == PEER:
            self._receive(frames, now)
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

    def _receive(self, frames: Sequence[bytes], now: float) -> None:
        try:
            word = decode_word(frames)
        except DecodeError:
            self.counters["undecodable"] += 1
            return
        self._star.receive(word, now)
        self._turn(now)

    def tick(self, now: float) -> None:
        active = self._star.active(now)
        self._turn(now)
        if active:
            due = self._service.timer()
            if due is not None and due <= now:
                self._service.tick(now)
                self._collect()

    def timer(self) -> float | None:
        due = self._service.timer() if self._in_term else None
        return self._star.deadline() if due is None else min(due, self._star.deadline())

    def confirm(self, now: float) -> None:
        """Drop the unsent messages if this server was paused. Call this right before the shell sends them."""
        stalls = self._star.stalls
        self._star.active(now)
        if self._star.stalls != stalls:
            self._sends.clear()
            self._turn(now)

    def take_sends(self) -> list[Act]:
        """Return the acts for the sockets, the state message for the other server first."""
        taken = super().take_sends() + self._answers
        self._answers = []
        return taken

    def reads(self, port: str) -> bool:
        """Whether to read a gated port: as the service decides in a term, always otherwise, to drop the messages."""
        return not self._in_term or self._service.reads(port)

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        if send.port != STATE and self._in_term:
            self._service.undelivered(send, now, gone=gone)
            self._collect()

    def refused(self, port: str, reason: str, now: float) -> None:
        if port in self._dialled:
            self._service.refused(port, reason, now)
            self._collect()

    def ended(self, port: str, now: float) -> None:
        if port in self._dialled:
            self._service.ended(port, now)
            self._collect()

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """Return the right that a message needs: the service decides, also while it is not active."""
        return self._service.asked(port, frames)

    def leave(self, now: float) -> None:
        if self._in_term:
            self._service.leave(now)
            self._collect()

    def _turn(self, now: float) -> None:
        """Apply the state changes of the server, and queue its state message."""
        for turn in self._star.take_turns():
            self._sends.clear()  # An unsent state message is out of date.
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
        service = self._make()
        service.counters = self.counters
        return service

    def _collect(self) -> None:
        """Take the acts and events of the service."""
        for act in self._service.take_sends():
            if isinstance(act, Dial):
                self._dialled[act.port] = None
            elif isinstance(act, HangUp):
                self._dialled.pop(act.port, None)
            self._answers.append(act)
        for event in self._service.take_events():
            self._events.append(self._outside(event) if isinstance(event, Requested) else event)

    def _outside(self, event: Requested) -> Requested:
        """Return a request of the service as the shell receives it."""
        return event


class PairedServer(Paired[WorkerCore]):
    """A server of a pair that runs a handler. A `WorkerCore`.

    It has tokens of its own: a reply to a request of an earlier term is dropped.
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
        known = self._of_this_term(token, now)
        if known is not None:
            del self._tokens[token]
            self._service.reply(known, body, now)
            self._collect()

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        known = self._of_this_term(token, now)
        if known is not None:
            self._service.reply_part(known, body, now)
            self._collect()

    def fail(self, token: int, reason: str, now: float) -> None:
        known = self._of_this_term(token, now)
        if known is not None:
            del self._tokens[token]
            self._service.fail(known, reason, now)
            self._collect()

    def _of_this_term(self, token: int, now: float) -> int | None:
        self._star.active(now)
        self._turn(now)
        return self._tokens.get(token)
