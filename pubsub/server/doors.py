"""The doors of a server that has keys: who enters at its own address, and whose keys it expects where it connects to.

    its own address     other servers, each by its key; their messages name the ID that the key has
    to a proxy          one of the keys that the proxies file has for it
    to another server   one of the keys that our own file of who is authorized has for the server that the address names

So a proxy that lies about where a topic is to go can have it sent to nobody but an authorized server: an address that
names no server, or one that has no key here, is not connected to. Addresses within the process (`inproc://`) are not
locked. What is decided of a message is the core's; this says only whose it is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import zmq

from pubsub.base.clock import Clock
from pubsub.config.addresses import reaches_out
from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient, CurveServer
from pubsub.messenger.doorkeeper import Doorkeeper
from pubsub.messenger.redial import Refusal
from pubsub.messenger.sockets import Frames
from pubsub.protocol.names import parse_endpoint
from pubsub.security.access import SERVERS
from pubsub.security.audit import Audit
from pubsub.security.authorized import Role
from pubsub.security.keys import format_public
from pubsub.security.opening import ProcessKeys, expected_keys, find_keys

COPY_BYTES_MAX = 4096
"""Frames of at most so many bytes are copied, which is cheaper than to share them."""

_log = logging.getLogger("pubsub.security")


class Doors:
    """What a server with keys needs from before its first socket is opened.

    Args:
        settings: the server's.
        keys: its pair, and where it stands who is authorized.
        context: that of its sockets.
        clock: where the time comes from.
        alone: nobody else in this context asks for keys: it is this server that answers ZeroMQ about newcomers.

    Attributes:
        gate: who is authorized now.
        sock: to be polled for reading, `take` then lets in who may enter; None where somebody else does.
        curve: what locks its own address.

    Raises:
        ConfigurationError: proxies are named without their keys, or the file of who is authorized cannot be used.
    """

    def __init__(
        self, settings: ServerSettings, keys: ProcessKeys, context: zmq.Context[Any], clock: Clock, *, alone: bool
    ) -> None:
        self._id, self._pair, self._clock = settings.id, keys.pair, clock
        expected = expected_keys("server", settings.id, keys.pair, settings.proxies, settings.proxy_keys)
        self._proxies = dict(zip(settings.proxies, expected, strict=False))  # Without keys all are `inproc://`.
        self._doorkeeper: Doorkeeper | None = None
        audit = Audit(settings.audit_file, f"server {settings.id}")
        try:
            self.gate = keys.gate(audit, clock.monotonic(), clock.wall())
            if alone:
                self._doorkeeper = Doorkeeper(context, self.gate.access.zap)
        except ConfigurationError:
            audit.close()
            raise
        self.sock = None if self._doorkeeper is None else self._doorkeeper.sock
        self.curve = CurveServer(keys.pair, SERVERS)

    # Who enters

    def take(self) -> None:
        """Let in who may enter, and write down who came."""
        if self._doorkeeper is not None:
            self._doorkeeper.take()
            self.gate.note_handshakes(self._clock.wall())

    def look(self, now: float) -> bool:
        """Look whether somebody else is authorized, where it is time to; whether that is so."""
        return self.gate.look(now, self._clock.wall())

    def receive(self, sock: zmq.Socket[bytes]) -> tuple[str, Frames] | None:
        """The next message at the server's own address; None where none waits.

        Returns:
            The ID of the server whose key it came with, "" where that is not authorized any more, and the frames.
        """
        try:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames: Frames = [frame.bytes]
        speaker = self.gate.access.server(str(frame.get("User-Id")))
        while frame.more:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
            frames.append(frame.bytes if len(frame) <= COPY_BYTES_MAX else frame.buffer)
        return speaker, frames

    def is_server(self, name: str) -> bool:
        """Whether a server of this ID may enter."""
        return bool(self._keys_of(name))

    # Whom it connects to

    def to_proxy(self, address: str) -> CurveClient | None:
        """What locks a new socket to a proxy; None within the process."""
        keys = self._proxies.get(address, ())
        return CurveClient(self._pair, keys) if keys else None

    def to_server(self, address: str) -> CurveClient | None:
        """What locks a new socket to another server; None within the process.

        Raises:
            ConfigurationError: the address names no server, or one that is not authorized.
        """
        if address.startswith("inproc://"):
            return None
        server = parse_endpoint(address)[0]
        keys = self._keys_of(server)
        if not keys:
            why = f"server {server} is not authorized" if server else "it names no server whose key is to be expected"
            raise ConfigurationError(f"{address} is not connected to: {why}")
        return CurveClient(self._pair, keys)

    def to_member(self, address: str) -> CurveClient | None:
        """What locks a new socket to the other member of this very server; None within the process.

        Raises:
            ConfigurationError: no other key than this one's is authorized for the server's ID.
        """
        if address.startswith("inproc://"):
            return None
        keys = tuple(key for key in self._keys_of(self._id) if key != self._pair.public)
        if not keys:
            why = f"no key of another member of server {self._id} is authorized here"
            raise ConfigurationError(f"{address} is not connected to: {why}")
        return CurveClient(self._pair, keys)

    def is_expected(self, address: str, curve: CurveClient | None) -> bool:
        """Whether a socket to another server, locked so, expects those keys that are authorized now."""
        return curve is None or curve.expected == self._keys_of(parse_endpoint(address)[0])

    def _keys_of(self, server: str) -> tuple[bytes, ...]:
        return self.gate.access.authorized.keys_of(Role.SERVER, server) if server else ()

    def why_refused(self, address: str, refusal: Refusal) -> str:
        """Why nobody at an address speaks with this server, and what to do, as a sentence for a person."""
        whom = f"proxy {address}" if address in self._proxies else f"server {parse_endpoint(address)[0]} at {address}"
        if refusal is Refusal.KEY_UNKNOWN:
            own = format_public(self._pair.public)
            return (
                f"{whom} does not let in the key {own} of server {self._id}: pubsub keys authorize server"
                f" {self._id} {own}"
            )
        if refusal is Refusal.KEY_MISSING:
            return f"{whom} has no key, and one is expected of it: it is not spoken to"
        return f"{whom} has another key than the one that is expected of it: it is not spoken to"

    # What is told of them

    def report(self, refusals: Mapping[str, str]) -> Mapping[str, Any]:
        """What `pubsub status` tells of them.

        Args:
            refusals: by address, why nobody there speaks with this server.
        """
        facts = self.gate.report()
        return {**facts, "problems": [*facts["problems"], *sorted(refusals.values())]}

    def close(self) -> None:
        """Let nobody in any more; before the context is ended."""
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        self.gate.close()


def keys_of(settings: ServerSettings, wall: float) -> ProcessKeys | None:
    """The keys that a server's settings name, None where it has none and needs none.

    Args:
        wall: seconds since 1970.

    Raises:
        ConfigurationError: it is half set up, or would listen to others than this host without keys.
    """
    outside = settings.bind if reaches_out(settings.bind) else ""
    usual = settings.directory / "key"
    keys = find_keys("server", settings.id, settings.key_file, usual, settings.authorized, outside, settings.insecure)
    pair = None if keys is None else keys.pair
    expected_keys("server", settings.id, pair, settings.proxies, settings.proxy_keys)
    if keys is None and outside:
        _log.warning("server %s listens on %s without keys, for anyone who reaches it", settings.id, outside)
        audit = Audit(settings.audit_file, f"server {settings.id}")
        audit.must_write(wall, "insecure", address=outside)
        audit.close()
    return keys
