"""Access for a server with keys: it decides which peers may connect, and which keys peers must have.

    connection                 key that must match
    to its own address         the key of a server in the access list; messages must name the ID of that key
    to a proxy                 one of the keys that the proxies file has for this proxy
    to another server          one of the keys that the access list has for the server named in the address

So a proxy that lies about the receiver of a topic can direct it only to an authorized server. The server does not
connect to an address without a server ID, or with an ID that has no key here. Addresses within the process
(`inproc://`) are not locked. This module only identifies the sender of a message. The core decides on the message.

The rule is docs/explanation/merge.md, M9.
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
from pubsub.messenger.redial import Refusal
from pubsub.messenger.sockets import Frames
from pubsub.messenger.zap_handler import ZapHandler
from pubsub.protocol.names import parse_endpoint
from pubsub.security.access import SERVERS
from pubsub.security.audit import Audit
from pubsub.security.authorized import Role
from pubsub.security.keys import format_public
from pubsub.security.process_keys import ProcessKeys, expected_keys, find_keys

COPY_BYTES_MAX = 4096
"""Frames up to this size are copied, because that is cheaper than to share their memory."""

_log = logging.getLogger("pubsub.security")


class ServerAccess:
    """Access checks of a server with keys; made before its first socket is opened.

    Args:
        keys: the server's key pair and the path of its access list.
        context: the context of its sockets.
        alone: True if no other role in this context checks keys; this object then answers ZeroMQ's ZAP requests.

    Attributes:
        gate: the access list in force.
        sock: a socket to poll; `take` accepts newcomers when it is readable. None if another role does that.
        curve: locks the server's own address.

    Raises:
        ConfigurationError: the settings name proxies without their keys, or the access list cannot be used.
    """

    def __init__(
        self, settings: ServerSettings, keys: ProcessKeys, context: zmq.Context[Any], clock: Clock, *, alone: bool
    ) -> None:
        self._id, self._pair, self._clock = settings.id, keys.pair, clock
        expected = expected_keys("server", settings.id, keys.pair, settings.proxies, settings.proxy_keys)
        self._proxies = dict(zip(settings.proxies, expected, strict=False))  # Proxies without keys are `inproc://`.
        self._zap_handler: ZapHandler | None = None
        audit = Audit(settings.audit_file, f"server {settings.id}")
        try:
            self.authorizer = keys.authorizer(audit, clock.monotonic(), clock.wall())
            if alone:
                self._zap_handler = ZapHandler(context, self.authorizer.access.zap)
        except ConfigurationError:
            audit.close()
            raise
        self.sock = None if self._zap_handler is None else self._zap_handler.sock
        self.curve = CurveServer(keys.pair, SERVERS)

    # Connections to this server

    def take(self) -> None:
        """Answer the access questions of newcomers, and write their handshakes to the audit file."""
        if self._zap_handler is not None:
            self._zap_handler.take()
            self.authorizer.note_handshakes(self._clock.wall())

    def look(self, now: float) -> bool:
        """Read the access list again when that is due.

        Returns:
            True if the list has changed.
        """
        return self.authorizer.look(now, self._clock.wall())

    def receive(self, sock: zmq.Socket[bytes]) -> tuple[str, Frames] | None:
        """Receive the next message at the server's own address; None if there is none.

        Returns:
            The ID of the server that the sender's key belongs to, and the frames. The ID is "" if the key is no longer
            authorized.
        """
        try:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames: Frames = [frame.bytes]
        speaker = self.authorizer.access.server(str(frame.get("User-Id")))
        while frame.more:
            frame = sock.recv(zmq.NOBLOCK, copy=False)
            frames.append(frame.bytes if len(frame) <= COPY_BYTES_MAX else frame.buffer)
        return speaker, frames

    def is_server(self, name: str) -> bool:
        return bool(self._keys_of(name))

    # Connections from this server

    def to_proxy(self, address: str) -> CurveClient | None:
        """Return the keys for a new socket to a proxy; None within the process."""
        keys = self._proxies.get(address, ())
        return CurveClient(self._pair, keys) if keys else None

    def to_server(self, address: str) -> CurveClient | None:
        """Return the keys for a new socket to another server; None within the process.

        Raises:
            ConfigurationError: the address names no server, or one that is not authorized.
        """
        if address.startswith("inproc://"):
            return None
        server = parse_endpoint(address)[0]
        keys = self._keys_of(server)
        if not keys:
            why = f"server {server} is not in the access list" if server else "the address names no server"
            raise ConfigurationError(f"no connection to {address}: {why}")
        return CurveClient(self._pair, keys)

    def to_member(self, address: str) -> CurveClient | None:
        """Return the keys for a new socket to the other member of this server; None within the process.

        Raises:
            ConfigurationError: this member's own key is the only one authorized for the server's ID.
        """
        if address.startswith("inproc://"):
            return None
        keys = tuple(key for key in self._keys_of(self._id) if key != self._pair.public)
        if not keys:
            why = f"the access list has no key of another member of server {self._id}"
            raise ConfigurationError(f"no connection to {address}: {why}")
        return CurveClient(self._pair, keys)

    def is_expected(self, address: str, curve: CurveClient | None) -> bool:
        """Return True if a socket to another server, locked by `curve`, expects exactly the keys authorized now."""
        return curve is None or curve.expected == self._keys_of(parse_endpoint(address)[0])

    def _keys_of(self, server: str) -> tuple[bytes, ...]:
        return self.authorizer.access.authorized.keys_of(Role.SERVER, server) if server else ()

    def why_refused(self, address: str, refusal: Refusal) -> str:
        """Return one sentence for a person: why there is no connection to `address`, and the remedy."""
        whom = f"proxy {address}" if address in self._proxies else f"server {parse_endpoint(address)[0]} at {address}"
        if refusal is Refusal.KEY_UNKNOWN:
            own = format_public(self._pair.public)
            return f"{whom} refuses the key {own} of server {self._id}: pubsub keys authorize server {self._id} {own}"
        if refusal is Refusal.KEY_MISSING:
            return f"{whom} has no key, but one is expected: start it with its key"
        return f"{whom} has another key than expected: update its key here if it was replaced"

    # Reports

    def report(self, refusals: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the keys section of the report that `pubsub status` shows.

        Args:
            refusals: by address, the reason why there is no connection.
        """
        facts = self.authorizer.report()
        return {**facts, "problems": [*facts["problems"], *sorted(refusals.values())]}

    def close(self) -> None:
        """Stop answering access questions; call it before the context ends."""
        if self._zap_handler is not None:
            self._zap_handler.close()
        self.authorizer.close()


def keys_of(settings: ServerSettings, wall: float) -> ProcessKeys | None:
    """Return the keys that a server's settings name; None if the server has no keys and needs none.

    Args:
        wall: seconds since 1970.

    Raises:
        ConfigurationError: the keys are set up only in part, or the server would listen beyond this host without keys.
    """
    outside = settings.bind if reaches_out(settings.bind) else ""
    usual = settings.directory / "key"
    keys = find_keys("server", settings.id, settings.key_file, usual, settings.authorized, outside, settings.insecure)
    pair = None if keys is None else keys.pair
    expected_keys("server", settings.id, pair, settings.proxies, settings.proxy_keys)
    if keys is None and outside:
        _log.warning(
            "server %s listens on %s without keys: every host that reaches it may connect", settings.id, outside
        )

        audit = Audit(settings.audit_file, f"server {settings.id}")
        audit.must_write(wall, "insecure", address=outside)
        audit.close()
    return keys
