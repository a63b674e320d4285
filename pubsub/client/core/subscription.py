"""Keep a client's state of its subscription to one topic (docs/explanation/get.md, *Places in the stream*).

It has these parts, each with one job and tested alone:

    Intent    the application's wish, and its confirmation by the service
    Cursor    the application's position, and the counters it has taken
    Prefetch  records received after that position and not taken yet
    LongPoll  the last GET, and the time of the next one
    Fence     rejects answers about an earlier state of the subscription
    Losses    losses that the application has not learned of yet

Three places follow each other in the stream: safe ≤ position ≤ after. The cursor keeps the first two. `after` is the
last received position, at the end of the prefetch. Delivery changes nothing at the server, and records in memory only
are fetched again after a crash.

The rule is docs/explanation/get.md, G14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from zlib import crc32

from pubsub.client.core.changes import Change, Confirmed, DeadLettered, Intended, Taken
from pubsub.client.core.chunk import Chunk
from pubsub.client.core.cursor import Cursor
from pubsub.client.core.fence import Fence
from pubsub.client.core.intent import NEVER, Intent
from pubsub.client.core.long_poll import WAIT_SECONDS_MAX, LongPoll
from pubsub.client.core.loss_reports import report_deletion, report_loss
from pubsub.client.core.losses import Losses
from pubsub.client.core.prefetch import Loss, Prefetch, Taking
from pubsub.client.core.retries import Retries
from pubsub.client.core.waiting import Waiting
from pubsub.errors import DataLoss, NotAllowed, PubsubError, Superseded
from pubsub.protocol import Get, Outcome, Position, Records, Status, Subscribe, Unsubscribe, format_position
from pubsub.protocol.deletions import DELETED as TOPIC_DELETED
from pubsub.protocol.names import LATEST, Start

NO_LOG: Final = "no server has their log: it was given up, or this state directory belongs to another cluster"
GIVEN_UP: Final = "the subscription was ended elsewhere; messages that waited behind this place were given up"
UNREADABLE: Final = "the service cannot hand them out any more"
DROPPED: Final = "the topic's setting drop let them go before this client received them"
PURGED: Final = "an operator purged them before this client received them"
"""Reasons of a DataLoss."""

_REASONS: Final = {"dropped": DROPPED, "purged": PURGED}


class Subscription:
    """The subscription of one topic, or the wish to have none.

    Args:
        client: the client ID.
        topic: the topic.
        retries: tries of its requests.
        load: returns a topic's last taken counters by publisher; called once, at first use.

    Attributes:
        intent, cursor, prefetch, poll, fence, losses: its parts.
        failure: error of every call until the application acts on it; a NotAllowed only until the next call asks again.
        until: latest deadline of the calls that wait for messages.
        waiting: number of these calls.
        deadline: time at which the request in flight counts as unanswered; None: no request is in flight.
        answered_at: time of the last answer to a GET.
        trouble: cause of a missing answer.
        drained: time of the last GET that found no records while none were here either.
        chunk: messages of an open iteration; tokens: tokens of requests that may still be answered.
        busy: set while a handler has the next message (a weak reference to its task); no other call takes then.
        joined: the number of the pattern that brought the topic; 0: the application named it.
        row: the waiting message that the handler has; None: it has one of the service.
        side_by_side: while it is busy, several handlers take from it, and each message is put aside first.
        alone: number of the next messages that `process_many` hands over one by one, because a handler failed on them.
    """

    def __init__(self, client: str, topic: str, retries: Retries, load: Callable[[str], dict[str, int]]) -> None:
        self.client, self.topic, self.retries = client, topic, retries
        self.intent = Intent()
        self.cursor = Cursor(partial(load, topic))
        self.prefetch = Prefetch()
        self.poll = LongPoll()
        self.fence = Fence()
        self.losses = Losses()
        self.failure: PubsubError | None = None
        self.until = self.answered_at = self.drained = NEVER
        self.waiting = 0
        self.deadline: float | None = None
        self.trouble = ""
        self.tokens: list[int] = []
        self.chunk: Chunk | None = None
        self.busy: Callable[[], object] | None = None
        self.joined, self.side_by_side, self.alone = 0, False, 0
        self.row: Waiting | None = None

    # The intent

    def intend(self, on: bool, *, fresh: bool = False, start: Start = LATEST, replay: int = 0) -> Change:
        """Return the change that makes an intent durable; `intended` follows the commit."""
        return Intended(self.topic, on, fresh, start, replay, self.joined if on else 0)

    def leave_chunk(self) -> list[Taken]:
        """Return the change that gives back the messages that an open iteration has not yielded.

        Without this change they would count as taken, and be dropped as duplicates if they come again.
        """
        if self.chunk is None:
            return []
        self.chunk.stop()
        return [self.chunk.return_taken(self.topic)] if self.chunk.handed < self.chunk.total else []

    def intended(
        self,
        on: bool,
        *,
        fresh: bool = False,
        start: Start = LATEST,
        replay: int = 0,
        left: Sequence[Taken] = (),
    ) -> None:
        """Accept the commit of `intend` and of the changes from `leave_chunk`; this empties the prefetch."""
        for change in left:
            self.cursor.taken.update(change.counters)
        self.intent.change(on, fresh=fresh, start=start, replay=replay)
        self.failure = None
        self.cursor.forget()
        if fresh and start != LATEST:
            self.cursor.forget_taken()
        self._empty()

    def checking(self, now: float) -> bool:
        """Return True if the service should be asked whether it knows this subscription."""
        return not self.failure and self.deadline is None and self.intent.checking(now)

    def ask(self, number: int, epoch: int) -> Subscribe | Unsubscribe:
        """Build the next transmission of the intent; answers to earlier transmissions no longer count."""
        self.intent.asked = number
        facts = self.client, self.topic, number, epoch, self.fence.log, self.fence.avoid
        if not self.intent.on:
            return Unsubscribe(*facts)
        continues = int(not self.intent.fresh)
        return Subscribe(*facts, start=self.intent.start, continues=continues, pattern=self.joined)

    def confirm(self, status: Status) -> Confirmed:
        """Return the change that makes the answer to the last transmission durable; `confirmed` follows the commit."""
        position = status.position if self.intent.on else None
        return Confirmed(self.topic, self.intent.asked, position, status.log or self.fence.log)

    def confirmed(self, change: Confirmed) -> None:
        """Accept the commit of `confirm`."""
        self.intent.settle(change.number)
        self.fence.answered(change.log)
        self.cursor.begin(change.position)
        self._empty()

    # Asking for records

    @property
    def after(self) -> Position | None:
        """The last received position."""
        return self.prefetch.last if self.prefetch else self.cursor.position

    @property
    def may_retry(self) -> bool:
        """True if waiting messages may be handled: the service has answered since the opening, and nothing failed.

        The first answer tells whether this state directory is a copy, and its waiting messages were handled elsewhere.
        """
        return self.answered_at > NEVER and isinstance(self.failure, NotAllowed | None)

    @property
    def available(self) -> bool:
        """True if a call finds a message or a loss at once."""
        return bool(self.prefetch)

    def wanted(self, now: float) -> bool:
        """Return True if a call waits for messages."""
        return self.waiting > 0 and now < self.until

    def asking(self, now: float) -> bool:
        """Return True if the intent should be sent to the service."""
        return self.failure is None and self.intent.asking(now, wanted=self.wanted(now))

    def hungry(self, now: float, records_max: int, bytes_max: int) -> bool:
        """Return True if a GET for records should be sent.

        That is so if a call waits, or if the last answer brought records and there is room for more.
        """
        if not self.intent.subscribed or self.failure or self.deadline is not None:
            return False
        if not self.prefetch and self.wanted(now):
            return True
        # While a full answer waits for the application, the server may already prepare the next one.
        return self.poll.hungry and self.prefetch.records <= records_max and self.prefetch.size <= bytes_max

    def get(self, epoch: int, records_max: int, bytes_max: int, wait: float) -> Get:
        """Build a GET for the records after the prefetch, which acknowledges the safe position. `wait`: seconds."""
        after, safe = self.after, self.cursor.safe
        return Get(
            self.client, self.topic, safe, self.intent.number, epoch, after if after != safe else None,
            records_max, bytes_max, int(wait * 1000), self.fence.log, self.fence.avoid,
        )  # fmt: skip

    def asked_for_records(self, now: float, wait: float, *, records: bool = True) -> None:
        """Record a sent GET. `records`: it asks for records, and does not only acknowledge."""
        self.poll.sent(now, wait, asks=records)
        self.cursor.acknowledged = self.cursor.safe
        self.deadline = now + wait + self.retries.patience

    def wait_seconds(self, now: float) -> float:
        """Return the seconds for which the server may hold the next GET; 0 if the server has not answered lately."""
        if self.retries.failed or now - self.answered_at > WAIT_SECONDS_MAX:
            return 0.0
        return min(self.poll.wait, max(0.0, self.until - now)) if self.wanted(now) else self.poll.wait

    def parked_beyond(self, until: float, now: float) -> bool:
        """Return True if the server has held the GET in flight for long, and may hold it beyond a call's deadline."""
        return self.deadline is not None and self.poll.held_beyond(until, now)

    def acknowledge_at(self) -> float | None:
        """Return the time to acknowledge the safe position, if no GET does so earlier; None: nothing to acknowledge."""
        if not self.intent.subscribed or self.failure or self.cursor.safe == self.cursor.acknowledged:
            return None
        if self.deadline is not None and self.retries.failed:
            return None  # The service does not answer at present; the next try brings the acknowledgement along.
        return self.poll.acknowledge_at()

    def received(self, status: Status, now: float) -> bool:
        """Take records, a loss or an empty answer to the GET in flight.

        Returns:
            False if the body does not match its header; the answer then does not count.
        """
        if status.outcome is Outcome.SUCCESS:
            body = bytes(status.body)
            if crc32(body) != status.checksum:
                return False
            self.prefetch.add(Records(body), doubtful=bool(status.doubtful), replay=self.intent.replay)
        elif status.outcome is Outcome.LOST and status.first and status.message:
            self.prefetch.lose(Loss(status.first, status.message, status.reason))
        elif status.outcome is Outcome.EMPTY and self.poll.asks and not self.prefetch and self.chunk is None:
            self.drained = self.poll.sent_at
        self.poll.answered(empty=status.outcome is Outcome.EMPTY)
        self.fence.answered(status.log)
        self.trouble, self.deadline, self.answered_at = "", None, now
        self.intent.checked()
        return True

    def stop_prefetching(self) -> None:
        """Ask for no more records, and acknowledge at once."""
        self.deadline = None
        self.poll.stop()

    def timed_out(self) -> None:
        """Give up the request in flight."""
        self.deadline = None
        self.poll.unanswered()

    def fail(self, error: PubsubError) -> None:
        """Stop the delivery by the service: the prefetched records belong to another directory, or are not reliable."""
        self.failure = error
        # An iteration yields its taken messages or gives them back; the later directory gets those, marked doubtful.
        self._empty(but_chunk=isinstance(error, Superseded))

    def _empty(self, *, but_chunk: bool = False) -> None:
        self.prefetch.clear()
        if not but_chunk:
            self.end_chunk()
        self.deadline = None
        self.poll.restart()
        self.intent.checked()
        self.fence.empty()

    def place_lost(self, status: Status, at: float) -> tuple[list[Change], Callable[[], None]]:
        """Handle the loss of the log after the present position: continue at the answer's place, or subscribe anew.

        Returns:
            The changes to commit, and a function to call after the commit.
        """
        gone = status.reason == TOPIC_DELETED
        told, error = report_deletion(self.topic, self.intent.number, self.cursor, status, at)
        if not gone:
            told, error = self._loss_here(NO_LOG, at)
        leaves = gone and self.joined > 0  # The pattern joins the topic when it begins anew.
        known = leaves or status.position is not None
        found = Confirmed(self.topic, self.intent.number, status.position, status.log or self.fence.log)

        def committed() -> None:
            if leaves:
                self.intended(False)
                self.joined, self.trouble = 0, ""
            if known:
                self.confirmed(found)
            else:
                self.intended(True, fresh=True)
            self.losses.add(error)

        changes: list[Change] = [self.intend(False)] if leaves else []
        return [*changes, found if known else self.intend(True, fresh=True), told], committed

    def ended_elsewhere(self, at: float) -> tuple[DeadLettered, DataLoss] | None:
        """Return the loss of the messages that waited when another process ended this subscription.

        Returns:
            The change to commit with the next intent, and the error to raise once that is confirmed. None if the
            subscription was not ended, or a call has raised that already: its error has a traceback.
        """
        if isinstance(self.failure, Superseded) and self.failure.reason and self.failure.__traceback__ is None:
            return self.given_up(at)
        return None

    def given_up(self, at: float) -> tuple[DeadLettered, DataLoss]:
        """Return the loss of the messages that waited when the subscription was ended elsewhere."""
        return self._loss_here(GIVEN_UP, at)

    def _loss_here(self, reason: str, at: float) -> tuple[DeadLettered, DataLoss]:
        """Return the dead letter and the error of a loss of the records after the safe position."""
        place = format_position(self.cursor.safe)
        return report_loss(self.topic, place, place, reason, at)

    # Taking

    def unconfirmed_since(self, started: float) -> bool:
        """Return True if a call that began at `started` has no evidence about the service."""
        return bool(self.retries.failed) or (
            self.answered_at < started and started - self.answered_at > WAIT_SECONDS_MAX
        )

    def take(self, records_max: int, wall: float = 0.0) -> Taking | Loss:
        """Plan to take the next `records_max` records; nothing changes until `took`.

        Duplicates are left out, and so are records with a time to live that has ended at `wall` (seconds since 1970).
        """
        taking = self.prefetch.take(records_max, self.cursor.taken)
        if self.prefetch.headed and isinstance(taking, Taking):
            taking.pass_expired(wall)
        return taking

    def took(self, taking: Taking) -> None:
        """Accept the commit of a taking."""
        self.prefetch.took(taking)
        if taking.position is not None:
            self.cursor.reach(taking.position, taking.counters)
            self.cursor.attempted(None, 0)

    def dead_letter(self, loss: Loss, at: float) -> tuple[list[Change], DataLoss]:
        """Return the changes to continue after a loss, and the error to raise once; `buried` follows the commit."""
        first, last = format_position(loss.first), format_position(loss.last)
        letter, error = report_loss(self.topic, first, last, _REASONS.get(loss.reason, UNREADABLE), at)
        return [Taken(self.topic, loss.last, {}), letter], error

    def dead_lettered(self, loss: Loss, error: DataLoss) -> None:
        """Accept the commit of `bury`."""
        self.prefetch.pass_loss()
        self.cursor.reach(loss.last, {})
        self.losses.add(error)

    # Losses

    @property
    def has_news(self) -> bool:
        """True if the next call must raise a loss.

        A loss of the whole subscription is raised only after the subscription is made again, for two reasons:

        * The service decides the new start. The application may rely on receiving all messages put after the error, so
          an earlier error would let it put messages before that start.
        * After an earlier error, a process that ends in between would make the subscription once more.
        """
        return self.losses.waiting and not self.remaking

    @property
    def remaking(self) -> bool:
        """True while the subscription is made anew, unless only the application can correct its failure."""
        return self.intent.on and not self.intent.settled and isinstance(self.failure, NotAllowed | None)

    # Handing out one by one

    def begin_chunk(self, taking: Taking) -> Chunk:
        """Take messages, at least one, for an iteration that yields them one by one; the rest may go back."""
        before = {publisher: self.cursor.taken.get(publisher, 0) for publisher in taking.counters}
        self.chunk = Chunk(taking.pieces, self.cursor.position, taking.position, before)
        return self.chunk

    def end_chunk(self) -> None:
        """Stop the iteration; its taken messages stay taken."""
        if self.chunk is not None:
            self.chunk.stop()
            self.chunk = None

    def taken_returned(self, chunk: Chunk, change: Taken) -> None:
        """Accept the commit of the change from `Chunk.return_taken`."""
        if not isinstance(self.failure, Superseded):  # Otherwise the messages belong to another directory now.
            self.prefetch.return_taken(chunk.rest)
        self.cursor.reach(change.position, change.counters)
        self.end_chunk()

    def synced(self) -> None:
        """Record an fsync of all commits so far: all but an open chunk may be acknowledged."""
        self.cursor.sync(self.chunk.before if self.chunk is not None else self.cursor.position)


def asleep(sub: Subscription, now: float) -> bool:
    """Return True if a subscription needs nothing before the next call or answer."""
    return not (
        sub.deadline is not None
        or sub.wanted(now)
        or sub.asking(now)
        or sub.checking(now)
        or sub.acknowledge_at() is not None
    )
