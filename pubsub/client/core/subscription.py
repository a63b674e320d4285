"""What one client knows of its subscription to one topic (docs/architecture.md, *Subscribe and get*).

It is composed of parts, each with one job and tested alone:

    Intent    what the application wants, and what of that the service has confirmed
    Cursor    where the application stands, and what it has taken
    Prefetch  what was received behind that and not taken yet
    LongPoll  the GET that went out last, and when the next one goes
    Fence     which answers are not about the subscription as it is now
    Losses    what the application is still to be told of

Three places follow each other in the stream: safe ≤ position ≤ after. The first two are the cursor's. Everything up to
`after` was received; the prefetch ends there. Handing out changes nothing at the server, and what is in memory only is
fetched again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

from pubsub.client.core.changes import Buried, Change, Confirmed, Intended, Taken
from pubsub.client.core.chunk import Chunk
from pubsub.client.core.cursor import Cursor
from pubsub.client.core.fence import Fence
from pubsub.client.core.intent import NEVER, Intent
from pubsub.client.core.long_poll import WAIT_SECONDS_MAX, LongPoll
from pubsub.client.core.losses import Losses
from pubsub.client.core.prefetch import Loss, Prefetch, Taking
from pubsub.client.core.retries import Retries
from pubsub.errors import DataLoss, NotAllowed, PubsubError, Superseded
from pubsub.protocol import Get, Outcome, Position, Records, Status, Subscribe, Unsubscribe, format_position
from pubsub.protocol.names import LATEST, Start


class Subscription:
    """One topic's subscription, or the wish not to have one.

    Args:
        client: the client ID.
        topic: the topic.
        retries: of its requests.
        load: gives a topic's last counters taken, by publisher; asked once, when they are needed.

    Attributes:
        intent, cursor, prefetch, poll, fence, losses: its parts.
        failure: what every call raises until the user does something about it; NotAllowed: until the next call asks.
        until: the latest deadline of the calls that wait for messages; waiting: how many do.
        deadline: when the request in flight counts as unanswered; None: there is none.
        heard: when the service last answered a GET; trouble: why it did not.
        drained: when the last GET was sent that found nothing, with nothing here either.
        tokens: of the requests that may still be answered.
        chunk: what an iteration is handing out.
        busy: the next message is in the hand of a handler that may be awaiting (a weak reference to its task); nobody
            else takes meanwhile.
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
        self.until = self.heard = self.drained = NEVER
        self.waiting = 0
        self.deadline: float | None = None
        self.trouble = ""
        self.tokens: list[int] = []
        self.chunk: Chunk | None = None
        self.busy: Callable[[], object] | None = None

    # The intent

    def intend(self, on: bool, *, fresh: bool = False, start: Start = LATEST) -> Change:
        """What makes an intent durable; `intended` follows the commit."""
        return Intended(self.topic, on, fresh, start)

    def leave_chunk(self) -> list[Taken]:
        """What takes back all that an open iteration has not handed out: else it is dropped when it comes once more."""
        if self.chunk is None:
            return []
        self.chunk.stop()
        return [self.chunk.give_back(self.topic)] if self.chunk.handed < self.chunk.total else []

    def intended(self, on: bool, *, fresh: bool = False, start: Start = LATEST, left: Sequence[Taken] = ()) -> None:
        """The commit of `intend`, and of what `leave_chunk` gave, succeeded: what was prefetched is gone with it."""
        for change in left:
            self.cursor.taken.update(change.counters)
        self.intent.change(on, fresh=fresh, start=start)
        self.failure = None
        self.cursor.forget()
        if start != LATEST:
            self.cursor.forget_taken()
        self._empty()

    def checking(self, now: float) -> bool:
        """Whether the service is to be asked if it knows this subscription."""
        return not self.failure and self.deadline is None and self.intent.checking(now)

    def ask(self, number: int, epoch: int) -> Subscribe | Unsubscribe:
        """The next transmission of the intent; answers to those before count no more."""
        self.intent.asked = number
        facts = self.client, self.topic, number, epoch, self.fence.log, self.fence.avoid
        if not self.intent.on:
            return Unsubscribe(*facts)
        return Subscribe(*facts, start=self.intent.start, continues=int(not self.intent.fresh))

    def confirm(self, status: Status) -> Confirmed:
        """What makes the answer to the last transmission durable; `confirmed` follows the commit."""
        position = status.position if self.intent.on else None
        return Confirmed(self.topic, self.intent.asked, position, status.log or self.fence.log)

    def confirmed(self, change: Confirmed) -> None:
        """The commit of `confirm` succeeded."""
        self.intent.settle(change.number)
        self.fence.answered(change.log)
        self.cursor.begin(change.position)
        self._empty()

    # Asking for records

    @property
    def after(self) -> Position | None:
        """The last position that was received."""
        return self.prefetch.last if self.prefetch else self.cursor.position

    @property
    def available(self) -> bool:
        """Whether a call finds something at once."""
        return bool(self.prefetch)

    def wanted(self, now: float) -> bool:
        """Whether a call waits for messages."""
        return self.waiting > 0 and now < self.until

    def asking(self, now: float) -> bool:
        """Whether the intent is to be asked for."""
        return self.failure is None and self.intent.asking(now, wanted=self.wanted(now))

    def hungry(self, now: float, records_max: int, bytes_max: int) -> bool:
        """Whether a GET is to be sent: somebody waits, or the last answer brought something and there is room."""
        if not self.intent.subscribed or self.failure or self.deadline is not None:
            return False
        if not self.prefetch and self.wanted(now):
            return True
        # While a full answer waits here to be handed out, the next one may already be made at the server.
        return self.poll.hungry and self.prefetch.records <= records_max and self.prefetch.size <= bytes_max

    def get(self, epoch: int, records_max: int, bytes_max: int, wait: float) -> Get:
        """A GET for what comes after the prefetch; it acknowledges what is safe. `wait`: seconds."""
        after, safe = self.after, self.cursor.safe
        return Get(
            self.client, self.topic, safe, self.intent.number, epoch, after if after != safe else None,
            records_max, bytes_max, int(wait * 1000), self.fence.log, self.fence.avoid,
        )  # fmt: skip

    def asked_for_records(self, now: float, wait: float, *, records: bool = True) -> None:
        """A GET went out. `records`: it asks for some, and does not only acknowledge."""
        self.poll.sent(now, wait, asks=records)
        self.cursor.acknowledged = self.cursor.safe
        self.deadline = now + wait + self.retries.patience

    def wait_seconds(self, now: float) -> float:
        """How long the server may hold the next GET; not at all where it is not known to be there."""
        if self.retries.failed or now - self.heard > WAIT_SECONDS_MAX:
            return 0.0
        return min(self.poll.wait, max(0.0, self.until - now)) if self.wanted(now) else self.poll.wait

    def parked_beyond(self, until: float, now: float) -> bool:
        """Whether the GET in flight was held at the server for long, and may be for longer than a call waits."""
        return self.deadline is not None and self.poll.held_beyond(until, now)

    def acknowledge_at(self) -> float | None:
        """When what is safe is to be acknowledged, where no GET does it before; None: it is."""
        if not self.intent.subscribed or self.failure or self.cursor.safe == self.cursor.acknowledged:
            return None
        if self.deadline is not None and self.retries.failed:
            return None  # The service does not answer at present; the next try brings the acknowledgement along.
        return self.poll.acknowledge_at()

    def received(self, status: Status, now: float) -> bool:
        """Records, a loss or nothing came for the GET in flight.

        Returns:
            False where the body is not what its header says; it counts as no answer.
        """
        if status.outcome is Outcome.SUCCESS:
            body = bytes(status.body)
            if crc32(body) != status.checksum:
                return False
            self.prefetch.add(Records(body), doubtful=bool(status.doubtful))
        elif status.outcome is Outcome.LOST and status.first and status.message:
            self.prefetch.lose(Loss(status.first, status.message))
        elif status.outcome is Outcome.EMPTY and self.poll.asks and not self.prefetch and self.chunk is None:
            self.drained = self.poll.sent_at
        self.poll.answered(empty=status.outcome is Outcome.EMPTY)
        self.fence.answered(status.log)
        self.trouble, self.deadline, self.heard = "", None, now
        self.intent.checked()
        return True

    def stop_prefetching(self) -> None:
        """Ask for nothing more, and acknowledge at once."""
        self.deadline = None
        self.poll.stop()

    def timed_out(self) -> None:
        """The request in flight was not answered in its time."""
        self.deadline = None
        self.poll.unanswered()

    def fail(self, error: PubsubError) -> None:
        """The service hands out nothing more to this client: what was prefetched is another's, or not to be trusted."""
        self.failure = error
        # An iteration hands out what it has taken, or gives it back: the later directory gets that, with the mark.
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
        """What was to come next is gone with its log. It goes on where the answer says, or is made anew.

        Returns:
            What makes that durable, and what is to be done when it is.
        """
        place = format_position(self.cursor.safe)
        error = DataLoss(self.topic, place, place, "the log was given up; what followed in it is gone")
        letter = Buried(self.topic, place, place, "", 0, 0, None, error.reason, 0, at)
        known = status.position is not None
        found = Confirmed(self.topic, self.intent.number, status.position, status.log or self.fence.log)

        def committed() -> None:
            if known:
                self.confirmed(found)
            else:
                self.intended(True, fresh=True)
            self.losses.add(error)

        return [found if known else self.intend(True, fresh=True), letter], committed

    # Taking

    def unheard_since(self, started: float) -> bool:
        """Whether a call that began then can say nothing about the service."""
        return bool(self.retries.failed) or (self.heard < started and started - self.heard > WAIT_SECONDS_MAX)

    def take(self, records_max: int) -> Taking | Loss:
        """What the next `records_max` records are, without those taken before; nothing changes until `took`."""
        return self.prefetch.take(records_max, self.cursor.taken)

    def took(self, taking: Taking) -> None:
        """The commit of a taking succeeded."""
        self.prefetch.took(taking)
        if taking.position is not None:
            self.cursor.reach(taking.position, taking.counters)
            self.cursor.attempted(None, 0)

    def bury(self, loss: Loss, at: float) -> tuple[list[Change], DataLoss]:
        """What goes on behind a loss; `buried` follows the commit, and the error is for the user, once."""
        first, last = format_position(loss.first), format_position(loss.last)
        error = DataLoss(self.topic, first, last, "the service cannot hand them out any more")
        letter = Buried(self.topic, first, last, "", 0, 0, None, error.reason, 0, at)
        return [Taken(self.topic, loss.last, {}), letter], error

    def buried(self, loss: Loss, error: DataLoss) -> None:
        """The commit of `bury` succeeded."""
        self.prefetch.pass_loss()
        self.cursor.reach(loss.last, {})
        self.losses.add(error)

    # Losses

    @property
    def has_news(self) -> bool:
        """Whether the next call is to tell of a loss.

        Where a loss takes the subscription with it, that is made anew first: it begins where the service says, and
        the user, once told, may rely on it that whatever is put from then on arrives. Told earlier, he might put
        before it begins; and a process that ended meanwhile would have it made anew once more.
        """
        return self.losses.waiting and not self.remaking

    @property
    def remaking(self) -> bool:
        """Whether the subscription is being made anew, and nothing has failed that only the user can mend."""
        return self.intent.on and not self.intent.settled and isinstance(self.failure, NotAllowed | None)

    # Handing out one by one

    def begin_chunk(self, taking: Taking) -> Chunk:
        """What is about to be taken, one message at least, will be handed out one by one; the rest may go back."""
        before = {publisher: self.cursor.taken.get(publisher, 0) for publisher in taking.counters}
        self.chunk = Chunk(taking.pieces, self.cursor.position, taking.position, before)
        return self.chunk

    def end_chunk(self) -> None:
        """What was taken stays taken."""
        if self.chunk is not None:
            self.chunk.stop()
            self.chunk = None

    def given_back(self, chunk: Chunk, change: Taken) -> None:
        """The commit of what `Chunk.give_back` gave succeeded."""
        if not isinstance(self.failure, Superseded):  # Otherwise it is another's by now.
            self.prefetch.give_back(chunk.rest)
        self.cursor.reach(change.position, change.counters)
        self.end_chunk()

    def synced(self) -> None:
        """An fsync covered every commit so far: all but an open chunk may be acknowledged."""
        self.cursor.sync(self.chunk.before if self.chunk is not None else self.cursor.position)
