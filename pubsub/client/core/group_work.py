"""Keep the state of a member of a consumer group: its calls, its records, and its rows in the state file.

The changes of the state file are planned here and accepted after their commit, so memory never runs ahead of the disk.
Three tables are for the process after a kill (docs/explanation/groups.md, GR8, GR9 and GR23):

    the membership      the group's number and values, and whether the last process has left
    finished records    ranges; the service may not know all of them
    attempts            begun, and not known to the service to be over
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pubsub.client.core.changes import (
    Change,
    GroupAttemptsTold,
    GroupBegun,
    GroupDone,
    GroupOpened,
    GroupTold,
)
from pubsub.client.core.group_holdings import Holdings
from pubsub.client.core.group_in_hand import ASKS, CLAIMED, LOST, RecordInHand
from pubsub.client.core.group_life import CALLED, ENDED, JOINED, LEAVES, LEAVING, LEFT, LIFE, NEW
from pubsub.client.core.group_pace import Pace
from pubsub.client.core.group_places import Lane, Places
from pubsub.client.core.group_queue import Entry
from pubsub.client.core.group_request import Ask, Wish
from pubsub.client.core.retries import Retries
from pubsub.errors import DataLoss, PubsubError
from pubsub.protocol import Position
from pubsub.protocol.group_bodies import SHARED, WAIT, GroupValues, Range, Say
from pubsub.protocol.groups import Work

LATELY_SECONDS: Final = 11.0
"""Time since the last answer for which the service counts as heard: the longest wait of a message, and a second."""

NOTHING: Final = GroupValues(SHARED, 0, WAIT, 600_000, 5)
"""Stands for the values of a group that was not joined yet."""


@dataclass(slots=True)
class Ended:
    """An attempt that is over without an effect.

    Attributes:
        attempts: its number over all members.
        due: for a record that was put off, the time of its next attempt on the monotonic clock; None: it failed.
        reason: for a dead letter, the percent-encoded reason; otherwise "".
        error: of the handler, percent-encoded; "": none is known, as after the end of a process.
    """

    attempts: int
    due: float | None = None
    reason: str = ""
    error: str = ""


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


class GroupWork:
    """One membership: a client with a store in a group.

    Args:
        member: its number in the state file.
        client, topic, name: client ID, topic, and name of the group.
        store: the client's store ID (GR7).
        retries: tries of its messages.

    Attributes:
        number: of the group; 0: it was not joined yet.
        values: of the group, as the service has them.
        wish: the values that the application named.
        holdings: its records.
        pace: of the handlers.
        calls: the calls that take from the group now.
        failure: error of every call until the application subscribes again, or for a denial, until the next call.
        stop: the server's word for the reason why it hands out nothing; "".
        trouble: cause of a missing answer.
        answered_at, asked_at: time of the last answer, and of the first call since there was none.
        begun: number of the attempt by position, of attempts that are on the disk.
        ready: True if a call may begin a record now, for readers without the lock.
        losses: losses of the whole group that the application has not learned of.
        database: identifies the database with its state; "": it is a file.
        remaking: True while the group is made anew, because no holder knows it any more.
    """

    def __init__(
        self, member: int, client: str, topic: str, name: str, store: str, retries: Retries, database: str = ""
    ) -> None:
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
        self.database = database
        self.losses: list[DataLoss] = []
        self._rows = Places()
        self._stale_lanes: dict[Lane, None] = {}
        self._told: list[Position] = []
        self._ahead: dict[Position, int] = {}
        """Attempts that were counted with the end of another record, and have not begun."""
        self._answer_seconds = 0.0
        """Time that the answers to messages take which the server does not hold."""
        self._poll_at = self._sign_at = self._took_at = float("-inf")
        self._took = 0
        """Records of the last `get`, after which no call has begun."""
        self._last: Work | None = None
        self._shown = Say()
        """The records of the server's last answer, as the names of a message."""
        self._changed = self._settles = False
        self._began_at = self._idle_at = float("-inf")

    # State from the store

    def load(self, number: int, log: str, values: GroupValues, wish: Wish, cuts: int, *, left: bool) -> None:
        """Load the membership."""
        self.number, self.log, self.values, self.wish, self.cuts, self.left = number, log, values, wish, cuts, left
        self.holdings = Holdings(values.parts)

    def load_work(self, done: Places, begun: dict[Position, int], cuts: int) -> None:
        """Load the work of an earlier process, and tell it at once unless that process has left (GR8, GR23).

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

    def remade(self) -> Wish:
        """Return the wish for a group that is made anew: the values that the group had, also those of its maker."""
        if not self.number:
            return self.wish
        values = self.values
        return Wish(values.mode, values.parts, self.wish.start, values.on_lost, values.lost_ms, values.attempts)

    def passed_over(self, entry: Entry) -> None:
        """Accept the commit by which the first record of an entry is done without a handler."""
        self.row_done((Range(entry.lane[0], entry.low, entry.end(1), entry.part),))
        self.holdings.passed_over(entry)
        self.look()

    def forget(self) -> None:
        """Forget all work under an earlier number of the group."""
        self.holdings.lose_all()
        self._rows, self.begun, self.ended, self._stale_lanes, self._told = Places(), {}, {}, {}, []
        self.left = True

    # Calls

    def begin_call(self, call: GroupCall, now: float) -> None:
        """Take records for a call."""
        self.life = LIFE[self.life, CALLED]
        if call.gets and self._took:  # The pace of `get` is that of the application between two calls.
            self.pace.took((now - self._took_at) / self._took)
            self._took = 0
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
        return now - self.answered_at < LATELY_SECONDS and not self.retries.failed

    def stop_calls(self) -> None:
        """Let no further record begin in the present calls."""
        for call in self.calls:
            call.left = 0
        self.give_back_queue()

    def leave(self) -> None:
        """Give all back, and tell all that is done; a new call joins again."""
        self.life = LIFE[self.life, LEAVES]
        if self.life == LEAVING:
            self.give_back_queue()

    @property
    def settles(self) -> bool:
        """True if the service must learn, without a call, of the work of an earlier process."""
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

    def begin(self, entry: Entry, now: float) -> RecordInHand:
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

    def wants(self, hand: RecordInHand) -> None:
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
        """Return the changes that drop all that the service knows; `cleaned` follows the commit."""
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

    def taken(self, plan: Sequence[tuple[Entry, int]], now: float) -> None:
        """Accept the commit by which planned records are done."""
        ranges = []
        for entry, number in plan:
            ranges.append(Range(entry.lane[0], entry.low, entry.end(number), entry.part))
            self.holdings.queue.drop(entry, number)
        self._took_at, self._took = now, sum(number for _, number in plan)
        self.row_done(ranges)
        self.holdings.soft.update(ranges)
        self.look()

    def finished(self, hand: RecordInHand) -> None:
        """Accept the commit of a claimed record's effect."""
        self.row_done((Range(hand.log, hand.low, hand.high, hand.part),), (hand.log, hand.offset))
        self.holdings.finish(hand)
        if not self.ready:  # The end of a record makes nothing less ready.
            self.look()

    def failed(self, hand: RecordInHand, ended: Ended) -> None:
        """Give a record back after an attempt without an effect, and tell its outcome."""
        place = hand.log, hand.offset
        self.ended[place] = ended
        self.return_hand(hand)

    def return_hand(self, hand: RecordInHand) -> None:
        """Give a record in hand back; it was begun, and that is told."""
        place = hand.log, hand.offset
        if place in self.begun:
            self.ended.setdefault(place, Ended(self.begun[place]))
        self.holdings.give_back(hand)
        self._changed = True
        self.look()

    def uncounted(self, hand: RecordInHand) -> None:
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

    def is_claimed(self, hand: RecordInHand) -> bool:
        """Return True if the effect of a record may commit."""
        return hand.state == CLAIMED and not hand.over

    def is_decided(self, hand: RecordInHand) -> bool:
        """Return True if the claim of a record is granted or refused. Takes no lock."""
        return hand.state in {CLAIMED, LOST} or hand.over

    def synced(self) -> None:
        """Record an fsync of all commits so far."""
        self.holdings.synced()
