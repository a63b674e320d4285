"""Serve calls as one of several workers of a service: the workers are a consumer group of the service's topic.

A call's effect, its reply and its end at the group are one commit. A call of a worker that died is in doubt only if it
was claimed; others are not held up. A call that failed as often as the group allows, one that is rejected, and one
with a deadline that has passed are answered with an error, in one commit with their end.

The rules are docs/explanation/calls.md, X2 and X5, and docs/explanation/groups.md, GR1.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pubsub.base.handler_errors import described, located, one_line
from pubsub.client.arguments import check_count
from pubsub.client.core import calling
from pubsub.client.core.calling import Request
from pubsub.client.core.group_request import Wish, attempt_error, dead_reason
from pubsub.client.core.group_work import Ended
from pubsub.client.core.message import Message
from pubsub.client.core.outcomes import Later, Reject
from pubsub.client.errors import ClaimLost
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.group_processing import AUTO, GroupAttempt, GroupProcessing
from pubsub.client.flows.group_waits import GroupWaits
from pubsub.client.flows.handlers import AsyncHandler, Handler, check_result
from pubsub.client.flows.serving import LOOK_SECONDS, SERVE_MAX, AsyncCallHandler, CallHandler, Replies
from pubsub.client.flows.work import Work
from pubsub.client.flows.worker_pool import on_threads
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, DecodeError, Unavailable
from pubsub.protocol.group_bodies import KEYED, SHARED
from pubsub.protocol.names import service_topic

WORKERS: Final = "workers"
"""Name of the group of a service's workers."""

_log: Final = logging.getLogger("pubsub.client")


class _Over(Exception):
    """The deadline of a call has passed, or its message is no call."""


class GroupServing(GroupProcessing, Replies):
    """The calls of one worker among several.

    Args:
        waits: the calls about groups.
        service: name of the service.
        parts: 1: any worker gets a call. More: the calls of a key are handled one after the other.
        concurrency: most handlers at a time.
        run: awaits a flow; None: the handlers run on threads.
    """

    def __init__(
        self,
        waits: GroupWaits,
        service: str,
        parts: int,
        concurrency: int,
        run: Callable[[Flow[Any]], Awaitable[Any]] | None = None,
    ) -> None:
        calling.check_service(service, 0, parts)
        self.service, self.topic = service, service_topic(service)
        self._wish = Wish(KEYED, parts) if parts > 1 else Wish(SHARED)
        self.served = 0
        member = waits.core.membership(self.topic, WORKERS)
        super().__init__(waits, member, SERVE_MAX, concurrency, AUTO, run)

    def begin_serving(self) -> Flow[None]:
        """Become one of the service's workers.

        Raises:
            Unavailable: the service did not confirm that.
            GroupFull: one client serves it alone.
        """
        yield from self.waits.subscribe(self.topic, WORKERS, self._wish, None, service=True)

    def left(self, most: int | None) -> int:
        """Return the number of calls to take before the next check."""
        self._most = SERVE_MAX if most is None else min(SERVE_MAX, most - self.served)
        return self._most

    def begin(self, *, first: bool) -> GroupAttempt | int | None:
        """Begin a call. The lock is held."""
        self.send_stuck()
        return super().begin(first=first)

    def serve(self, handler: CallHandler, timeout: float | None, most: int | None) -> Flow[int]:
        """Handle calls on threads until none comes for `timeout` seconds; return the number answered."""
        if most is not None:
            check_count("max", most)
        session = self.session
        session.until(timeout)
        yield from self.begin_serving()
        until = float("inf") if timeout is None else session.now + timeout
        while (left := self.left(most)) > 0:
            seconds = max(0.0, min(LOOK_SECONDS, until - session.now))
            try:
                taken = yield from on_threads(session, self, self.wrapped(handler), seconds, left, self._concurrency)
            except Unavailable:  # A worker waits for its service to come back, as long as it has time.
                taken = 0
                if session.now >= until:
                    raise
            if taken:
                until = float("inf") if timeout is None else session.now + timeout
            elif session.now >= until:
                break
        return self.served

    def wrapped(self, handler: CallHandler) -> Handler:
        """Adapt a plain handler to `process`."""

        def handle(message: Message, transaction: Transaction) -> None:
            request = self._request(message)
            found: object = handler(request, transaction)
            check_result(found, awaits=False)
            self.put_result(transaction, request, found)

        return handle

    def wrapped_async(self, handler: AsyncCallHandler) -> AsyncHandler:
        """Adapt a handler with a result to await to `process`."""

        async def handle(message: Message, transaction: Transaction) -> None:
            request = self._request(message)
            found: Any = handler(request, transaction)
            check_result(found, awaits=True)
            if inspect.isawaitable(found):
                found = await found
            self.put_result(transaction, request, found)

        return handle

    def _request(self, message: Message) -> Request:
        try:
            request = calling.read_request(message)
        except DecodeError as error:
            raise Reject(f"not a call: {error.reason}") from None
        if request.deadline is not None and self.session.clock.wall() >= request.deadline:
            raise _Over
        return request

    def handled(self, attempt: GroupAttempt) -> None:
        """Count a call after the commit of its handler's transaction. The lock is held."""
        super().handled(attempt)
        self.served += 1

    def failed_with(self, attempt: GroupAttempt, error: Exception) -> int:
        """Try a call again later, or answer it with the error."""
        final = isinstance(error, _Over | Reject) or attempt.hand.attempts >= self.member.values.attempts
        if isinstance(error, Later) or not final:
            return super().failed_with(attempt, error)
        try:
            request = calling.read_request(attempt.message)
        except DecodeError:
            return super().failed_with(attempt, error)
        outcome, text = calling.FAILED, described(error)
        if isinstance(error, _Over):
            outcome, text = calling.EXPIRED, "the deadline passed before a worker began the call"
        elif isinstance(error, Reject):
            text = error.reason
        else:
            self.session.counters["handler_errors"] += 1
        try:
            self.claim(attempt)
            with self.session.entered():
                self.check(attempt)
                with Work(self.session, partial(self.changes, attempt), fsync=False) as transaction:
                    self.put_reply(transaction, request, outcome, calling.error_body(text))
                self.handled(attempt)
                self.send_due()
        except ClaimLost:
            return self.not_ours(attempt)
        _log.error("call %s of %s is answered with an error: %s", request.id, self.service, one_line(text))
        return 1

    def _failed(self, attempt: GroupAttempt, error: Exception) -> int:
        """Give a call back. The lock is held. Its error is not raised, since it will be the caller's."""
        if isinstance(error, Later):
            return super()._failed(attempt, error)
        session, hand = self.session, attempt.hand
        session.counters["handler_errors"] += 1
        _log.warning("handler failed on call %s of %s, attempt %d: %s", attempt.message.id, self.service,
                     hand.attempts, located(error))  # fmt: skip
        ended = Ended(hand.attempts, error=attempt_error(described(error)))
        if isinstance(error, Reject):  # It is no call: nobody waits for a reply.
            ended.reason = dead_reason(error.reason)
        self.member.failed(hand, ended)
        session.follow(only_send=True)
        return 1


def check_concurrent_group(group: object, concurrency: int) -> None:
    """Check that several handlers of `serve` belong to a group.

    Raises:
        CallerError: they do not.
    """
    if concurrency > 1 and not group:
        raise CallerError("concurrency of serve needs group=True: a single worker handles one call after the other")
