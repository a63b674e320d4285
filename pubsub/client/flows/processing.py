"""Handing messages to a handler: its effect, its puts and the position in one commit, or nothing of it.

An attempt is counted before the handler runs, so that a message that ends the process every time is found out. It is
taken back where the handler was at no fault: it was cancelled or interrupted (Ctrl-C, and whatever else is no
`Exception`), is of a kind that a call does not run, or the disk failed. `Processing` runs plain functions on the thread
that calls; `pubsub.client.flows.awaiting` builds on it and runs what has to be awaited.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import apsw

from pubsub.client.arguments import check_count
from pubsub.client.core.changes import Buried, Change, Tried
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.turns import Turns, check_topics
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused, PubsubError, StorageError

Handler = Callable[[Message, Transaction], None]
"""What `Client.process` calls: a plain function, whose result is not looked at."""

AsyncHandler = Callable[[Message, Transaction], Awaitable[None] | None]
"""What `AsyncClient.process` calls: an `async def` function, or a plain one."""

PROCESS_MAX: Final = 1_000
"""Messages that `process` takes at most where the caller names no number."""

HELD_SECONDS: Final = 0.01
"""Puts of a handler wait so long for the fsync that covers those of the next messages too."""

DISK_ERRORS: Final = (StorageError, apsw.FullError, apsw.IOError, apsw.CorruptError)
"""What comes out of a handler where the disk failed, not the handler."""

_log: Final = logging.getLogger("pubsub.client")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One message that is about to be handled.

    Attributes:
        number: which attempt it is, from 1.
        emptied: how often the prefetch had been thrown away; where it was since, the message is not ours any more.
    """

    sub: Subscription
    taking: Taking
    message: Message
    number: int
    emptied: int


def check_handler(handler: object, *, awaits: bool) -> None:
    """See that calling a handler runs it, as far as that can be seen before it is called.

    Args:
        handler: a function, a partial, or an object with `__call__`.
        awaits: whether what it returns is awaited.

    Raises:
        CallerError: it cannot be called; HandlerMisused: nothing of it would run.
    """
    if not callable(handler):
        raise CallerError(f"handler is a function of (message, transaction), not {type(handler).__name__}")
    called = getattr(type(handler), "__call__", None)  # noqa: B004 - its kind is looked at, not whether it is there.
    if inspect.isgeneratorfunction(handler) or inspect.isgeneratorfunction(called):
        raise HandlerMisused("handler is a generator function (it has a yield), so a call runs nothing of it")
    if inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(called):
        raise HandlerMisused("handler is an async generator function (it has a yield), so a call runs nothing of it")
    if not awaits and (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)):
        raise HandlerMisused("handler is an async def function, which Client cannot await; AsyncClient.process does")


def check_result(result: object, *, awaits: bool) -> None:
    """See that a handler ran when it was called; what did not is closed.

    Raises:
        HandlerMisused: it has only returned what is still to run.
    """
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HandlerMisused("the handler returned a generator, so nothing of it has run; it was rolled back")
    if not awaits and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise HandlerMisused(
            "the handler returned an awaitable, which Client cannot await, so it was rolled back; "
            "AsyncClient.process awaits it"
        )


