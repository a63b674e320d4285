"""Who is let in at the sockets of a service, and may call or serve what; and the keys with which this process connects.

A service without keys lets everybody in, and so listens for this host only unless it is told otherwise. With keys each
message is looked at once more: who is authorized no longer gets nothing from then on, though the connection stands.
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
from pubsub.messenger.doorkeeper import Doorkeeper
from pubsub.security.access import BOTH
from pubsub.security.audit import Audit
from pubsub.security.keys import format_public
from pubsub.security.opening import ProcessKeys
from pubsub.security.pairs import Pair
from pubsub.services.core.interface import Asked

_SHOWN: Final = 11
"""Characters of a key by which a person tells it from others."""


class Entrance:
    """What has somebody at the doors of a service; to be made before its first socket is bound.

    Args:
        keys: its pair, and where it stands who is authorized.
        audit: where it is noted what happens.
        context: that of the sockets.
        clock: where the time comes from.

    Attributes:
        sock: to be polled for reading; `take` then lets in who may enter.

    Raises:
        ConfigurationError: the file of who is authorized cannot be used, or somebody else lets newcomers in there.
    """

    def __init__(self, keys: ProcessKeys, audit: Audit, context: zmq.Context[Any], clock: Clock) -> None:
        self._clock, self._pair = clock, keys.pair
        self._gate = keys.gate(audit, clock.monotonic(), clock.wall())
        try:
            self._doorkeeper = Doorkeeper(context, self._gate.access.zap)
        except ConfigurationError:
            self._gate.close()
            raise
        self.sock = self._doorkeeper.sock

    @property
    def counters(self) -> Counter[str]:
        """How often what happened."""
        return self._gate.counters

    @property
    def deadline(self) -> float:
        """When `look` is to be called next, on the monotonic clock in seconds."""
        return self._gate.deadline

    def curve(self) -> CurveServer:
        """What locks a socket that is bound: whoever is authorized, and no proxy, may enter."""
        return CurveServer(self._pair, BOTH)

    def take(self) -> None:
        """Let in who may enter, and write down who came."""
        self._doorkeeper.take()
        self._gate.note_handshakes(self._clock.wall())

    def look(self, now: float) -> None:
        """Look whether somebody else is authorized, where it is time to."""
        self._gate.look(now, self._clock.wall())

    def hang_up(self) -> None:
        """Look soon, and open the audit anew; a signal handler may call it."""
        self._gate.hang_up()

    def allows(self, user: str, asked: Asked | None, now: float) -> bool:
        """Whether a message of this user is taken; where it is not, that is noted.

        Args:
            user: the User-Id of the message, from a socket that asks for keys.
            asked: what right it needs; None: none.
            now: the monotonic clock, in seconds.
        """
        if asked is None:
            if self._gate.line_of(user) is not None:
                return True
            asked = Asked("", "")
        verdict = self._gate.access.decide_service(user, asked.right, asked.service)
        if not verdict.allowed:
            self._gate.note_denied(user, asked.right, asked.service, verdict, now, self._clock.wall())
        return verdict.allowed

    def close(self) -> None:
        """Let nobody in any more; before the context is ended."""
        self._doorkeeper.close()
        self._gate.close()


@dataclass(frozen=True, slots=True)
class Locks:
    """The keys of a process with services; one without keys has `Locks()`.

    Attributes:
        listening: what locks the sockets that it binds; None: anybody enters.
        pair: by which it proves who it is where it connects; None: it does not.
        expected: public keys, 32 bytes each, that may answer at an address; `""`: at every other one.
        audit: where it is noted who comes.
    """

    listening: ProcessKeys | None = None
    pair: Pair | None = None
    expected: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    audit: Audit | None = None

    def curve(self, address: str) -> CurveClient | None:
        """What locks a socket that connects to an address; None: it is not locked.

        Raises:
            ConfigurationError: this process has a key, and nobody says what key is to answer there.
        """
        if self.pair is None or address.startswith("inproc://"):
            return None
        expected = self.expected.get(address) or self.expected.get("", ())
        if not expected:
            raise ConfigurationError(
                f"this process has a key, and nothing says what key {address} has: name it by --broker-key pk_…"
            )
        return CurveClient(self.pair, expected)

    def sentence(self, refusal: Refusal, address: str) -> str:
        """Why whoever listens at an address does not let us in, in one line."""
        curve = self.curve(address)
        if curve is None:
            return f"{address} wants a key: pubsub keys new client NAME"
        if refusal is Refusal.KEY_UNKNOWN:
            key = format_public(curve.pair.public)
            return f"{address} does not know the key {key[:_SHOWN]}…: pubsub keys authorize client NAME {key}"
        expected = ",".join(map(format_public, curve.expected))
        if refusal is Refusal.KEY_MISSING:
            return f"{address} has no key, and {expected} is expected there: not used"
        return f"{address} closed the handshake: its key is not {expected}"
