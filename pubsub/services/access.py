"""Access to the sockets of a service: authorized keys, rights to call and serve, and the keys of this process.

A service without keys accepts every peer, and therefore listens on addresses of this host only, unless an option allows
more. With keys each message is checked again: a key that leaves the access list gets nothing from then on, although its
connection stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

from pubsub.base.clock import Clock
from pubsub.errors import ConfigurationError
from pubsub.messenger import CurveClient, CurveServer, Refusal
from pubsub.messenger.zap_handler import ZapHandler
from pubsub.security.access import BOTH
from pubsub.security.audit import Audit
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair
from pubsub.security.process_keys import ProcessKeys
from pubsub.services.core.interface import Asked

_SHOWN: Final = 11
"""Characters of a key in messages, enough to tell keys apart."""


class ServiceAccess:
    """Access control of a service with keys. Make it before the first socket is bound.

    Args:
        keys: key pair of the service and the path of its access list.
        context: the context of the sockets.

    Attributes:
        sock: socket to poll for reading; when it is readable, call `take`.

    Raises:
        ConfigurationError: the access list cannot be used, or the context has another ZAP handler.
    """

    def __init__(self, keys: ProcessKeys, audit: Audit, context: zmq.Context[Any], clock: Clock) -> None:
        self._clock, self._pair = clock, keys.pair
        self._authorizer = keys.authorizer(audit, clock.monotonic(), clock.wall())
        try:
            self._zap_handler = ZapHandler(context, self._authorizer.access.zap)
        except ConfigurationError:
            self._authorizer.close()
            raise
        self.sock = self._zap_handler.sock

    @property
    def counters(self) -> Counter[str]:
        return self._authorizer.counters

    @property
    def deadline(self) -> float:
        """Time of the next `look`, in monotonic seconds."""
        return self._authorizer.deadline

    def curve(self) -> CurveServer:
        """Return the key setup of a listening socket: authorized clients may connect, proxies may not."""
        return CurveServer(self._pair, BOTH)

    def take(self) -> None:
        """Answer the waiting handshakes, and record them in the audit."""
        self._zap_handler.take()
        self._authorizer.note_handshakes(self._clock.wall())

    def look(self, now: float) -> None:
        """Read the access list again if it is time."""
        self._authorizer.look(now, self._clock.wall())

    def hang_up(self) -> None:
        """Read the access list again soon, and reopen the audit file. A signal handler may call this."""
        self._authorizer.hang_up()

    def allows(self, user: str, asked: Asked | None, now: float) -> bool:
        """Return whether a message is accepted. A denied message is recorded in the audit.

        Args:
            user: User-Id of the message, from a socket with keys.
            asked: the right that the message needs; None: an authorized key is enough.
            now: monotonic seconds.
        """
        if asked is None:
            if self._authorizer.line_of(user) is not None:
                return True
            asked = Asked("", "")
        verdict = self._authorizer.access.decide_service(user, asked.right, asked.service)
        if not verdict.allowed:
            self._authorizer.note_denied(user, asked.right, asked.service, verdict, now, self._clock.wall())
        return verdict.allowed

    def close(self) -> None:
        """Stop to answer handshakes. Call this before the context ends."""
        self._zap_handler.close()
        self._authorizer.close()


@dataclass(frozen=True, slots=True)
class Locks:
    """The keys of a process with services; a process without keys has `Locks()`.

    Attributes:
        listening: keys and access list for the sockets that the process binds; None: every peer is accepted.
        pair: key pair for outgoing connections; None: they carry no key.
        expected: public keys of 32 bytes that may answer, by address; `""` stands for all other addresses.
        audit: record of handshakes and denials.
    """

    listening: ProcessKeys | None = None
    pair: Pair | None = None
    expected: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    audit: Audit | None = None

    def curve(self, address: str) -> CurveClient | None:
        """Return the key setup of a connection to an address; None: the connection carries no key.

        Raises:
            ConfigurationError: this process has a key, and the key of that address is not known.
        """
        if self.pair is None or address.startswith("inproc://"):
            return None
        expected = self.expected.get(address) or self.expected.get("", ())
        if not expected:
            raise ConfigurationError(
                f"this process has a key, but the key of {address} is not known: name it with --broker-key pk_…"
            )
        return CurveClient(self.pair, expected)

    def sentence(self, refusal: Refusal, address: str) -> str:
        """Return, in one line, why the other side refuses this process and which command helps."""
        curve = self.curve(address)
        if curve is None:
            return f"{address} wants a key: pubsub keys new client NAME"
        if refusal is Refusal.KEY_UNKNOWN:
            key = format_public(curve.pair.public)
            return f"{address} does not know the key {key[:_SHOWN]}…: pubsub keys authorize client NAME {key}"
        expected = ",".join(map(format_public, curve.expected))
        if refusal is Refusal.KEY_MISSING:
            return f"{address} has no key, but the key {expected} is expected there: check the address and --broker-key"
        return f"{address} closed the handshake: its key is not {expected}: check --broker-key"
