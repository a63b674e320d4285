"""Pass messages to a handler: its effect, its puts and the position are one commit, or nothing happens.

An attempt is counted before the handler runs, so that a message that always ends the process is detected. The count is
taken back if the handler was not at fault:

* A cancellation or an interrupt ended it: Ctrl-C, or any other exception that is not an `Exception`.
* The handler is of a kind that cannot run.
* The disk failed.

A message is in hand until its handler returns. During that time other calls on its topic wait, and calls on other
topics continue.

The rules are those of docs/explanation/get.md, G8 and G9; docs/explanation/looking-back.md, Z3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final
from weakref import ref

from pubsub.client.arguments import check_count
from pubsub.client.core.changes import Change
from pubsub.client.core.outcomes import Later, Reject
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import ALL, check_hold
from pubsub.client.flows.apart import apart
from pubsub.client.flows.attempts import Attempt, Attempts
from pubsub.client.flows.awaiting import HandlerTransaction
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.handler_run import HandlerRun, NotOurs
from pubsub.client.flows.handlers import ONE, AsyncHandler, check_handler
from pubsub.client.flows.turns import TURN_MAX, Turns, check_topics
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, Interrupted

PROCESS_MAX: Final = 1_000
"""Most messages that `process` takes if the caller names no number."""

_log: Final = logging.getLogger("pubsub.client")


class Processing(Attempts, HandlerRun[Attempt]):
    """The call `process` on one session, for plain handlers and for handlers with an awaited result.

    Attributes:
        turn: most messages of one topic before the next topic has its turn.
        takes: the parameters of its handlers.
    """

    turn, takes = TURN_MAX, ONE

    def process(
        self,
        topics: str | Sequence[str],
        handler: Callable[[Any, Transaction], None],
        timeout: float | None,
        most: int,
        hold: str = ALL,
    ) -> Flow[int]:
        """Pass up to `most` messages to a handler, each in its own transaction; return the number taken."""
        check_handler(handler, awaits=False, takes=self.takes)
        check_count("max", most)
        check_hold(hold)
        named, started = check_topics(topics), self.session.now
        until = self.session.until(timeout, started)
        while True:
            ready = yield from self.gets.first_of(named, started, until, hold)
            turns = Turns(self.gets, named, ready, most, hold, self.turn)
            for sub, number in turns:
                turns.taken += self.handle_batch(sub, handler, number, hold)
            if turns.taken or not ready:
                return turns.taken

    def handle_batch(
        self, sub: Subscription, handler: Callable[[Any, Transaction], None], most: int, hold: str = ALL
    ) -> int:
        """Pass up to `most` messages that are here to a plain handler; 0 if all of them are duplicates."""
        running = self.batch(sub, handler, most, _breathe, awaits=False, hold=hold)
        try:
            running.send(None)
        except StopIteration as stop:
            taken: int = stop.value
            return taken
        raise AssertionError("a plain handler awaits nothing")

    async def batch(
        self,
        sub: Subscription,
        handler: AsyncHandler,
        most: int,
        breathe: Callable[[], Awaitable[None]],
        *,
        awaits: bool,
        hold: str = ALL,
    ) -> int:
        """Pass up to `most` messages that are here to a handler; 0 if all of them are duplicates.

        Args:
            handler: a plain function, or one with a result to await.
            breathe: awaited between two messages.
            awaits: True if a task of the event loop runs it and may await; otherwise this thread runs it.
            hold: what waits behind a message that waits.
        """
        held_by = current_holder(awaits=awaits)
        session = self.session
        ours, taken, hand = ref(held_by), 0, InHand()
        try:
            while taken < most:
                await apart(session, partial(self._next, hand, sub, ours, hold, taken, most))
                found = hand.found
                if found is None:
                    break
                if isinstance(found, int):
                    taken += found
                    continue
                taken += await self.run(found, handler, awaits=awaits)
                if awaits:
                    await apart(session, partial(self._let_go, sub))
                    await breathe()
        finally:
            if sub.busy is ours:  # An exception came at any point since the message was taken in hand.
                await apart(session, partial(self._give_up, sub, hand.found))
            elif taken:
                session.tell_waiting()
            self.send_held()
        return taken

    def _next(self, hand: InHand, sub: Subscription, ours: ref[Any], hold: str, taken: int, most: int) -> None:
        """Let the previous message go, and take the next one in hand."""
        with self.session.entered():
            if sub.busy is ours:  # From the previous message.
                sub.busy = None
                self.send_due()
            hand.found = None if sub.busy else self.begin(sub, hold, first=not taken, room=most - taken)
            if isinstance(hand.found, Attempt):
                sub.busy = ours

    def _give_up(self, sub: Subscription, found: Attempt | int | None) -> None:
        """Let a message go after an exception, which may have come at any point."""
        try:
            if isinstance(found, Attempt) and not found.settled:
                self._uncount(found)
        finally:
            sub.busy = None  # Before any call: another exception may come within one.
            self._let_go(sub)

    def _let_go(self, sub: Subscription) -> None:
        """Mark that no message of the topic is in hand any more."""
        session = self.session
        session.handlers.discard(get_ident())  # An exception may have come just before the handler's own discard.
        with session.lock:
            sub.busy = None
            if not session.is_cut_off:
                with suppress(Interrupted), session.entered():
                    self.send_due()
            session.tell_waiting()

    def transaction_of(self, attempt: Attempt) -> HandlerTransaction:
        """Make the transaction of a handler."""
        sub = attempt.sub

        def changes() -> Sequence[Change]:
            if sub.intent.on and sub.intent.replay != attempt.replay:
                raise NotOurs
            if sub.fence.emptied != attempt.emptied or not sub.intent.on:
                raise CallerError(f"the subscription to {sub.topic} changed while a message was handled; rolled back")
            return self.changes(attempt)

        return HandlerTransaction(self.session, changes)

    def not_ours(self, attempt: Attempt) -> int:
        """Forget a message after a seek; it comes again if the seek's start includes it."""
        attempt.settled = True
        self._let_go(attempt.sub)
        return 0

    def failed_with(self, attempt: Attempt, error: Exception) -> int:
        """Handle the handler's error as `failed`, after the rollback, if the message still belongs to this client."""
        with self.session.lock:
            if self.session.is_cut_off:
                raise error
            if attempt.sub.fence.emptied != attempt.emptied:
                if not isinstance(error, Later | Reject):
                    raise error
                attempt.settled = True  # What it asked for concerns a message that this client has no more.
                self._let_go(attempt.sub)
                return 0
            with self.session.entered():
                attempt.settled = True
                return self.failed(attempt, error)

    def _uncount(self, attempt: Attempt) -> None:
        with self.session.lock:
            if not self.session.is_cut_off:
                with suppress(Interrupted), self.session.entered():
                    self.uncount(attempt)


class InHand:
    """The message that a call has in hand. It is set within the step that begins it, as an exception may come behind.

    Attributes:
        found: the attempt, or the number of messages taken without one; None: there is none.
    """

    def __init__(self) -> None:
        self.found: Attempt | int | None = None


class Hand:
    """Mark of the thread that has a message in hand.

    Args:
        thread: the thread's number.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread


def current_holder(*, awaits: bool) -> object:
    """Return the mark of the present task, or of the present thread, which has a message in hand."""
    if awaits:
        from asyncio import current_task  # noqa: PLC0415  a client on threads does not load asyncio

        return current_task()
    return Hand(get_ident())


async def _breathe() -> None:
    """Do nothing: unlike coroutines, other threads run anyway."""
