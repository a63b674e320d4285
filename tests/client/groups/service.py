"""A service with one group, for tests of the shells: it speaks as a proxy does, and a test decides what goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from pubsub.client import AsyncClient, Client
from pubsub.messenger import Messenger
from pubsub.messenger.peer import Request
from pubsub.protocol import Outcome, Status, Subscribe, Unsubscribe, decode, encode
from pubsub.protocol.group_bodies import KEYED, SHARED, WAIT, GroupValues, encode_values
from pubsub.protocol.groups import Work
from tests.client.groups.reference import LOG, Reference


class Service:
    """One group of the topic `t`, named `g`.

    Args:
        parts: 0: it is shared.
        limit: attempts until a record is dead.

    Attributes:
        seen: the messages that came, oldest first.
        silent: while True, nothing is answered.
        refuse: returns the answer to a message in place of the group; None: the group answers.
    """

    def __init__(self, directory: Path, parts: int = 0, limit: int = 5) -> None:
        self.context, self.directory = zmq.Context(), directory
        self.group, self.number, self.limit = Reference(parts, limit), 0, limit
        self.values = GroupValues(KEYED if parts else SHARED, parts, WAIT, 600_000, limit)
        self.seen: list[Any] = []
        self.silent = False
        self.refuse: Callable[[Any], Status | None] = lambda message: None
        self._lock = threading.Lock()
        self._parked: dict[tuple[str, str], tuple[Request, Work, float]] = {}
        self._over = threading.Event()
        self._messenger = Messenger(self.context)
        self.address = self._messenger.listen("inproc://service", self._handle)
        self._thread = threading.Thread(target=self._serve_parked)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._messenger.close()
        self.context.term()

    def client(self, name: str, **options: Any) -> Client:
        named = {"directory": self.directory, "proxies": [self.address], "context": self.context, "timeout": 20.0}
        return Client(name, **(named | options))

    def async_client(self, name: str, **options: Any) -> AsyncClient:
        named = {"directory": self.directory, "proxies": [self.address], "context": self.context, "timeout": 20.0}
        return AsyncClient(name, **(named | options))

    def put(self, *keys: bytes) -> None:
        """Put records; the body of each is its offset."""
        with self._lock:
            for key in keys:
                self.group.put(key)

    def do(self, action: Callable[[Reference], Any]) -> Any:
        """Look at the group, or do something to it."""
        with self._lock:
            return action(self.group)

    def works(self) -> list[Work]:
        """The messages of members that came."""
        return [message for message in tuple(self.seen) if isinstance(message, Work)]

    def _handle(self, request: Request) -> None:
        message = decode(request.contents, request.frames[0] if request.frames else None)
        with self._lock:
            self.seen.append(message)
            if self.silent:
                return
            status = self.refuse(message) or self._answer(request, message)
            if status is not None:
                self._send(request, status)

    def _send(self, request: Request, status: Status) -> None:
        if request.wants_answer:
            head, body = encode(status)
            request.reply((head, body) if len(body) else head)

    def _answer(self, request: Request, message: Any) -> Status | None:
        if isinstance(message, Subscribe):
            self.number = self.number or message.number
            return Status("s1", Outcome.SUCCESS, number=self.number, log=LOG, body=encode_values(self.values))
        if isinstance(message, Unsubscribe):
            self.number = 0
            return Status("s1", Outcome.SUCCESS, number=message.number, log=LOG)
        if not isinstance(message, Work):
            return Status("s1", Outcome.UNAVAILABLE)
        if message.subscription != self.number:
            reason = "the_group_was_made_again" if self.number else "the_group_was_ended"
            return Status("s1", Outcome.SUPERSEDED, reason=reason, number=self.number, log=LOG)
        self._parked.pop((message.sender, message.store), None)
        status = self.group.work(message, time.monotonic())
        waits = message.wait_ms and message.records_max and not message.say.claim
        if status is not None and status.outcome is Outcome.SUCCESS and waits and not status.records:
            self._parked[message.sender, message.store] = request, message, time.monotonic() + message.wait_ms / 1000
            return None
        return status

    def _serve_parked(self) -> None:
        while not self._over.wait(0.005):
            now = time.monotonic()
            with self._lock:
                if self.silent:
                    continue
                for key, (request, message, until) in list(self._parked.items()):
                    seat = self.group.rows.seats[key]
                    status = self.group.again(message, now)
                    if status is None and now >= until:
                        status = self.group._answer(message, seat, key)
                    if status is not None:
                        del self._parked[key]
                        self._send(request, status)
