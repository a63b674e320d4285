"""Decide what a member of a consumer group says, and when (docs/explanation/groups.md, *Wire*).

One message says everything: what is done, what the member goes on with, what it asks to claim, and how much more it
wants. What it does not name goes back. So a lost message needs no repair but the next one.

At most one message waits for its answer. If the server may hold it (a long poll), the next one replaces it as soon as
there is news. Otherwise news wait for its answer, and without an answer in time the same message goes out again, under
the same number: whichever copy arrives first counts. An answer to another message than the last one is ignored (GR5).

The rules are docs/explanation/groups.md, GR4, GR5, GR8, GR9, GR22 and GR23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import CLAIMED_BYTES_MAX, CLAIMED_RECORDS_MAX, WORK_LINES_MAX
from pubsub.client.core.changes import (
    Change,
    GroupAttemptsTold,
    GroupBegun,
    GroupDone,
    GroupOpened,
    GroupTold,
)
from pubsub.client.core.group_hands import ASKING, ASKS, CLAIMED, LOST, Hand
from pubsub.client.core.group_holdings import Holdings
from pubsub.client.core.group_life import ANSWERED, CALLED, ENDED, ENDS, JOINED, LEAVES, LEAVING, LEFT, LIFE, NEW
from pubsub.client.core.group_pace import Pace
from pubsub.client.core.group_places import Lane, Places
from pubsub.client.core.group_queue import Entry
from pubsub.client.core.group_request import Ask, Wish
from pubsub.client.core.retries import TRY_SECONDS_MAX, Retries
from pubsub.errors import DataLoss, PubsubError
from pubsub.protocol import Position, Records
from pubsub.protocol.group_bodies import (
    HELD,
    OFFERED,
    SHARED,
    WAIT,
    Dead,
    GroupValues,
    Holding,
    Later,
    Range,
    Say,
    Tried,
)
from pubsub.protocol.groups import Work

HEARTBEAT_SECONDS: Final = 1.0
"""Interval of the messages of a member that holds something."""

TELL_SECONDS: Final = 0.25
"""Longest time until done work is told, if no other message tells it."""

BUSY_SECONDS: Final = 0.5
"""Time for which all handlers are busy before what they have not begun goes back."""

IDLE_SECONDS: Final = 0.1
"""Time without a call before what no handler has begun goes back."""

WAIT_SECONDS: Final = 10.0
"""Longest time for which the server may hold a message."""

SLOW_FACTOR: Final = 3.0
"""Times of the usual time of an answer after which a message goes out again."""

TELL_MAX: Final = WORK_LINES_MAX // 4
"""Most ranges done, and most ended attempts, in one message. The others are in the next one."""

NAMES_MAX: Final = WORK_LINES_MAX // 2
"""Most ranges that a member names as kept or offered; with more, what no handler has begun goes back."""

POLL_SECONDS: Final = 1.0
"""Time between two messages of a member to which the server hands out nothing, for a reason."""

BEFORE: Final = "before"
AUTO: Final = "auto"

NOTHING: Final = GroupValues(SHARED, 0, WAIT, 600_000, 5)


@dataclass(slots=True)
class Ended:
    """An attempt that is over without an effect.

    Attributes:
        attempts: its number over all members.
        due: for a record that was put off, the time of its next attempt on the monotonic clock; None: it failed.
        reason: for a dead letter, the percent-encoded reason; otherwise "".
    """

    attempts: int
    due: float | None = None
    reason: str = ""


@dataclass(slots=True)
class Sent:
    """The message that waits for its answer.

    Attributes:
        parked: True if the server may hold it.
        deadline: time at which it goes out again.
        began: time at which it went out first.
        ended: the ended attempts that it tells.
    """

    work: Work
    parked: bool
    deadline: float
    began: float
    ended: dict[Position, Ended]
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class GroupCall:
    """A call that takes from a group.

    Attributes:
        workers: handlers at a time.
        until: its deadline.
        left: most records that it may still begin.
        before: True if each record must be claimed before it begins.
        gets: True for `get`, which has no handler.
    """

    workers: int
    until: float
    left: int
    before: bool = False
    gets: bool = False


class GroupMember:
    """One membership: a client with a store in a group.

    Args:
        member: its number in the state file.
        client, topic, name: client ID, topic, and name of the group.
        store: the client's store ID (GR7).
        retries: tries of its messages.

    Attributes:
        number: of the group; 0: it was not joined yet.
        values: of the group, as the service has them.
        wish: what the application named.
        holdings: what it has.
        pace: of the handlers.
        calls: the calls that take from the group now.
        failure: error of every call until the application subscribes again, or for a denial, until the next call.
        stop: the server's word for the reason why it hands out nothing; "".
        trouble: cause of a missing answer.
        answered_at, asked_at: time of the last answer, and of the first call since there was none.
        begun: number of the attempt by position, of attempts that are on the disk.
        ready: True if a call may begin a record now, for readers without the lock.
        losses: losses of the whole group that the application has not learned of.
        remaking: True while the group is made anew, because no holder knows it any more.
    """

    def __init__(self, member: int, client: str, topic: str, name: str, store: str, retries: Retries) -> None:
        self.member, self.client, self.topic, self.name, self.store = member, client, topic, name, store
        self.retries = retries
        self.number, self.log, self.avoid, self.unknown = 0, "", "", 0
        self.values, self.wish = NOTHING, Wish()
        self.holdings = Holdings(0)
        self.pace = Pace()
        self.life = NEW
        self.ask: Ask | None = None
        self.sent: Sent | None = None
        self.calls: list[GroupCall] = []
        self.failure: PubsubError | None = None
        self.stop = self.trouble = ""
        self.answered_at = self.asked_at = self.sent_at = self.heard_at = float("-inf")
        self.cuts = self.cuts_now = 0
        self.left = True
        self.begun: dict[Position, int] = {}
        self.ended: dict[Position, Ended] = {}
        self.ready = self.remaking = False
        self.losses: list[DataLoss] = []
        self._rows = Places()
        self._stale_lanes: dict[Lane, None] = {}
        self._told: list[Position] = []
        self._ahead: dict[Position, int] = {}
        """Attempts that were counted with the end of another record, and have not begun."""
        self._answer_seconds = 0.0
        """Time that the answers to messages take which the server does not hold."""
        self._poll_at = self._sign_at = self._took_at = float("-inf")
        self._last: Work | None = None
        self._shown = Say()
        """What the server showed in its last answer, as the names of a message."""
        self._changed = self._settles = False
        self._began_at = self._idle_at = float("-inf")

    # State from the store

    def load(self, number: int, log: str, values: GroupValues, wish: Wish, cuts: int, *, left: bool) -> None:
        """Load the membership."""
        self.number, self.log, self.values, self.wish, self.cuts, self.left = number, log, values, wish, cuts, left
        self.holdings = Holdings(values.parts)

    def load_work(self, done: Places, begun: dict[Position, int], cuts: int) -> None:
        """Load what an earlier process did, and tell it at once unless that process has left (GR8, GR23).

        Args:
            cuts: number of power cuts of this state up to now.
        """
        self._rows = done
        self.holdings.hard = Places(done)
        self.begun = begun
        self.ended = {place: Ended(attempts) for place, attempts in begun.items()}
        self.cuts_now = cuts
        self._settles = not self.left or bool(done or begun)

    def joined(self, number: int, log: str, values: GroupValues, wish: Wish) -> None:
        """Accept a durable answer to a request that makes or joins the group."""
        self.failure, self.unknown, self.stop, self.log, self.avoid = None, 0, "", log or self.log, ""
        self.wish, self.remaking = wish, False
        if number == self.number and values.parts == self.values.parts and self.life != ENDED:
            self.values = values
            return
        if self.number != number:
            self.forget()
        self.number, self.values = number, values
        self.holdings = Holdings(values.parts)
        self.life = LIFE[self.life, JOINED]
        self.pace = Pace()

    def passed_over(self, entry: Entry) -> None:
        """Accept the commit by which the first record of an entry is done without a handler."""
        self.row_done((Range(entry.lane[0], entry.low, entry.end(1), entry.part),))
        self.holdings.passed_over(entry)
        self.look()

    def forget(self) -> None:
        """Forget what was done and begun under an earlier number of the group."""
        self.holdings.lose_all()
        self._rows, self.begun, self.ended, self._stale_lanes, self._told = Places(), {}, {}, {}, []
        self.left = True

    # Calls

    def begin_call(self, call: GroupCall, now: float) -> None:
        """Take records for a call."""
        self.life = LIFE[self.life, CALLED]
        if not self.calls:
            self.retries.renew(self.retries.proxy)
            self._began_at = now
            self.stop, self._poll_at = "", float("-inf")  # The service may hand out again by now.
            if self.answered_at >= self.asked_at:
                self.asked_at = now
        self.calls.append(call)
        self.look()

    def end_call(self, call: GroupCall, now: float) -> None:
        """Take no more records for a call."""
        if call in self.calls:
            self.calls.remove(call)
        self._idle_at = now
        self.look()

    def is_heard(self, now: float) -> bool:
        """Return True if the service has answered lately."""
        return now - self.answered_at < WAIT_SECONDS + HEARTBEAT_SECONDS and not self.retries.failed

    def stop_calls(self) -> None:
        """Let no further record begin in the present calls."""
        for call in self.calls:
            call.left = 0
        self.give_back_queue()

    def leave(self) -> None:
        """Give all back, and tell what is done; a new call joins again."""
        self.life = LIFE[self.life, LEAVES]
        if self.life == LEAVING:
            self.give_back_queue()

    @property
    def settles(self) -> bool:
        """True if the service must learn, without a call, what an earlier process did."""
        return self._settles and self.life == NEW

    @property
    def stopped(self) -> bool:
        """True if nothing is handed out to this member now."""
        return self.failure is not None or self.life in {LEAVING, LEFT, ENDED}

    @property
    def before(self) -> bool:
        """True if each record must be claimed before it begins."""
        return any(call.before or call.gets for call in self.calls)

    # Records

    def front(self, *, claimed: bool) -> Entry | None:
        """Return the records in front; `claimed`: only claimed ones. Takes no lock if nothing is here."""
        return self.holdings.queue.front(claimed=claimed) if self.holdings.queue else None

    def attempts_of(self, entry: Entry) -> int:
        """Return the number of the next attempt at the first record of an entry, over all members."""
        place = entry.piece.run.log, entry.offset
        return self._ahead.get(place) or max(entry.attempts, self.begun.get(place, 0)) + 1

    def begin_changes(self, entry: Entry) -> list[Change]:
        """Return the changes that count an attempt at the first record of an entry; `begin` or `ahead` follows."""
        place = entry.piece.run.log, entry.offset
        return [] if place in self._ahead else [GroupBegun(self.member, *place, self.attempts_of(entry))]

    def ahead(self, entry: Entry) -> None:
        """Accept the commit that counted an attempt at the next record with the end of another one."""
        self._ahead[entry.piece.run.log, entry.offset] = self.attempts_of(entry)

    def begin(self, entry: Entry, now: float) -> Hand:
        """Give the first record of an entry to a handler, after the commit that counts its attempt."""
        self._began_at = now
        attempts = self.attempts_of(entry)
        hand = self.holdings.take(entry, attempts, now)
        self._ahead.pop((hand.log, hand.offset), None)
        self.begun[hand.log, hand.offset] = attempts
        self.look()
        return hand

    def opening(self) -> list[Change]:
        """Return the change that tells the next start that this process may hold something."""
        return [GroupOpened(self.member, False, self.cuts)] if self.left else []

    def opened(self) -> None:
        """Accept the commit of `opening`."""
        self.left = False

    def wants(self, hand: Hand) -> None:
        """Ask for the claim of a record in hand."""
        hand.event(ASKS)

    def done_changes(self, ranges: Iterable[Range], place: Position | None = None) -> list[Change]:
        """Return the changes by which ranges are done; `row_done` or another acceptance follows the commit.

        Args:
            place: a record with a counted attempt that is over.
        """
        changes = self.cleanup() if self._stale_lanes else []
        for log, low, high, part in ranges:
            first, last, replaced = self._rows.joined((log, part), low, high)
            changes.append(GroupDone(self.member, log, -1 if part is None else part, first, last, replaced))
        if place is not None or self._told:
            changes.append(GroupAttemptsTold(self.member, (*self._told, *(() if place is None else (place,)))))
        return changes

    def cleanup(self) -> list[Change]:
        """Return the changes that drop what the service knows; `cleaned` follows the commit."""
        return [
            GroupTold(self.member, log, -1 if part is None else part, tuple(self._rows.of((log, part))))
            for log, part in self._stale_lanes
        ]

    def attempts_told(self) -> list[Change]:
        """Return the change that drops attempts that the service knows; `cleaned` follows the commit."""
        return [GroupAttemptsTold(self.member, tuple(self._told))] if self._told else []

    def cleaned(self) -> None:
        """Accept the commit of `cleanup` and `attempts_told`."""
        self._stale_lanes, self._told = {}, []

    def row_done(self, ranges: Iterable[Range], place: Position | None = None) -> None:
        """Accept the commit of `done_changes` in the state of the disk."""
        if self._stale_lanes or self._told:
            self.cleaned()
        self._rows.update(ranges)
        if place is not None:
            self.begun.pop(place, None)

    def plan(self, most: int) -> list[tuple[Entry, int]]:
        """Return up to `most` claimed records to take without a handler; nothing changes."""
        return self.holdings.queue.plan(most)

    def taken(self, plan: Iterable[tuple[Entry, int]], now: float) -> None:
        """Accept the commit by which planned records are done."""
        ranges = []
        for entry, number in plan:
            ranges.append(Range(entry.lane[0], entry.low, entry.end(number), entry.part))
            self.holdings.queue.drop(entry, number)
            self.pace.took((now - self._took_at) / number)
        self._took_at = now
        self.row_done(ranges)
        self.holdings.soft.update(ranges)
        self.look()

    def finished(self, hand: Hand) -> None:
        """Accept the commit of a claimed record's effect."""
        self.row_done((Range(hand.log, hand.low, hand.high, hand.part),), (hand.log, hand.offset))
        self.holdings.finish(hand)
        if not self.ready:  # The end of a record makes nothing less ready.
            self.look()

    def failed(self, hand: Hand, ended: Ended) -> None:
        """Give a record back after an attempt without an effect, and tell its outcome."""
        place = hand.log, hand.offset
        self.ended[place] = ended
        self.return_hand(hand)

    def return_hand(self, hand: Hand) -> None:
        """Give a record in hand back; it was begun, and that is told."""
        place = hand.log, hand.offset
        if place in self.begun:
            self.ended.setdefault(place, Ended(self.begun[place]))
        self.holdings.give_back(hand)
        self._changed = True
        self.look()

    def uncounted(self, hand: Hand) -> None:
        """Give a record back, with an attempt that does not count; its row is dropped with the next commit."""
        place = hand.log, hand.offset
        self.begun.pop(place, None)
        self.ended.pop(place, None)
        self._told.append(place)
        self.return_hand(hand)

    def give_back_queue(self) -> None:
        """Give back all that no handler has begun."""
        self._told += self._ahead
        self._ahead.clear()
        self._changed |= self.holdings.give_back_queue()
        self.look()

    def lose_hands(self) -> None:
        """Give back all that handlers have; their effects are rolled back."""
        for hand in tuple(self.holdings.hands.values()):
            self.return_hand(hand)

    def look(self) -> None:
        """Find out whether a record may begin."""
        self.ready = not self.stopped and self.front(claimed=self.before) is not None

    def is_claimed(self, hand: Hand) -> bool:
        """Return True if the effect of a record may commit."""
        return hand.state == CLAIMED and not hand.over

    def is_decided(self, hand: Hand) -> bool:
        """Return True if the claim of a record is granted or refused. Takes no lock."""
        return hand.state in {CLAIMED, LOST} or hand.over

    def synced(self) -> None:
        """Record an fsync of all commits so far."""
        self.holdings.synced()

    # Messages

    def _want(self, now: float) -> int:
        """Return how many more records to ask for."""
        left, workers, gets = 0, 0, False  # In one loop: this is a part of the cost of each record.
        for call in self.calls:
            if now < call.until:
                left, workers, gets = left + call.left, workers + call.workers, gets or call.gets
        if not workers or now < self._poll_at or self.stopped:
            return 0
        queued, held = self.holdings.queue.records, len(self.holdings.hands)
        room = CLAIMED_RECORDS_MAX - queued - held
        if gets:
            want = max(left, self.pace.ahead(1)) - queued if queued < left else 0
        elif self.pace.fast:
            ahead = min(self.pace.ahead(workers), max(0, left))
            want = ahead - queued if queued <= ahead // 2 else 0
        else:
            want = min(workers - held, left) - queued
        return max(0, min(want, room))

    def _has_news(self, now: float) -> bool:
        """Return True if a message should go out although the server may still answer the last one."""
        if self.life == LEAVING or self._changed or self._claims():
            return True
        if (self.holdings.holds or self.holdings.hands) and now >= self.sent_at + HEARTBEAT_SECONDS:
            return True
        if (self.holdings.hard or self.ended) and now >= self.sent_at + TELL_SECONDS:
            return True
        assert self.sent is not None
        return not self.sent.work.records_max and self._want(now) > 0

    def _is_due(self, now: float) -> bool:
        """Return True if a message should go out, and none waits for an answer."""
        if self.life == LEAVING or self._changed or self.settles or self._claims() or self._want(now) > 0:
            return True
        held = self.holdings.holds or self.holdings.hands
        if held and now >= self.sent_at + HEARTBEAT_SECONDS:
            return True
        told = self.holdings.hard or self.ended
        return bool(told) and self.life != NEW and now >= self.sent_at + TELL_SECONDS

    def _claims(self) -> bool:
        """Return True if something is to be claimed."""
        for hand in self.holdings.hands.values():
            if hand.state == ASKING:
                return True
        return self.holdings.queue.offered > 0 and self._claims_queue

    @property
    def _claims_queue(self) -> bool:
        return bool(self.calls) and (self.before or self.pace.fast)

    def next_work(self, now: float, take: Callable[[], int], epoch: int) -> Work | None:
        """Return the message to send now, or None.

        Args:
            take: returns the number of a new message.
            epoch: the first number of the session.
        """
        sent = self.sent
        if self.failure is not None or not self.number or self.remaking or self.life in {LEFT, ENDED}:
            return None
        if sent is not None and now >= sent.deadline:
            sent.deadline, self.sent_at = self._deadline(now, sent.work), now
            sent.work.log, sent.work.avoid = self.log, self.avoid
            return sent.work
        if not (self._is_due(now) if sent is None else sent.parked and self._has_news(now)):
            return None
        return self._compose(now, take(), epoch)

    def _compose(self, now: float, number: int, epoch: int) -> Work:
        leaves = self.life == LEAVING
        if leaves or len(self.holdings.kept) + len(self.holdings.offered) > NAMES_MAX:
            self.give_back_queue()
        want = self._want(now)
        claims = self.holdings.claims(queued=self._claims_queue) if not leaves else Places()
        ended = dict(list(self.ended.items())[:TELL_MAX])
        tried, later, dead = _attempts(ended, now)
        say = self.holdings.say(claims, NAMES_MAX if self.life == NEW else TELL_MAX)
        say = say._replace(tried=tried, later=later, dead=dead)
        wait = 0.0
        tells = bool(claims or say.done or ended)  # What is told must be answered, or it is told again and again.
        if want and not tells and self.life != NEW:
            until = max(call.until for call in self.calls)
            wait = 0.0 if self.retries.failed else min(WAIT_SECONDS, max(0.0, until - now))
        work = Work(
            self.client, self.topic, self.name, self.number, number, self.store, epoch,
            records_max=want, bytes_max=CLAIMED_BYTES_MAX if want else 0, wait_ms=int(wait * 1000),
            claim=int(bool(want) and (self.before or self.pace.fast)), cut=int(self.cuts_now > self.cuts),
            leave=int(leaves), log=self.log, avoid=self.avoid, say=say,
        )  # fmt: skip
        self.sent = Sent(work, work.wait_ms > 0, self._deadline(now, work), now, ended, self._tokens())
        self._changed, self.sent_at = False, now
        return work

    def _tokens(self) -> list[int]:
        return [] if self.sent is None else self.sent.tokens

    def _deadline(self, now: float, work: Work) -> float:
        """Return the time at which a message goes out again. A slow service has time for its answer."""
        patience = max(self.retries.patience, min(SLOW_FACTOR * self._answer_seconds, TRY_SECONDS_MAX))
        return now + work.wait_ms / 1000 + patience

    def sign_of_life(self, now: float) -> Work | None:
        """Return the last message again, for a time in which nothing else may change; None: it is not due.

        It names all that the server may have shown, so its answer brings no records. That answer is not used. This
        takes no lock: the message under its number was sent before, so the server changes nothing.
        """
        sent, last = self.sent, self._last
        heard = max(self.sent_at, self._sign_at)
        if now < heard + HEARTBEAT_SECONDS or self.failure is not None:
            return None
        if not (self.holdings.holds or self.holdings.hands):
            return None
        work = last if sent is None else sent.work
        if work is None:
            return None
        self._sign_at = now
        return Work(
            work.sender, work.topic, work.group, work.subscription, work.number, work.store, work.epoch,
            leave=work.leave, log=self.log, say=self._shown if sent is None else work.say,
        )  # fmt: skip

    # Answers

    def answered(
        self, work: Work, lines: tuple[Holding, ...], records: Records | None, reason: str, now: float
    ) -> None:
        """Take account of the answer to the last message. The caller has checked that it is the last one."""
        sent, self.sent = self.sent, None
        assert sent is not None
        if not sent.parked:
            self._answer_seconds = max(now - sent.began, 0.7 * self._answer_seconds)
        self.holdings.answered(work.say, lines, records)
        for place, ended in sent.ended.items():
            if self.ended.get(place) is ended:
                del self.ended[place]
                self.begun.pop(place, None)
                self._told.append(place)
        for log, low, high, part in work.say.done:
            self._rows.discard((log, part), low, high)
            self._stale_lanes[log, part] = None
        self.stop, self.unknown, self.trouble, self.avoid, self.answered_at = reason, 0, "", "", now
        if reason:  # The server answers at once while it hands out nothing.
            self._poll_at = now + POLL_SECONDS
        if work.cut:
            self.cuts = self.cuts_now
        if self.life != LEAVING or work.leave:
            self.life = LIFE[self.life, ANSWERED]
        self._settles = False
        self._last = work
        held = tuple(one.range for one in lines if one.kind == HELD)
        self._shown = Say(keep=held, offered=tuple(one.range for one in lines if one.kind == OFFERED))
        self.look()

    def end(self, failure: PubsubError) -> None:
        """Stop: the group was ended, or another process is this member."""
        self.life = LIFE[self.life, ENDS]
        self.failure, self.sent = failure, None
        self.holdings.lose_all()
        self.look()

    def deny(self, failure: PubsubError) -> None:
        """Stop until the next call: the right is missing, or the group is at a limit."""
        self.failure, self.sent = failure, None
        self.look()

    # Time

    def tick(self, now: float) -> None:
        """Handle deadlines."""
        sent = self.sent
        if sent is not None and now >= sent.deadline:
            self.retries.fail()
        if self.holdings.queue and now >= self._back_at():
            self.give_back_queue()

    def _back_at(self) -> float:
        """Return the time at which what no handler has begun goes back (GR22)."""
        if not self.holdings.queue:
            return float("inf")
        if not self.calls:
            return max(self._idle_at, self.answered_at) + IDLE_SECONDS
        workers = 0
        for call in self.calls:
            workers += call.workers
        busy = len(self.holdings.hands) >= workers
        return max(self._began_at, self.answered_at) + BUSY_SECONDS if busy else float("inf")

    def deadline(self) -> float:
        """Return the next time at which `tick` or `next_work` has work; infinity: none is known."""
        if self.failure is not None or self.remaking or self.life in {LEFT, ENDED} or not self.number:
            return float("inf")
        times = [self._back_at()]
        if self.sent is not None:
            times.append(self.sent.deadline)
        if self.sent is None or self.sent.parked:
            if self.holdings.holds or self.holdings.hands:
                times.append(self.sent_at + HEARTBEAT_SECONDS)
            if (self.holdings.hard or self.ended) and self.life != NEW:
                times.append(self.sent_at + TELL_SECONDS)
        if self.sent is None and self.calls and self._poll_at > self.sent_at:
            times.append(self._poll_at)
        return min(times)


def _attempts(
    ended: dict[Position, Ended], now: float
) -> tuple[tuple[Tried, ...], tuple[Later, ...], tuple[Dead, ...]]:
    """Return the lines of a message for ended attempts."""
    tried, later, dead = [], [], []
    for (log, offset), one in ended.items():
        if one.reason:
            dead.append(Dead(log, offset, one.attempts, one.reason))
        elif one.due is not None:
            later.append(Later(log, offset, max(0, int((one.due - now) * 1000)), one.attempts))
        else:
            tried.append(Tried(log, offset, one.attempts))
    return tuple(tried), tuple(later), tuple(dead)
