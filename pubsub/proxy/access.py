"""Access control of a keyed proxy, with its sockets and files. `rights` decides which messages a user may send.

The ZAP handler (`ZapHandler`) answers ZeroMQ's questions about new connections. `Gate` watches the file of authorized
keys. The audit records events.
"""

from __future__ import annotations

from collections import Counter
from secrets import token_bytes
from typing import Any, Final

import zmq

from pubsub.base.clock import Clock
from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveServer
from pubsub.messenger.zap_handler import ZapHandler
from pubsub.proxy.client_quotas import ClientQuotas
from pubsub.proxy.rights import Rights, facts
from pubsub.security.access import Verdict
from pubsub.security.audit import Audit
from pubsub.security.process_keys import ProcessKeys
from pubsub.security.questions import Question

SECRET_BYTES: Final = 32


class ProxyAccess:
    """The parts of a keyed proxy that must exist before its first socket is bound.

    Args:
        keys: the proxy's key pair, and the path of the file of authorized keys.
        context: the ZeroMQ context of the sockets.

    Attributes:
        rights: the decision about each message.
        quotas: the buckets of clients with a quota.
        sock: poll it for reading, then call `take`.

    Raises:
        ConfigurationError: the file of authorized keys cannot be used, or the context has another ZAP handler.
    """

    def __init__(self, keys: ProcessKeys, audit: Audit, context: zmq.Context[Any], clock: Clock) -> None:
        self._keys, self._clock = keys, clock
        self.authorizer = keys.authorizer(audit, clock.monotonic(), clock.wall())
        try:
            self._zap_handler = ZapHandler(context, self.authorizer.access.zap)
        except ConfigurationError:
            self.authorizer.close()
            raise
        self.rights = Rights(self.authorizer.access, token_bytes(SECRET_BYTES))
        self.quotas = ClientQuotas(self.authorizer.access)
        self.sock = self._zap_handler.sock

    @property
    def counters(self) -> Counter[str]:
        return self.authorizer.counters

    @property
    def deadline(self) -> float:
        """The monotonic time of the next call of `look`, in seconds."""
        return self.authorizer.deadline

    def curve(self, domain: str) -> CurveServer:
        """Return the CURVE settings of a socket that is bound for this domain."""
        return CurveServer(self._keys.pair, domain)

    def take(self) -> None:
        """Answer the waiting questions about new connections, and record the connections that were accepted."""
        self._zap_handler.take()
        self.authorizer.note_handshakes(self._clock.wall())

    def look(self, now: float) -> bool:
        """Read the file of authorized keys if a look is due, and return whether its rules changed."""
        return self.authorizer.look(now, self._clock.wall())

    def denied(self, user: str, asked: Question, verdict: Verdict, now: float) -> None:
        """Record that a user lacks a right."""
        self.authorizer.note_denied(user, asked.operation, asked.topic, verdict, now, self._clock.wall())

    def may_operate(self, user: str, head: bytes) -> bool:
        """Record an operation before it is done.

        Returns:
            False if the record was not written, so that the operation must not run.
        """
        return self.authorizer.note_operation(user, self._clock.wall(), **facts(head))

    def given_up(self, user: str, head: bytes) -> None:
        """Record a server's report that an operator gave up another server's topic; the proxy acts on that report."""
        if said := facts(head):
            self.authorizer.note("given_up", self._clock.wall(), user=user, **said)

    def note(self, what: str, user: str, asked: Question) -> None:
        """Record that a user subscribes to a topic or creates it."""
        self.authorizer.note(
            what, self._clock.wall(), user=user, sender=asked.sender, topic=asked.topic, subscription=asked.name
        )

    def report(self) -> dict[str, Any]:
        """Return the part of a report about keys."""
        return {**self.authorizer.report(), "throttled": self.quotas.facts()}

    def close(self) -> None:
        """Accept no more connections. Call it before the context is terminated."""
        self._zap_handler.close()
        self.authorizer.close()
