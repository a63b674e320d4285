"""Titanic's core on a store in memory, spoken to by its services' workers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from pubsub.services.core.interface import Send
from pubsub.services.core.titanic.requests import Entry, Replied
from pubsub.services.core.titanic.titanic import Titanic, TitanicLimits

ADDRESS = "tcp://broker"


class Rig:
    """Titanic, and the broker's side of its connections."""

    def __init__(self, stored: Iterable[Entry] = (), age: float = 0.0, **limits: Any) -> None:
        ids = count(1)
        self.now, self.full = 100.0, False
        self.core = Titanic(ADDRESS, lambda: b"%032x" % next(ids), stored, age, TitanicLimits(**limits))
        self.bodies: dict[bytes, tuple[bytes, ...]] = {}
        self.transactions: list[list[str]] = []
        self.core.start(self.now)
        self.sent: list[Send] = []
        self._ports = {"request": count(), "reply": count(), "close": count()}
        self.settle()

    def settle(self) -> list[Send]:
        """Make durable and read what the core wants; what it sends then."""
        while changes := self.core.take_changes():
            self.transactions.append([type(change).__name__ for change in changes])
            for change in changes:
                if self.full:
                    self.core.not_written(change, self.now)
                    continue
                if hasattr(change, "body"):
                    self.bodies[change.entry.id] = change.body
                self.core.written(change, self.now)
        for load in self.core.take_loads():
            self.core.loaded(load, self.bodies.get(load.entry.id), self.now)
        self.sent = [act for act in self.core.take_sends() if isinstance(act, Send)]
        return self.sent

    def give(self, service: str, *body: bytes) -> str:
        """A client's request comes by a connection of a service; which."""
        port = f"titanic.{service} {next(self._ports[service]) % 2 + 1}"
        self.core.receive(port, b"", [b"", b"MDPW01", b"\x02", b"client", b"", *body], self.now)
        return port

    def ask(self, service: str, *body: bytes) -> tuple[bytes, ...]:
        """What a client's request is answered."""
        port = self.give(service, *body)
        replies = [act.frames[5:] for act in self.settle() if act.port == port and act.frames[2] == b"\x03"]
        assert len(replies) == 1, replies
        return replies[0]

    def calls(self, sent: list[Send] | None = None) -> list[Send]:
        """What it asks the broker for."""
        return [act for act in (self.sent if sent is None else sent) if act.frames[1] == b"MDPC01"]

    def answer(self, send: Send, *body: bytes) -> list[Send]:
        """The broker answers one of those; what it sends then."""
        self.core.receive(send.port, b"", [*send.frames[:3], *body], self.now)
        return self.settle()

    def wait(self, seconds: float) -> list[Send]:
        """Let time pass; the broker's heartbeats come meanwhile."""
        end, sent = self.now + seconds, []
        while (due := self.core.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            for port in self.core._workers:
                self.core.receive(port, b"", [b"", b"MDPW01", b"\x04"], self.now)
            self.core.tick(self.now)
            sent += self.settle()
        self.now = end
        return sent

    def replied(self) -> int:
        return sum(transaction.count(Replied.__name__) for transaction in self.transactions)
