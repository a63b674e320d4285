"""A connection to the proxies for one task: requests that hold no state here, each tried until it is settled.

What Spark's workers do needs no client state on a disk: ranges are read by their positions, rows are staged under a
name of their own, and every operation is idempotent by that. So this is only the network part of a client: a request
is sent, again where no answer comes, by the next proxy where several tries came to nothing, until the time-out. A link
is made where it is used, since Spark's workers are forked, and not kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import zmq

from pubsub.base.limits import PROXIES_MAX
from pubsub.client.core.retries import Retries
from pubsub.config.addresses import parse_keys
from pubsub.errors import ConfigurationError, DecodeError, Refused, Unavailable
from pubsub.messenger import CurveClient, Messenger, Peer, Refusal
from pubsub.protocol import RETRY, Outcome, Report, Status, decode, encode
from pubsub.spark.identity import NOBODY, Identity
from pubsub.spark.refusals import Request, denied, not_let_in, turned_away, word

TRY_SECONDS: Final = 0.5
"""Patience of the first try: a range is larger than a message."""

TRIES: Final = 3
RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
"""How long is waited before a request that was answered `retry` is made again; it doubles."""


@dataclass(slots=True)
class Asked:
    """A request on its way.

    Attributes:
        answer: once it is there.
    """

    request: Request
    head: bytes
    body: Any
    retries: Retries
    tokens: list[int] = field(default_factory=list)
    answer: Status | None = None
    reason: str = "no proxy answers"


class ProxyConnection:
    """A connection to the proxies.

    Args:
        proxies: their addresses, tried in this order.
        timeout_seconds: after which a request that is not settled raises.
        context: a ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        identity: who asks, and by which keys.

    Raises:
        ConfigurationError: an address is none, or there are too many; or the key cannot be used on this machine.
    """

    def __init__(
        self,
        proxies: Sequence[str],
        timeout_seconds: float,
        context: zmq.Context[Any] | None = None,
        identity: Identity = NOBODY,
    ) -> None:
        if not 0 < len(proxies) <= PROXIES_MAX:
            raise ConfigurationError(f"1 to {PROXIES_MAX} proxies are needed; {len(proxies)} are named")
        self.timeout_seconds, self.identity, self.pair = timeout_seconds, identity, identity.pair()
        self._proxies = tuple(proxies)
        self._refusals: list[Refusal | None] = [None] * len(proxies)
        self._messenger = Messenger(context)
        try:
            self._peers = [self._connect(index) for index in range(len(proxies))]
        except BaseException:
            self._messenger.close()
            raise
        self._proxy = 0
        self._logs: dict[str, str] = {}

    def _connect(self, index: int) -> Peer:
        told, keys = partial(self._refusals.__setitem__, index), self.identity.proxy_keys
        curve = CurveClient(self.pair, parse_keys(keys[index])) if self.pair is not None and keys else None
        return self._messenger.connect(self._proxies[index], curve=curve, told=told)

    def ask(self, request: Request) -> Status:
        """Send a request and wait until it is settled.

        Returns:
            An answer that is no `retry`.

        Raises:
            Unavailable: there was none within the time-out; the text says what was answered last.
            Refused: the service refused its bytes.
            NotAllowed: the key has no right to it, or not any more.
            NotLetIn: no proxy lets this key in, or none has the key that it must have.
        """
        return self.finish(self.start(request))

    def start(self, request: Request) -> Asked:
        """Send a request; `finish` waits for its answer."""
        if not isinstance(request, Report):
            request.log = self._logs.get(request.topic, "")
        head, body = encode(request)
        if all(self._refusals):  # It may be let in by now.
            self._refusals[:] = [None] * len(self._refusals)
            for peer in self._peers:
                self._messenger.hurry(peer)
        pending = Asked(request, head, body, Retries(len(self._peers), TRIES, TRY_SECONDS, self._proxy))
        self._send(pending)
        return pending

    def finish(self, pending: Asked) -> Status:
        """Wait until a request that was sent is settled; see `ask`."""
        until = time.monotonic() + self.timeout_seconds
        pause = RETRY_SECONDS
        while True:
            patience = min(until, time.monotonic() + pending.retries.patience)
            self._messenger.wait(lambda: pending.answer is not None or self._refused_by(pending), patience)
            status = pending.answer
            if status is None and all(self._refusals):
                self._forget(pending)
                raise not_let_in(self._refused(), self.identity.client, self.pair)
            if status is not None and status.outcome not in RETRY:
                return self._settled(pending, status)
            if status is not None:
                pending.reason = (status.reason or str(status.outcome)).replace("_", " ")
                if status.outcome is Outcome.GAP:
                    return status
                self._messenger.wait(lambda: False, min(until, time.monotonic() + pause))
                pause = min(pause * 2, RETRY_SECONDS_MAX)
            if time.monotonic() >= until:
                self._forget(pending)
                topic, reason = getattr(pending.request, "topic", "") or "the cluster", pending.reason
                if refused := self._refused():
                    reason += f"; {turned_away(refused, self.identity.client, self.pair)}"
                raise Unavailable(word(pending.request), topic, self.timeout_seconds, reason)
            if status is None and self._refused_by(pending):
                pending.retries.restart((pending.retries.proxy + 1) % len(self._peers))
            else:
                pending.retries.fail()
            self._send(pending)

    def _refused_by(self, pending: Asked) -> bool:
        """Whether the proxy that is being asked refuses us."""
        return self._refusals[pending.retries.proxy] is not None

    def _refused(self) -> dict[str, Refusal]:
        """The proxies that refuse us at present."""
        both = zip(self._proxies, self._refusals, strict=True)
        return {proxy: refusal for proxy, refusal in both if refusal is not None}

    def _send(self, pending: Asked) -> None:
        pending.answer = None
        contents = (pending.head, pending.body) if len(pending.body) else pending.head
        peer = self._peers[pending.retries.proxy]
        pending.tokens.append(self._messenger.send(peer, contents, partial(self._answered, pending), retry=False))

    @staticmethod
    def _answered(pending: Asked, _peer: object, contents: Any, frames: Sequence[Any]) -> None:
        try:
            status = decode(contents, frames[0] if frames else None)
        except DecodeError as error:
            pending.reason = str(error)
            return
        if isinstance(status, Status) and (pending.answer is None or pending.answer.outcome in RETRY):
            pending.answer = status

    def _settled(self, pending: Asked, status: Status) -> Status:
        self._forget(pending)
        self._proxy = pending.retries.proxy
        request = pending.request
        if status.outcome is Outcome.REFUSED:
            topic = getattr(request, "topic", "the cluster")
            raise Refused(word(request), topic, status.reason.replace("_", " "))
        if status.outcome is Outcome.DENIED:
            raise denied(request, status, self.pair)
        if status.log and not isinstance(request, Report):
            self._logs[request.topic] = status.log
        return status

    def _forget(self, pending: Asked) -> None:
        for token in pending.tokens:
            self._messenger.forget(token)
        pending.tokens.clear()

    def close(self) -> None:
        """Release the sockets."""
        self._messenger.close()

    def __enter__(self) -> ProxyConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