class Processing:
    """The call `process` on one session, for handlers that are plain functions."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self.session, self.gets = session, gets

    def process(self, topics: str | Sequence[str], handler: Handler, timeout: float | None, most: int) -> Flow[int]:
        """Hand up to `most` messages to a handler, each in a transaction of its own; how many were taken."""
        check_handler(handler, awaits=False)
        check_count("max", most)
        named, started = check_topics(topics), self.session.now
        until = self.session.until(timeout, started)
        while True:
            ready = yield from self.gets.first_of(named, started, until)
            turns = Turns(self.gets, named, ready, most)
            for sub, number in turns:
                turns.taken += self.handle_batch(sub, handler, number)
            if turns.taken or not ready:
                return turns.taken

    def handle_batch(self, sub: Subscription, handler: Handler, most: int) -> int:
        """What is here, up to `most` messages; 0 where all of it had been taken before."""
        session, taken = self.session, 0
        try:
            while taken < most:
                with session.entered():
                    found = self.begin(sub, first=not taken)
                    if found is None:
                        break
                    taken += found if isinstance(found, int) else self._handle(found, handler, more=taken + 1 < most)
                    self.send_due()
        finally:
            self.send_held()
        return taken

    def begin(self, sub: Subscription, *, first: bool) -> Attempt | int | None:
        """Count an attempt at the next message. The lock is held.

        Returns:
            The attempt, or how many messages were taken without one; None where there is none.
        """
        if not sub.on or not sub.available:
            return None
        self.gets.close_chunk(sub)
        taking = sub.take(1)
        if isinstance(taking, Loss):
            if not first:
                return None  # The next call raises it.
            self.gets.bury_loss(sub, taking)
        assert isinstance(taking, Taking)
        if not taking.pieces:
            self.gets.took(sub, taking, fsynced=self.session.commit(taking.change(sub.topic)))
            return 0
        message = next(iter(Batch(sub.topic, taking.pieces)))
        if self.settles(sub, taking, message):
            return 1
        most = self.session.settings.handler_attempts
        number = sub.attempt(message.position)
        if number > most:
            attempt = Attempt(sub, taking, message, most, sub.emptied)
            self.bury(attempt, f"the process ended in the handler {most} times")
            return 1
        self.session.trying[sub.topic] = ((message.position, number),)
        if not (sub.counted_ahead and sub.tried == message.position):
            self.session.commit([Tried(sub.topic, message.position, number)])
        sub.attempted(message.position, number)
        return Attempt(sub, taking, message, number, sub.emptied)

    def settles(self, sub: Subscription, taking: Taking, message: Message) -> bool:
        """Whether a message was taken without its handler. The lock is held."""
        return False

    def _handle(self, attempt: Attempt, handler: Handler, *, more: bool) -> int:
        following = attempt.sub.prefetch.following(attempt.taking) if more else None
        try:
            with Work(self.session, lambda: self.changes(attempt, following), fsync=False) as transaction:
                try:
                    result: object = handler(attempt.message, transaction)  # type: ignore[func-returns-value]
                    check_result(result, awaits=False)
                except (*DISK_ERRORS, HandlerMisused):
                    raise
                except Exception as error:
                    raise _HandlerFailed(error) from error
        except _HandlerFailed as failed:
            return self.failed(attempt, failed.error)
        except BaseException as error:
            # An error of the handler. An exception that a signal raised behind the handler may come after the commit.
            misused = isinstance(error, HandlerMisused) or not isinstance(error, Exception)
            if isinstance(error, StorageError) or (misused and self.session.passes(error)):
                self.uncount(attempt)
            raise
        self.handled(attempt, following)
        return 1

    def changes(self, attempt: Attempt, following: Any) -> list[Change]:
        """What is committed with the handler's own: the position, and an attempt at the message behind it."""
        self.session.trying[attempt.sub.topic] = ((attempt.message.position, attempt.number), (following, 1))
        ahead: list[Change] = [Tried(attempt.sub.topic, following, 1)] if following is not None else []
        return [*attempt.taking.change(attempt.sub.topic), *ahead]

    def handled(self, attempt: Attempt, following: Any) -> None:
        """The handler's transaction is committed. The lock is held."""
        sub = attempt.sub
        self.gets.took(sub, attempt.taking, fsynced=self.session.settings.power_safe)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True)
        if following is not None:
            sub.attempted(following, 1, ahead=True)

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """The handler raised, and its transaction is rolled back. The lock is held.

        Returns:
            1 where the message went to the dead letters; else the error is raised.
        """
        topic, message, number = attempt.sub.topic, attempt.message, attempt.number
        self.session.counters["handler_errors"] += 1
        self.session.trying.pop(topic, None)
        _log.warning("handler failed on %s of %s, attempt %d: %r", message.id, topic, number, error)
        if number < self.session.settings.handler_attempts:
            self.session.let_pass(error)
            raise error
        self.bury(attempt, f"{type(error).__name__}: {error}")
        return 1

    def uncount(self, attempt: Attempt) -> None:
        """The attempt was not the handler's fault and does not count. The lock is held."""
        sub, session = attempt.sub, self.session
        if session.closed or sub.emptied != attempt.emptied:
            return
        try:
            session.commit([Tried(sub.topic, attempt.message.position, attempt.number - 1)])
        except PubsubError as error:
            _log.warning("client %s: %s", session.name, error)  # It counts, then.
            return
        sub.attempted(attempt.message.position, attempt.number - 1)

    def bury(self, attempt: Attempt, error: str) -> None:
        """Take a message to the dead letters. The lock is held."""
        sub, message, number = attempt.sub, attempt.message, attempt.number
        letter = Buried(
            sub.topic, message.id, message.id, message.publisher, message.counter, message.stamp, message.body, error,
            number, self.session.clock.wall(), message.key, message.header_bytes,
        )  # fmt: skip
        self.session.commit([*attempt.taking.change(sub.topic), letter])
        self.gets.took(sub, attempt.taking, fsynced=True)
        if self.session.recorder is not None:
            self.session.recorder.delivered(sub.topic, attempt.taking.pieces, handler=True, result="dead_letter")
        _log.error("%s of %s goes to the dead letters after %d attempts: %s", message.id, sub.topic, number, error)

    def send_due(self) -> None:
        """Send what is due, and what handlers put once it has waited for long enough. The lock is held."""
        session = self.session
        if session.held_since is not None and session.now - session.held_since >= HELD_SECONDS:
            session.sync()
        session.send()

    def send_held(self) -> None:
        """Fsync what handlers put, and send it; where the disk refuses, the next fsync does it."""
        session = self.session
        if session.over or (session.recorder is None and session.held_since is None):
            return
        with suppress(CallerError), session.entered():  # The client was closed, or one of its steps cut off, meanwhile.
            if session.recorder is not None:
                session.recorder.flush()
            if session.held_since is not None:
                try:
                    session.sync()
                except StorageError as error:
                    _log.warning("client %s: %s", session.name, error)
                session.follow()


class _HandlerFailed(Exception):
    """Carries a handler's exception out of the transaction that it rolls back."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
