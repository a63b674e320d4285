"""What one client knows of its subscription to one topic (docs/architecture.md, *Subscribe and get*).

The intent, on or off, is durable before anything is sent; while it is not settled, every call asks again first. Each
transmission has a number of its own, and only the answer to the last one counts. Once it is settled there are three
places in the stream:

    safe  ≤  position  ≤  after
    safe      an fsync covers it: what a GET names as `last`, so that the server may forget everything up to there
    position  the application has it, committed; it survives the process
    after     received, in memory: the prefetch ends here

Handing out changes nothing at the server, and what is in memory only is fetched again after a crash. Records whose
counter was taken before are dropped, whatever their position: counters are kept per topic and publisher, and hold
across subscriptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from pubsub.client.core.changes import Buried, Change, Confirmed, Intended, Taken, Told
from pubsub.client.core.chunk import Chunk
from pubsub.client.core.prefetch import Loss, Prefetch, Taking
from pubsub.client.core.retries import Retries
from pubsub.errors import DataLoss, NotAllowed, PubsubError, Superseded
from pubsub.protocol import Get, Outcome, Position, Records, Status, Subscribe, Unsubscribe, format_position

WAIT_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 10.0
"""How long the server may hold a GET: doubling between these while nothing comes."""

ACKNOWLEDGE_SECONDS: Final = 0.25
"""A GET that is held at the server so long is sent anew where there is more to acknowledge."""


class Subscription:
    """One topic's subscription, or the wish not to have one.

    Args:
        client: the client ID.
        topic: the topic.
        retries: of its requests.
        load: gives the last counters taken, by publisher; asked once, when they are needed.

    Attributes:
        on: what the user wants; settled: whether the service has confirmed it.
        fresh: the intent is to begin at the end; otherwise the subscription that the service has under the client's ID
            is continued (docs/architecture.md, *Continuing*).
        number: of the transmission that was confirmed; asked: of the last one that was sent.
        position, safe, after: see above; None before the service has said where the subscription stands.
        log: the log that answered last; avoid: one whose holder does not know this subscription.
        attempts: how often a handler has seen the message at `tried`.
        failure: what every call raises until the user does something about it; NotAllowed: until the next call asks.
        losses: what the user is to be told, a call each; told: of how many he was, which the next call makes durable.
        insists: the calls of the user's that still wish a higher number elsewhere to be gone above, which is done once.
        until: the latest deadline of the calls that wait for messages; waiting: how many do.
        settle_until: the intent is asked for until then, whoever waits; check_until: whether it is still known is.
        heard: when the service last answered a GET; trouble: why it did not.
        drained: when the last GET was sent that found nothing, with nothing here either.
        prefetch: what was received and not taken yet.
        busy: the next message is in the hand of a handler that may be awaiting (a weak reference to its task); nobody
            else takes meanwhile.
        emptied: how often what was prefetched was thrown away.
    """

    def __init__(self, client: str, topic: str, retries: Retries, load: Callable[[str], dict[str, int]]) -> None:
        self.client, self.topic, self.retries, self._load = client, topic, retries, load
        self.on = self.settled = self.fresh = False
        self.number = self.asked = 0
        self.position: Position | None = None
        self.safe: Position | None = None
        self.acknowledged: Position | None = None
        self.log = self.avoid = ""
        self.tried: tuple[str | None, int | None] | None = None
        self.attempts = 0
        self.counted_ahead = False
        self.failure: PubsubError | None = None
        self.losses: deque[DataLoss] = deque()
        self.told = 0
        self.insists: set[object] = set()
        self.until = self.settle_until = self.check_until = float("-inf")
        self.waiting = 0
        self.heard = float("-inf")
        self.trouble = ""
        self.tokens: list[int] = []
        self.deadline: float | None = None
        self.generation = self.emptied = 0
        self.chunk: Chunk | None = None
        self.busy: Callable[[], object] | None = None
        self.prefetch = Prefetch()
        self._taken: dict[str, int] | None = None
        self._sent_at = 0.0
        self.drained = float("-inf")
        self._wait = WAIT_SECONDS
        self._hungry = self._asked_records = False
        self._parked = 0.0

    # The intent

    def intend(self, on: bool, *, fresh: bool = False) -> Change:
        """What makes an intent durable; `intended` follows the commit."""
        return Intended(self.topic, on, fresh)

    def leave_chunk(self) -> list[Change]:
        """What takes back all of an open iteration that it has not handed out, before an intent to continue.

        It would be dropped otherwise when it comes once more: it counts as taken.
        """
        if self.chunk is None:
            return []
        self.chunk.stop()
        return [self.give_back(self.chunk)] if self.chunk.handed < self.chunk.total else []

    def intended(self, on: bool, *, fresh: bool = False, left: Sequence[Change] = ()) -> None:
        """The commit of `intend`, and of what `leave_chunk` gave, succeeded: what was prefetched is gone with it."""
        for change in left:
            assert isinstance(change, Taken)
            self.taken.update(change.counters)
        self.on, self.settled, self.fresh, self.failure = on, False, fresh, None
        self.position = self.safe = self.acknowledged = None
        self.tried, self.attempts = None, 0
        self._empty()

    @property
    def unchecked(self) -> bool:
        """Whether the service was asked if it knows this subscription, and has not answered."""
        return self.check_until != float("-inf")

    def checking(self, now: float) -> bool:
        """Whether the service is to be asked if it knows this subscription."""
        return self.on and self.settled and not self.failure and self.deadline is None and now < self.check_until

    def ask(self, number: int, epoch: int) -> Subscribe | Unsubscribe:
        """The next transmission of the intent; answers to those before count no more."""
        self.asked = number
        if not self.on:
            return Unsubscribe(self.client, self.topic, number, epoch, self.log, self.avoid)
        continues = int(not self.fresh)
        return Subscribe(self.client, self.topic, number, epoch, self.log, self.avoid, continues=continues)

    def confirm(self, status: Status) -> Change:
        """What makes the answer to the last transmission durable; `confirmed` follows the commit."""
        return Confirmed(self.topic, self.asked, status.position if self.on else None, status.log or self.log)

    def confirmed(self, change: Confirmed) -> None:
        """The commit of `confirm` succeeded."""
        self.settled, self.number, self.log, self.avoid = True, change.number, change.log, ""
        self.settle_until, self.insists = float("-inf"), set()
        self.position = self.safe = self.acknowledged = change.position
        self._empty()

    # Asking for records

    @property
    def after(self) -> Position | None:
        """The last position that was received."""
        return self.prefetch.last if self.prefetch else self.position

    @property
    def available(self) -> bool:
        """Whether a call finds something at once."""
        return bool(self.prefetch)

    def wanted(self, now: float) -> bool:
        """Whether a call waits for messages."""
        return self.waiting > 0 and now < self.until

    def asking(self, now: float) -> bool:
        """Whether the intent is to be asked for."""
        return not self.settled and self.failure is None and (now < self.settle_until or self.wanted(now))

    def hungry(self, now: float, records_max: int, bytes_max: int) -> bool:
        """Whether a GET is to be sent: somebody waits, or the last answer brought something and there is room."""
        if not (self.on and self.settled) or self.failure or self.deadline is not None:
            return False
        if not self.prefetch and self.wanted(now):
            return True
        # While a full answer waits here to be handed out, the next one may already be made at the server.
        return self._hungry and self.prefetch.records <= records_max and self.prefetch.size <= bytes_max

    def get(self, epoch: int, records_max: int, bytes_max: int, wait: float) -> Get:
        """A GET for what comes after the prefetch; it acknowledges what is safe. `wait`: seconds."""
        after = self.after
        return Get(
            self.client, self.topic, self.safe, self.number, epoch, after if after != self.safe else None,
            records_max, bytes_max, int(wait * 1000), self.log, self.avoid,
        )  # fmt: skip

    def asked_for_records(self, now: float, wait: float, *, records: bool = True) -> None:
        """A GET went out. `records`: it asks for some, and does not only acknowledge."""
        self._sent_at, self._parked, self._asked_records = now, wait, records
        self.acknowledged = self.safe
        self.deadline = now + wait + self.retries.patience

    def wait_seconds(self, now: float) -> float:
        """How long the server may hold the next GET; not at all where it is not known to be there."""
        if self.retries.failed or now - self.heard > WAIT_SECONDS_MAX:
            return 0.0
        return min(self._wait, max(0.0, self.until - now)) if self.wanted(now) else self._wait

    def parked_beyond(self, until: float, now: float) -> bool:
        """Whether the GET in flight was held at the server for long, and may be for longer than a call waits."""
        return self.deadline is not None and self._sent_at + WAIT_SECONDS < now and self._sent_at + self._parked > until

    def acknowledge_at(self) -> float | None:
        """When what is safe is to be acknowledged, where no GET does it before; None: it is."""
        if not (self.on and self.settled) or self.failure or self.safe == self.acknowledged:
            return None
        if self.deadline is not None and self.retries.failed:
            return None  # The service does not answer at present; the next try brings the acknowledgement along.
        return self._sent_at + ACKNOWLEDGE_SECONDS

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
        elif status.outcome is Outcome.EMPTY and self._asked_records and not self.prefetch and self.chunk is None:
            self.drained = self._sent_at
        self._hungry = status.outcome is not Outcome.EMPTY
        self._wait = WAIT_SECONDS if self._hungry else min(2 * self._wait, WAIT_SECONDS_MAX)
        if self._parked == 0.0 and not self._hungry:
            self._wait = WAIT_SECONDS
        if status.log:
            self.log = status.log
        self.avoid, self.trouble, self.deadline, self.heard = "", "", None, now
        self.check_until = float("-inf")
        return True

    def stop_prefetching(self) -> None:
        """Ask for nothing more, and acknowledge at once."""
        self.deadline, self._hungry, self._sent_at = None, False, float("-inf")

    def timed_out(self) -> None:
        """The request in flight was not answered in its time."""
        self.deadline, self._hungry = None, False

    def fail(self, error: PubsubError) -> None:
        """The service hands out nothing more to this client: what was prefetched is another's, or not to be trusted."""
        self.failure = error
        # An iteration hands out what it has taken, or gives it back: the later directory gets that, with the mark.
        self._empty(but_chunk=isinstance(error, Superseded))

    def _empty(self, *, but_chunk: bool = False) -> None:
        self.prefetch.clear()
        if not but_chunk:
            self.end_chunk()
        self.deadline, self._hungry, self._wait = None, False, WAIT_SECONDS
        self.check_until = float("-inf")
        self.generation += 1
        self.emptied += 1

    def place_lost(self, status: Status, at: float) -> tuple[list[Change], Callable[[], None]]:
        """What was to come next is gone with its log. It goes on where the answer says, or is made anew.

        Returns:
            What makes that durable, and what is to be done when it is.
        """
        place = format_position(self.safe)
        error = DataLoss(self.topic, place, place, "the log was given up; what followed in it is gone")
        letter = Buried(self.topic, place, place, "", 0, 0, None, error.reason, 0, at)
        known = status.position is not None
        found = Confirmed(self.topic, self.number, status.position, status.log or self.log)

        def committed() -> None:
            if known:
                self.confirmed(found)
            else:
                self.intended(True, fresh=True)
            self.losses.append(error)

        # Made anew at the end: what a holder elsewhere has under this ID may be from before this subscription.
        return [found if known else self.intend(True, fresh=True), letter], committed

    # Taking

    @property
    def taken(self) -> dict[str, int]:
        """The last counter taken of each publisher."""
        if self._taken is None:
            self._taken = self._load(self.topic)
        return self._taken

    def attempt(self, position: Position) -> int:
        """Which attempt at a message the next one is, from 1; `attempted` follows the commit that counts it."""
        if self.tried != position:
            return 1
        return self.attempts if self.counted_ahead else self.attempts + 1

    def attempted(self, position: Position | None, attempts: int, *, ahead: bool = False) -> None:
        """An attempt was counted. `ahead`: in the commit of the message before, so it is still to be made."""
        self.tried, self.attempts, self.counted_ahead = position, attempts, ahead

    def unheard_since(self, started: float) -> bool:
        """Whether a call that began then can say nothing about the service."""
        return bool(self.retries.failed) or (self.heard < started and started - self.heard > WAIT_SECONDS_MAX)

    def take(self, records_max: int) -> Taking | Loss:
        """What the next `records_max` records are, without those taken before; nothing changes until `took`."""
        return self.prefetch.take(records_max, self.taken)

    def took(self, taking: Taking) -> None:
        """The commit of a taking succeeded."""
        self.prefetch.took(taking)
        if taking.position is not None:
            self.position = taking.position
            self.taken.update(taking.counters)
            self.tried, self.attempts, self.counted_ahead = None, 0, False

    def bury(self, loss: Loss, at: float) -> tuple[list[Change], DataLoss]:
        """What goes on behind a loss; `buried` follows the commit, and the error is for the user, once."""
        first, last = format_position(loss.first), format_position(loss.last)
        error = DataLoss(self.topic, first, last, "the service cannot hand them out any more")
        letter = Buried(self.topic, first, last, "", 0, 0, None, error.reason, 0, at)
        return [Taken(self.topic, loss.last, {}), letter], error

    def buried(self, loss: Loss, error: DataLoss) -> None:
        """The commit of `bury` succeeded."""
        self.prefetch.pass_loss()
        self.position = loss.last
        self.losses.append(error)

    # Losses

    @property
    def has_news(self) -> bool:
        """Whether the next call is to tell of a loss.

        Where a loss takes the subscription with it, that is made anew first: it begins where the service says, and
        the user, once told, may rely on it that whatever is put from then on arrives. Told earlier, he might put
        before it begins; and a process that ended meanwhile would have it made anew once more.
        """
        return self.told < len(self.losses) and not self.remaking

    @property
    def remaking(self) -> bool:
        """Whether the subscription is being made anew, and nothing has failed that only the user can mend."""
        return self.on and not self.settled and isinstance(self.failure, NotAllowed | None)

    def tell(self) -> DataLoss:
        """The oldest loss that the user is to be told of; he is told with it."""
        self.told += 1
        return self.losses[self.told - 1]

    def forget_told(self) -> list[Change]:
        """What makes it durable that the user was told; `forgot_told` follows the commit.

        It is done by the call after the one that raised, or at the end: so a process that dies on the way to its user
        tells him once more after its start.
        """
        return [Told(self.topic, self.told)] if self.told else []

    def forgot_told(self) -> None:
        """The commit of `forget_told` succeeded."""
        while self.told:
            self.losses.popleft()
            self.told -= 1

    # Handing out one by one

    def begin_chunk(self, taking: Taking) -> Chunk:
        """What is about to be taken, one message at least, will be handed out one by one; the rest may go back."""
        before = {publisher: self.taken.get(publisher, 0) for publisher in taking.counters}
        self.chunk = Chunk(taking.pieces, self.position, taking.position, before)
        return self.chunk

    def end_chunk(self) -> None:
        """What was taken stays taken."""
        if self.chunk is not None:
            self.chunk.stop()
            self.chunk = None

    def give_back(self, chunk: Chunk) -> Taken:
        """What takes back all that a stopped chunk has not handed out; `given_back` follows the commit."""
        handed, position, taken = chunk.handed, chunk.before, dict(chunk.counters)
        chunk.rest = []
        for piece in chunk.pieces:
            count = min(handed, piece.stop - piece.start)
            handed -= count
            if count:
                kept = piece._replace(stop=piece.start + count)
                position, taken[piece.run.publisher] = kept.last, piece.run.counter + kept.stop - 1
            if piece.start + count < piece.stop:
                chunk.rest.append(piece._replace(start=piece.start + count))
        assert position is not None
        return Taken(self.topic, position, taken)

    def given_back(self, chunk: Chunk, change: Taken) -> None:
        """The commit of `give_back` succeeded."""
        if not isinstance(self.failure, Superseded):  # Otherwise it is another's by now.
            self.prefetch.give_back(chunk.rest)
        self.position = change.position
        self.taken.update(change.counters)
        self.end_chunk()

    def synced(self) -> None:
        """An fsync covered every commit so far: all but an open chunk may be acknowledged."""
        self.safe = self.chunk.before if self.chunk is not None else self.position
