"""A server's sockets to proxies and other servers, and the messages at its own address; it decides nothing.

In a server with keys each link is locked (`access`). `Redials` opens a refused link again: it tries several expected
keys in turn, pauses after a refusal, and finds out the reason.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final, NamedTuple

import zmq

from pubsub.errors import ConfigurationError, DecodeError
from pubsub.messenger.core import Counters
from pubsub.messenger.curve import CurveClient
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.redial import Redial, Refusal, open_redialed
from pubsub.messenger.redials import Redials
from pubsub.messenger.sockets import Frames, open_dealer, receive, send, watch
from pubsub.messenger.wakeup import Wakeup
from pubsub.protocol.codec import decode, encode
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import parse_endpoint
from pubsub.protocol.transfers import Transfer
from pubsub.server.access import ServerAccess

GOODBYE_MS: Final = 200
"""Time for the last messages of a stopping server to leave."""

REFUSALS_MAX: Final = 512
"""Addresses with a remembered refusal. One more clears all of them, and their refusals are logged again."""

REJECTED_MAX: Final = 32
"""Messages at its own address that a standby processes in one turn."""

_log: Final = logging.getLogger(__name__)


class _Link(NamedTuple):
    """One socket, with its address, its lock, and the sockets that report a refusal or the end of its connection."""

    address: str
    curve: CurveClient | None
    redial: Redial | None
    ends: zmq.Socket[bytes] | None = None

    @property
    def watch(self) -> zmq.Socket[bytes] | None:
        """The second socket to poll for this link, if any."""
        return self.ends if self.redial is None else self.redial.sock


class Links:
    """The ZeroMQ sockets, as the loop uses them.

    Args:
        context: the context to create them in.
        poller: polls the open sockets.
        wakeup: wakes the loop that polls.
        doors: locks the sockets; None in a server without keys.

    Attributes:
        refusals: by address, a sentence with the reason why there is no connection.
    """

    receive = staticmethod(receive)
    send = staticmethod(send)

    def __init__(
        self, context: zmq.Context[Any], poller: zmq.Poller, wakeup: Wakeup, access: ServerAccess | None
    ) -> None:
        self._context, self._poller, self._wakeup, self._access = context, poller, wakeup, access
        self._open: dict[zmq.Socket[bytes], _Link] = {}
        self._found_out: deque[Callable[[float], None]] = deque()
        """Results of other threads, to be processed by the loop."""
        self._redials = Redials(Counters(), lambda call, arguments: bool(call(*arguments)), self._enqueue)
        self.refusals: dict[str, str] = {}
        self._refused: dict[str, Refusal] = {}

    def dealer(self, address: str) -> zmq.Socket[bytes]:
        return self._connected(address, address, None if self._access is None else self._access.to_proxy(address))

    def to_server(self, address: str) -> zmq.Socket[bytes]:
        """Open a socket to another server, locked with the keys of the server ID in the address.

        Raises:
            ConfigurationError: the address is invalid, no key of its server is known, or it needs keys that this server
                lacks.
        """
        server, place = parse_endpoint(address)
        if self._access is not None:
            return self._connected(address, place, self._access.to_server(address))
        if server:
            raise ConfigurationError(f"no connection to {address}: that server has keys, and this server has none")
        return self._connected(address, place, None)

    def to_member(self, address: str) -> zmq.Socket[bytes]:
        """Open a socket to the other member of this server, which has another key for the same ID.

        Raises:
            ConfigurationError: the address is invalid, or no key of another member is authorized.
        """
        server, place = parse_endpoint(address)
        if self._access is not None:
            return self._connected(address, place, self._access.to_member(address))
        if server:
            raise ConfigurationError(f"no connection to {address}: that member has keys, and this one has none")
        sock = self._connected(address, place, None)
        ends = watch(self._context, sock, int(zmq.EVENT_DISCONNECTED))
        self._poller.register(ends, zmq.POLLIN)
        self._open[sock] = self._open[sock]._replace(ends=ends)
        return sock

    def ended(self, sock: zmq.Socket[bytes]) -> bool:
        """Return True if the connection of a member's socket has ended since the last call."""
        link = self._open[sock]
        if link.redial is not None:
            ended, link.redial.ended = link.redial.ended, False
            return ended
        ended = False
        while link.ends is not None and receive(link.ends) is not None:
            ended = True
        return ended

    def _connected(self, address: str, place: str, curve: CurveClient | None) -> zmq.Socket[bytes]:
        redial = None
        if curve is None:
            sock = open_dealer(self._context, place)
        else:
            try:
                sock, redial = open_redialed(self._context, place, curve=curve, told=partial(self._told, address))
            except zmq.ZMQError as error:  # No further socket was left for the monitor of the connection.
                raise ConfigurationError(f"no socket for {address!r}: {error}") from None
            # The refusal was reported for the earlier link; the new link withdraws it when it connects.
            redial.refused = self._refused.get(address)
            self._redials.add(redial)
            self._poller.register(redial.sock, zmq.POLLIN)
        self._open[sock] = _Link(address, curve, redial)
        self._poller.register(sock, zmq.POLLIN)
        return sock

    def receive_known(self, listener: zmq.Socket[bytes]) -> tuple[str | None, Frames] | None:
        """Receive the next message at the server's own address, with the ID of the server that its key belongs to."""
        if self._access is not None and listener.mechanism == zmq.CURVE:
            return self._access.receive(listener)
        frames = receive(listener)
        return None if frames is None else (None, frames)

    # Links that are refused

    @property
    def due(self) -> float:
        """The time at which `turn` has something to do, on the monotonic clock in seconds."""
        return self._redials.due

    def turn(self, ready: Container[Any], now: float) -> None:
        """Open due links again, and process the results of earlier attempts."""
        for link in tuple(self._open.values()):
            if link.redial is not None and link.redial.sock in ready:
                self._redials.take(link.redial.sock, now)
        while self._found_out:
            self._found_out.popleft()(now)
        if now >= self._redials.due:
            self._redials.redial(now)

    def _enqueue(self, found: Callable[[float], None]) -> None:
        self._found_out.append(found)
        self._wakeup.set()

    def _told(self, address: str, refusal: Refusal | None) -> None:
        if refusal is None:
            self._refused.pop(address, None)
            if self.refusals.pop(address, None) is not None:
                _log.info("%s is connected now", address)
            return
        assert self._access is not None
        sentence = self._access.why_refused(address, refusal)
        if self.refusals.get(address) != sentence:
            if len(self.refusals) >= REFUSALS_MAX:
                self.refusals.clear()
                self._refused.clear()
            self.refusals[address], self._refused[address] = sentence, refusal
            _log.warning("%s", sentence)

    def is_outdated(self, sock: zmq.Socket[bytes]) -> bool:
        """Return True if a socket to another server expects other keys than those authorized now."""
        link = self._open[sock]
        return self._access is not None and not self._access.is_expected(link.address, link.curve)

    # The end

    def close(self, sock: zmq.Socket[bytes], linger_ms: int = 0) -> None:
        """Close one socket; messages in it have `linger_ms` milliseconds to leave, then they are dropped."""
        link = self._open.pop(sock, None)
        self._poller.unregister(sock)
        if link is not None and link.watch is not None:
            self._poller.unregister(link.watch)
            self._redials.drop(sock)
        if link is not None and link.ends is not None:
            sock.disable_monitor()
            link.ends.close(0)
        sock.close(linger_ms)

    def goodbye(self) -> None:
        """Close all sockets; the last messages have `GOODBYE_MS` to leave."""
        self._redials.close()
        for sock, link in self._open.items():
            if link.ends is not None:
                link.ends.close(0)
            sock.close(GOODBYE_MS)
        self._open.clear()


def reject(links: Links, listener: Any, server: str, primary: str) -> None:
    """Answer a server that gives a topic to this standby with the address of the primary; no other process reports it.

    Args:
        server: the ID that both members have.
        primary: the address of the member that serves; "" if it is not known.
    """
    for _ in range(REJECTED_MAX):
        taken = links.receive_known(listener)
        if taken is None:
            return
        speaker, frames = taken
        with contextlib.suppress(DecodeError):
            prefix = unpack(bytes(frames[1])) if len(frames) in {2, 3} else None
            if prefix is None or not prefix.source or not primary:
                continue
            said = decode(bytes(frames[1])[prefix.length :], frames[2] if len(frames) == 3 else None)
            if isinstance(said, Transfer) and speaker in {None, said.sender}:
                head, _ = encode(Status(server, Outcome.DEPOSED, reason=primary))
                links.send(listener, [frames[0], pack(0, 0, prefix.source) + head])
