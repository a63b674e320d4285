"""Serve calls: a call's effect, its reply and the position are one commit (docs/clients.md, *Calls that happen once*).

A worker handles the calls of its service as `process` handles messages, one at a time, and puts each reply in the
handler's own transaction. Three cases get an error reply, in one commit with the position:

* The handler failed too often.
* The process ended in the handler too often.
* The deadline has passed; the handler then does not run.

So each call taken has one reply. Its effect happens once or, with an error reply, not at all.

The rules are those of docs/explanation/calls.md, X2 and X5.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pubsub.base.handler_errors import described, located, one_line
from pubsub.client.arguments import check_count
from pubsub.client.batch_contents import BatchContents
from pubsub.client.core import calling
from pubsub.client.core.calling import Request
from pubsub.client.core.message import Message
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import NONE, backoff
from pubsub.client.flows.attempts import Attempt
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.handlers import AsyncHandler, Handler, check_result
from pubsub.client.flows.processing import Processing
from pubsub.client.flows.subscribing import Subscribing
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, DecodeError, PubsubError, StoreFull, TooLarge, Unavailable
from pubsub.protocol import encode_headers
from pubsub.protocol.names import service_topic

CallHandler = Callable[[Request, Transaction], bytes]
"""Type of the handlers of `Client.serve`: a plain function that returns the reply."""

AsyncCallHandler = Callable[[Request, Transaction], Awaitable[bytes] | bytes]
"""Type of the handlers of `AsyncClient.serve`: an `async def` function, or a plain one."""

SERVE_MAX: Final = 1_000
"""Most calls handled between two checks for replies that could not be sent."""

LOOK_SECONDS: Final = 5.0
"""Interval of these checks while no calls come."""

PAUSE_SECONDS: Final = 0.1
"""First pause before a failed call is tried again; it doubles with each try, up to PAUSE_SECONDS_MAX."""

PAUSE_SECONDS_MAX: Final = 5.0

_log: Final = logging.getLogger("pubsub.client")


class TryLater(PubsubError):
    """A handler failed, and its call should be tried again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(seconds)


class Replies:
    """Puts the replies of a worker."""

    session: Session
    _looked = float("-inf")

    def send_stuck(self) -> None:
        """Retry replies that could not be sent in time, also those from before the present start. The lock is held."""
        session, now = self.session, self.session.now
        if now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        for chain in tuple(session.core.outbox.chains.values()):
            if chain.rows and chain.failure is None:
                session.core.finish(chain.topic, now + session.settings.timeout_seconds)
        session.follow()

    def put_reply(self, transaction: Transaction, request: Request, outcome: str, body: bytes) -> None:
        """Put a reply in a transaction.

        Raises:
            StoreFull: the outbox has no room for it.
            TooLarge: it is too large for a batch.
        """
        block = encode_headers(calling.reply_headers(request.id, outcome))
        try:
            transaction.put_batches(request.reply_topic, [BatchContents([body], (), [block])])
        except TooLarge as error:
            if error.name != "outbox_bytes_max":
                raise
            reason = f"no room for a reply: {error}; the call is not taken, and comes again"
            raise StoreFull(self.session.store.path, reason) from None

    def put_result(self, transaction: Transaction, request: Request, found: object) -> None:
        if not isinstance(found, bytes | bytearray | memoryview):
            raise CallerError(f"a handler of serve returns the reply as bytes, not {type(found).__name__}")
        self.put_reply(transaction, request, calling.DONE, bytes(found))


