"""The protocol without a client around it: one socket that speaks for any number of them.

Ten thousand subscriptions of a thousand subscribers are a thousand clients, each with its file and its fsyncs; what the
server and the proxy have to do for them is the same when their messages come from one socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import zmq

from pubsub.errors import DecodeError, Unavailable
from pubsub.messenger.curve import CurveClient
from pubsub.messenger.framing import FIRST_CALLBACK, pack, unpack
from pubsub.messenger.sockets import open_dealer, receive_frames, send_frames
from pubsub.protocol import Message, Outcome, Status, decode, encode
from pubsub.security.files import read_key_file
from pubsub.security.keys import parse_public
from pubsub.security.pairs import pair_of

WINDOW: Final = 128
"""Requests in flight."""

TRY_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 60.0


class Wire:
    """A connection to a proxy.

    Args:
        where: how a client reaches it (`Stage.where`).
    """

    def __init__(self, where: dict[str, Any]) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        curve = None
        if "key_file" in where:
            pair = pair_of(read_key_file(Path(where["key_file"])))
            curve = CurveClient(pair, tuple(map(parse_public, where["proxy_keys"])))
        self._socket = open_dealer(self._context, where["proxies"][0], curve=curve)
        self._token = FIRST_CALLBACK

    def close(self) -> None:
        """Close the connection."""
        self._context.destroy(0)

    def send(self, message: Message) -> int:
        """Send a request; its token."""
        self._token += 1
        head, body = encode(message)
        send_frames(self._socket, b"", pack(self._token, self._token, 0) + head, (body,) if len(body) else ())
        return self._token

    def receive(self, seconds: float) -> tuple[int, Status] | None:
        """The next answer and the token of its request; None where none came in time."""
        if not self._socket.poll(max(0, int(seconds * 1000))):
            return None
        frames = receive_frames(self._socket, known=True)
        assert frames
        head = bytes(frames[0])
        prefix = unpack(head)
        status = decode(head[prefix.length :], frames[1] if len(frames) > 1 else None)
        if not isinstance(status, Status):
            raise DecodeError("an answer that is no STATUS")
        return prefix.destination, status

    def ask(self, message: Message) -> Status:
        """One request, sent until it succeeds.

        Raises:
            Unavailable: it did not in PATIENCE_SECONDS.
        """
        end, trouble = time.monotonic() + PATIENCE_SECONDS, ""
        while time.monotonic() < end:
            token, until = self.send(message), time.monotonic() + TRY_SECONDS
            while (left := until - time.monotonic()) > 0:
                found = self.receive(left)
                if found is None or found[0] != token:
                    continue
                if _good(found[1]):
                    return found[1]
                trouble = found[1].reason or found[1].outcome.value
                time.sleep(min(0.01, left))  # A request that is refused for the moment is repeated soon, not at once.
                break
        raise Unavailable("request", "the bench", PATIENCE_SECONDS, trouble)

    def ask_all(self, messages: Iterable[Message], answered: Callable[[Status], object] = lambda _: None) -> None:
        """Many requests, a window of them in flight; those that fail are sent again one by one.

        Raises:
            Unavailable: one did not succeed.
        """
        flying: dict[int, Message] = {}
        failed: list[Message] = []
        for message in messages:
            flying[self.send(message)] = message
            while len(flying) >= WINDOW:
                self._take(flying, failed, answered)
        while flying:
            self._take(flying, failed, answered)
        for message in failed:
            answered(self.ask(message))

    def _take(self, flying: dict[int, Message], failed: list[Message], answered: Callable[[Status], object]) -> None:
        found = self.receive(5.0)
        if found is None:
            failed.extend(flying.values())
            flying.clear()
        elif (message := flying.pop(found[0], None)) is not None:
            if _good(found[1]):
                answered(found[1])
            else:
                failed.append(message)


def _good(status: Status) -> bool:
    return status.outcome in {Outcome.SUCCESS, Outcome.DUPLICATE, Outcome.EMPTY}
