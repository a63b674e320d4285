"""The entrance of a keyed proxy: who is let in at its doors, and what is written down of who is. It decides nothing.

The doorkeeper answers ZeroMQ's questions about newcomers, the gate watches who is authorized, the audit keeps what
happened; what each message may is decided in `rights`.
"""

from __future__ import annotations

from collections import Counter
from secrets import token_bytes
from typing import Any, Final

import zmq

from pubsub.base.clock import Clock
from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveServer
from pubsub.messenger.doorkeeper import Doorkeeper
from pubsub.proxy.rights import Rights, facts
from pubsub.security.access import Verdict
from pubsub.security.audit import Audit
from pubsub.security.doors import Question
from pubsub.security.opening import ProcessKeys

SECRET_BYTES: Final = 32


class Entrance:
    """What a keyed proxy has before its first socket is bound.

    Args:
        keys: its pair, and where it stands who is authorized.
        audit: where it is noted what happens.
        context: that of the sockets.
        clock: where the time comes from.

    Attributes:
        rights: what is decided of each message.
        gate: who is authorized now.
        counters: how often what happened.
        sock: to be polled for reading; `take` then lets in who may enter.

    Raises:
        ConfigurationError: the file of who is authorized cannot be used, or somebody else lets newcomers in there.
    """

    def __init__(self, keys: ProcessKeys, audit: Audit, context: zmq.Context[Any], clock: Clock) -> None:
        self._keys, self._clock = keys, clock
        self.gate = keys.gate(audit, clock.monotonic(), clock.wall())
        try:
            self._doorkeeper = Doorkeeper(context, self.gate.access.zap)
        except ConfigurationError:
            self.gate.close()
            raise
        self.rights = Rights(self.gate.access, token_bytes(SECRET_BYTES))
        self.sock = self._doorkeeper.sock

    @property
    def counters(self) -> Counter[str]:
        """How often what happened."""
        return self.gate.counters

    @property
    def deadline(self) -> float:
        """When `look` is to be called next, on the monotonic clock in seconds."""
        return self.gate.deadline

    def curve(self, domain: str) -> CurveServer:
        """What locks a socket that is bound as this door."""
        return CurveServer(self._keys.pair, domain)

    def take(self) -> None:
        """Let in who may enter, and write down who came."""
        self._doorkeeper.take()
        self.gate.note_handshakes(self._clock.wall())

    def look(self, now: float) -> bool:
        """Look whether somebody else is authorized, where it is time to; whether that is so."""
        return self.gate.look(now, self._clock.wall())

    def denied(self, user: str, asked: Question, verdict: Verdict, now: float) -> None:
        """Note that a user has no right to something."""
        self.gate.note_denied(user, asked.operation, asked.topic, verdict, now, self._clock.wall())

    def may_operate(self, user: str, head: bytes) -> bool:
        """Write down what a user is about to operate; False: that cannot be, and it must not be done."""
        return self.gate.note_operation(user, self._clock.wall(), **facts(head))

    def given_up(self, user: str, head: bytes) -> None:
        """Write down that a server says of another one's topic that an operator gave it up, which is believed."""
        if said := facts(head):
            self.gate.note("given_up", self._clock.wall(), user=user, **said)

    def note(self, what: str, user: str, asked: Question) -> None:
        """Write down what a user does with a topic: subscribe to it, make it."""
        self.gate.note(
            what, self._clock.wall(), user=user, sender=asked.sender, topic=asked.topic, subscription=asked.name
        )

    def close(self) -> None:
        """Let nobody in any more; before the context is ended."""
        self._doorkeeper.close()
        self.gate.close()
