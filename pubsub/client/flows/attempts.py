"""Choose the next message of a topic for a handler, count the attempt, and commit its outcome.

A message comes from the service, or from the messages that were put aside. Its attempt ends in one of these ways, each
in one commit:

    handled      the handler's effect, and the position or the end of the waiting message
    failed       the time of the next attempt; after the last attempt it is a dead letter
    put off      the same time, without a failure (`Later`)
    rejected     it is a dead letter (`Reject`)
    taken back   the attempt does not count

The rules are docs/explanation/get.md, G9, and docs/explanation/retries.md, J1 and J4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.handler_errors import described, located, one_line, storable
from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.changes import (
    Change,
    DeadLettered,
    PutAside,
    PutOff,
    Tried,
    WaitingChanged,
    WaitingEnded,
    WaitingTried,
)
from pubsub.client.core.expired import separated
from pubsub.client.core.letters import letter_headers
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outcomes import Later, Reject
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import ALL, KEY, Retry, Waiting, backoff
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.errors import PubsubError, TooLarge
from pubsub.protocol import Position, encode_headers
from pubsub.protocol.names import letters_topic

_log: Final = logging.getLogger("pubsub.client")


@dataclass(slots=True)
class Attempt:
    """One attempt to handle a message.

    Attributes:
        number: number of the attempt, from 1.
        emptied: `Fence.emptied` at the start. If it has changed, the message no longer belongs to this client.
        hold: what waits behind the message if it must wait.
        later: number of earlier attempts that put it off, and are no failures.
        row: the waiting message; None: it comes from the service.
        following: position of the next message if it is here; its first attempt is counted ahead.
        settled: True if the attempt was counted or taken back, and needs no more work.
        replay: number of the replay that the message belongs to.
        batch: the messages of a handler that gets several at once, of which `message` is the first; None: one alone.
    """

    sub: Subscription
    taking: Taking
    message: Message
    number: int
    emptied: int
    hold: str = ALL
    later: int = 0
    row: Waiting | None = None
    following: Position | None = None
    settled: bool = False
    replay: int = 0
    batch: list[Message] | None = None

    @property
    def given(self) -> Message | list[Message]:
        """What the handler gets."""
        return self.message if self.batch is None else self.batch

    @property
    def size(self) -> int:
        """Number of messages that the handler gets."""
        return 1 if self.batch is None else len(self.batch)

    @property
    def failures(self) -> int:
        """Number of failed attempts if this one fails."""
        return self.number - self.later


class Attempts:
    """The attempts of handlers on one session. The lock is held in every call."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self.session, self.gets = session, gets

    # The next message

    def begin(self, sub: Subscription, hold: str, *, first: bool, room: int) -> Attempt | int | None:
        """Count an attempt at the next message.

        Args:
            sub: its subscription.
            hold: what waits behind a message that waits.
            first: True if the call has taken no message yet, so it may raise a loss in front.
            room: most messages that the call may still take.

        Returns:
            The attempt, or the number of messages taken without one; None if there is no message.
        """
        sub.row = None
        if not sub.intent.on:
            return None
        if sub.topic in self.session.core.waiting:
            row = self._waiting_next(sub, hold)
            if row is not None:
                return self._begin_waiting(sub, row, hold)
            if hold == ALL:
                return None
        if not sub.available:
            return None
        self.gets.close_chunk(sub)
        taking = self.plan(sub, room)
        if isinstance(taking, Loss):
            if not first:
                return None  # The next call raises it.
            self.gets.dead_letter_loss(sub, taking)
        assert isinstance(taking, Taking)
        if not taking.pieces:
            self.gets.took(sub, taking, fsynced=self.session.commit(taking.change(sub.topic)))
            return 0
        message = next(iter(Batch(sub.topic, taking.pieces)))
        if sub.cursor.waits(message.position, self.session.now):
            return None
        number, later = sub.cursor.attempt(message.position), sub.cursor.later
        attempt = Attempt(sub, taking, message, number, sub.fence.emptied, hold, later, replay=sub.intent.replay)
        attempt.batch = self.batch_of(attempt)
        if hold == KEY and self.session.core.waiting.holds(sub.topic, message.key):
            return self._queue(attempt)
        return self._begin(attempt, more=attempt.size < room)

    def plan(self, sub: Subscription, room: int) -> Taking | Loss:
        """Plan to take the messages of the next attempt: one, however many the call may take."""
        return sub.take(1, self.session.clock.wall())

    def batch_of(self, attempt: Attempt) -> list[Message] | None:
        """Return the messages of an attempt whose handler gets several at once; None: it gets one."""
        return None

    def _begin(self, attempt: Attempt, *, more: bool) -> Attempt | int:
        """Count an attempt at a message of the service."""
        sub, message, number = attempt.sub, attempt.message, attempt.number
        if self.settles(attempt):
            return 1
        if self._is_worn_out(attempt):
            return 1
        self.session.trying[sub.topic] = ((message.position, number),)
        if not (sub.cursor.counted_ahead and sub.cursor.tried == message.position):
            self.session.commit([Tried(sub.topic, message.position, number)])
        sub.cursor.attempted(message.position, number)
        message.in_attempt(number)
        attempt.following = sub.prefetch.following(attempt.taking) if more else None
        return attempt

    def _is_worn_out(self, attempt: Attempt) -> bool:
        """Return True if the process ended in the handler too often, and the message is a dead letter now."""
        most = self.session.settings.handler_attempts
        if attempt.failures <= most:
            return False
        attempt.number -= 1
        self.dead_letter(attempt, f"the process ended in the handler {most} times")
        return True

    def _waiting_next(self, sub: Subscription, hold: str) -> Waiting | None:
        """Return the waiting message that is due. Messages of the service have every second turn, if they may."""
        waiting, now = self.session.core.waiting, self.session.now
        row = waiting.next(sub.topic, now)
        if row is None or not sub.may_retry:
            return None
        if sub.topic in waiting.served and sub.available and self.gets.is_free(sub, hold, now):
            waiting.served.discard(sub.topic)
            return None
        waiting.served.add(sub.topic)
        return row

    def _begin_waiting(self, sub: Subscription, row: Waiting, hold: str) -> Attempt | int:
        """Count an attempt at a waiting message."""
        session = self.session
        piece = session.store.waiting_piece(row.number)._replace(replay=sub.intent.replay)
        if separated([piece], int(session.clock.wall() * MICROSECONDS))[1]:
            session.commit([WaitingEnded(row.number)])
            session.core.waiting.ended(row)
            self.gets.expired(sub.topic, [piece])
            return 0
        message = next(iter(Batch(sub.topic, [piece])))
        taking = Taking([piece], None, {}, 0, None, 0, 0)
        number = row.attempts + 1
        attempt = Attempt(
            sub, taking, message, number, sub.fence.emptied, hold, row.later, row, replay=sub.intent.replay
        )
        attempt.batch = self.batch_of(attempt)
        if self.settles(attempt) or self._is_worn_out(attempt):
            return 1
        session.core.waiting.trying[row.number] = number
        session.commit([WaitingTried(row.number, number)])
        row.attempts = number
        attempt.message.in_attempt(number)
        sub.row = row
        return attempt

    def _queue(self, attempt: Attempt) -> int | None:
        """Put a message aside behind another one of its key; None: it keeps its place until there is room."""
        attempt.number -= 1
        if not self._has_room(attempt):
            self.session.core.waiting.block(attempt.sub.topic)
            return None
        self._put_aside(attempt, 0.0, attempt.later)
        return 0

    def settles(self, attempt: Attempt) -> bool:
        """Return True if a message was taken without its handler."""
        return False

    # Outcomes

    def changes(self, attempt: Attempt) -> list[Change]:
        """Return the changes that commit with the handler's: its end, and an attempt at the next message."""
        if attempt.row is not None:
            return self.ending(attempt)
        following = attempt.following
        self.session.trying[attempt.sub.topic] = ((attempt.message.position, attempt.number), (following, 1))
        ahead: list[Change] = [Tried(attempt.sub.topic, following, 1)] if following is not None else []
        return [*self.ending(attempt), *ahead]

    def ending(self, attempt: Attempt) -> list[Change]:
        """Return the changes by which a message is taken; `ended` follows the commit."""
        if attempt.row is not None:
            return [WaitingEnded(attempt.row.number)]
        return attempt.taking.change(attempt.sub.topic)

    def ended(self, attempt: Attempt, *, fsynced: bool, result: str = "taken") -> None:
        """Accept the commit of `ending`. `result`: word for the record."""
        if attempt.row is not None:  # The record has it since it was put aside.
            self.session.core.waiting.trying.pop(attempt.row.number, None)
            self.session.core.waiting.ended(attempt.row)
            return
        self.gets.took(attempt.sub, attempt.taking, fsynced=fsynced)
        if self.session.recorder is not None:
            pieces = attempt.taking.pieces
            self.session.recorder.delivered(attempt.sub.topic, pieces, handler=True, result=result)

    def handled(self, attempt: Attempt) -> None:
        """Accept the commit of a handler's transaction."""
        attempt.settled = True
        self.ended(attempt, fsynced=self.session.store.power_safe)
        if attempt.following is not None:
            attempt.sub.cursor.attempted(attempt.following, 1, ahead=True)

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """Handle an exception of the handler, after the rollback.

        Returns:
            1 if the message was put off, or went to the dead letters; otherwise the error is raised.
        """
        topic, message, number, settings = attempt.sub.topic, attempt.message, attempt.number, self.session.settings
        self._untry(attempt)
        if self.decides(attempt, error):
            return 1
        self.session.counters["handler_errors"] += 1
        _log.warning("handler failed on %s of %s, attempt %d: %s", message.id, topic, number, located(error))
        _log.debug("handler failed on %s of %s", message.id, topic, exc_info=error)
        if attempt.failures < settings.handler_attempts:
            first, longest = settings.retry_first_seconds, settings.retry_longest_seconds
            self.put_off(attempt, backoff(attempt.failures, first, longest), attempt.later)
            self.session.let_pass(error)
            raise error
        self.dead_letter(attempt, described(error))
        return 1

    def decides(self, attempt: Attempt, error: Exception) -> bool:
        """Do what a handler asked for by `Later` or `Reject`; False: the exception is another one."""
        if isinstance(error, Later):
            self.session.counters["put_off"] += 1
            self.put_off(attempt, error.seconds, attempt.later + 1)
        elif isinstance(error, Reject):
            self.dead_letter(attempt, error.reason)
        else:
            return False
        return True

    def _untry(self, attempt: Attempt) -> None:
        """Note that the attempt has come to an end, so that an interruption no longer takes it back."""
        if attempt.row is None:
            self.session.trying.pop(attempt.sub.topic, None)
        else:
            self.session.core.waiting.trying.pop(attempt.row.number, None)

    def put_off(self, attempt: Attempt, seconds: float, later: int) -> None:
        """Let a message wait until its next attempt. If the disk refuses, only memory has the time.

        Args:
            seconds: time until then.
            later: number of its attempts that are no failures.
        """
        session = self.session
        try:
            if attempt.row is not None:
                row, due = attempt.row, session.clock.wall() + seconds
                session.commit([WaitingChanged(row.number, attempt.number, later, due, seconds)])
            elif attempt.hold != ALL and self._has_room(attempt):
                self._put_aside(attempt, seconds, later)
                return
            elif seconds or later != attempt.later:
                due = session.clock.wall() + seconds
                session.commit([PutOff(attempt.sub.topic, attempt.message.position, due, seconds, later)])
        except PubsubError as error:
            _log.warning("client %s: %s", session.name, error)
        if attempt.row is not None:
            session.core.waiting.put_off(attempt.row, session.now + seconds, later)
        else:
            attempt.sub.cursor.retry = Retry(attempt.message.position, session.now + seconds, later, met=True)

    def _has_room(self, attempt: Attempt) -> bool:
        return self.session.core.waiting.has_room(_size(attempt.message))

    def _put_aside(self, attempt: Attempt, seconds: float, later: int) -> None:
        """Move a message of the service to the waiting messages."""
        session, sub, message = self.session, attempt.sub, attempt.message
        waiting, now = session.core.waiting, session.now
        number, lane = waiting.next_number(), message.key if attempt.hold == KEY else b""
        aside = PutAside(
            number, sub.topic, message.id, message.publisher, message.counter, message.stamp, message.body,
            message.key, message.header_bytes, message.doubtful, lane, attempt.number, later,
            session.clock.wall() + seconds, seconds,
        )  # fmt: skip
        fsynced = session.commit([*self.ending(attempt), aside])
        self.ended(attempt, fsynced=fsynced, result="later")
        waiting.add(Waiting(number, sub.topic, lane, _size(message), attempt.number, later, now + seconds))

    def uncount(self, attempt: Attempt) -> None:
        """Take back the count of an attempt that was not the handler's fault."""
        sub, session, before = attempt.sub, self.session, attempt.number - 1
        if session.closed or sub.fence.emptied != attempt.emptied:
            return
        change = (
            Tried(sub.topic, attempt.message.position, before)
            if attempt.row is None
            else WaitingTried(attempt.row.number, before)
        )
        try:
            session.commit([change])
        except PubsubError as error:
            _log.warning("client %s: %s", session.name, error)  # The attempt then stays counted.
            return
        if attempt.row is None:
            sub.cursor.attempted(attempt.message.position, before)
        else:
            attempt.row.attempts = before

    def _put_letter(self, letter: DeadLettered, changes: Sequence[Change]) -> bool:
        """Commit changes with a put to the topic of dead letters; False: the outbox has no room, nothing happened."""
        session = self.session
        try:
            with Work(session, lambda: changes, fsync=True) as transaction:
                headers = encode_headers(letter_headers(letter))
                contents = BatchContents([letter.body or b""], [letter.key] if letter.key else (), [headers])
                transaction.put_batches(letters_topic(session.name), [contents])
        except TooLarge as error:
            _log.error("client %s: the dead letter %s stays in its table: %s", session.name, letter.first, error)
            return False
        return True

    def dead_letter(self, attempt: Attempt, error: str) -> None:
        """Move a message to the dead letters."""
        sub, message = attempt.sub, attempt.message
        letter = DeadLettered(
            sub.topic, message.id, message.id, message.publisher, message.counter, message.stamp, message.body,
            storable(error), attempt.failures, self.session.clock.wall(), message.key, message.header_bytes,
        )  # fmt: skip
        changes: Sequence[Change] = [*self.ending(attempt), letter]
        # A letter of the own topic of letters would come back to this handler for ever.
        beside = self.session.settings.dead_letters == "topic" and sub.topic != letters_topic(self.session.name)
        if not beside or not self._put_letter(letter, changes):
            self.session.commit(changes)
        self.ended(attempt, fsynced=True, result="dead_letter")
        self.session.counters["dead_letters"] += 1
        _log.error(
            "%s of %s goes to the dead letters after %d attempts: %s",
            message.id, sub.topic, attempt.failures, one_line(error),
        )  # fmt: skip


def _size(message: Message) -> int:
    return len(message.body) + len(message.key) + len(message.header_bytes)