class _Service(Processing, Replies):
    """The work on calls, for plain and for awaited handlers.

    Args:
        service: name of the service.
        part, parts: this worker's share of the calls, by their keys.
    """

    def __init__(
        self, session: Session, gets: Gets, subscribing: Subscribing, service: str, part: int, parts: int
    ) -> None:
        calling.check_service(service, part, parts)
        super().__init__(session, gets)
        self.service, self.topic = service, service_topic(service, part, parts)
        self._subscribing = subscribing
        self.served = 0
        """Number of calls taken, each with a reply."""

    def begin_serving(self) -> Flow[None]:
        """Become the service's worker.

        Raises:
            Unavailable: the service did not confirm that; the reason names another worker if there is one.
        """
        yield from self._subscribing.begin(self.topic, self.session.settings.timeout_seconds)

    def next(self, until: float) -> Flow[Subscription | None]:
        """Wait for a call, and retry replies that could not be sent; None if no call came.

        Raises:
            StoreFull: unsent replies fill the outbox.
        """
        session = self.session
        while True:
            with session.entered():
                self.send_stuck()
                now = session.now
                due = self._due(now)
                if due <= now:
                    return session.core.subscriptions[self.topic]
            left = max(0.0, min(until, now + LOOK_SECONDS, due) - now)
            try:
                sub = yield from self.gets.available(self.topic, left, lambda: self._due(session.now) <= session.now)
            except Unavailable:  # A worker waits for its service to come back, as long as it has time.
                if session.now >= until:
                    raise
                continue
            if sub is not None and sub.cursor.gated(session.now):  # There is no room to put its next call aside.
                yield from self.pause(min(LOOK_SECONDS, until - session.now))
                continue
            if sub is not None or session.now >= until:
                return sub

    def _due(self, now: float) -> float:
        """Return the time at which the next call that was put off is due, if no other one may be taken before."""
        session, sub = self.session, self.session.core.subscriptions.get(self.topic)
        if sub is None or sub.busy or not sub.may_retry:
            return float("inf")
        return session.core.waiting.due(self.topic)

    def left(self, most: int | None) -> int:
        """Return the number of calls to handle before the next check."""
        return SERVE_MAX if most is None else min(SERVE_MAX, most - self.served)

    def pause(self, seconds: float) -> Flow[None]:
        """Wait for some seconds, unless the client closes."""
        session = self.session
        if not session.over:
            yield Wait(lambda: session.over, session.now + seconds)
        session.check_usable()
        session.check_open()

    # Differences from messages

    def settles(self, attempt: Attempt) -> bool:
        """Move a message that is not a call to the dead letters, and answer a call after its deadline with an error."""
        try:
            request = calling.read_request(attempt.message)
        except DecodeError as error:
            attempt.number = attempt.later = 0
            super().dead_letter(attempt, f"not a call: {error.reason}")
            return True
        if request.deadline is None or self.session.clock.wall() < request.deadline:
            return False
        self._answer(attempt, request, calling.EXPIRED, "the deadline passed before a worker began the call")
        return True

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """Handle an exception of the handler: try the call again, or reply with the error. The lock is held."""
        message, number = attempt.message, attempt.number
        self._untry(attempt)
        if self.decides(attempt, error):
            return 1
        self.session.counters["handler_errors"] += 1
        _log.warning("handler failed on call %s of %s, attempt %d: %s", message.id, self.service, number,
                     located(error))  # fmt: skip
        _log.debug("handler failed on call %s of %s", message.id, self.service, exc_info=error)
        if attempt.failures < self.session.settings.handler_attempts:
            seconds = backoff(attempt.failures, PAUSE_SECONDS, PAUSE_SECONDS_MAX)
            if attempt.row is not None:
                self.put_off(attempt, seconds, attempt.later)
            raise TryLater(seconds)
        self.dead_letter(attempt, described(error))
        return 1

    def dead_letter(self, attempt: Attempt, error: str) -> None:
        """Reply with the error. The lock is held."""
        request = calling.read_request(attempt.message)
        self._answer(attempt, request, calling.FAILED, error)
        _log.error("call %s of %s is answered with an error after %d attempts: %s", request.id, self.service,
                   attempt.failures, one_line(error))  # fmt: skip

    def handled(self, attempt: Attempt) -> None:
        """Count a call after the commit of its handler's transaction. The lock is held."""
        super().handled(attempt)
        self.served += 1

    def _answer(self, attempt: Attempt, request: Request, outcome: str, text: str) -> None:
        """Commit an error reply with the position."""
        with Work(self.session, partial(self.ending, attempt), fsync=False) as transaction:
            self.put_reply(transaction, request, outcome, calling.error_body(text))
        self.ended(attempt, fsynced=self.session.store.power_safe)
        self.served += 1


class Serving(_Service):
    """The call `serve` for plain handlers."""

    def serve(self, handler: CallHandler, timeout: float | None, most: int | None) -> Flow[int]:
        """Handle calls until none comes for `timeout` seconds; return the number taken."""
        if most is not None:
            check_count("max", most)
        session = self.session
        session.until(timeout)
        yield from self.begin_serving()
        while (left := self.left(most)) > 0:
            sub = yield from self.next(float("inf") if timeout is None else session.now + timeout)
            if sub is None:
                break
            try:
                self.handle_batch(sub, self.wrapped(handler), left, NONE)
            except TryLater as later:
                yield from self.pause(later.seconds)
        return self.served

    def wrapped(self, handler: CallHandler) -> Handler:
        """Adapt the handler to `process`."""

        def handle(message: Message, transaction: Transaction) -> None:
            request = calling.read_request(message)
            found: object = handler(request, transaction)
            check_result(found, awaits=False)
            self.put_result(transaction, request, found)

        return handle


class AsyncServing(_Service):
    """The call `serve` of an `AsyncClient`, which runs `next` itself."""

    def wrapped(self, handler: AsyncCallHandler) -> AsyncHandler:
        """Adapt the handler to `process`."""

        async def handle(message: Message, transaction: Transaction) -> None:
            request = calling.read_request(message)
            found: Any = handler(request, transaction)
            check_result(found, awaits=True)
            if inspect.isawaitable(found):
                found = await found
            self.put_result(transaction, request, found)

        return handle
