"""Decide about the messages of a consumer group's member (docs/explanation/groups.md, GR26).

One message says everything: finished records, records that the member goes on with, claims that it asks for, and how
much more it wants. All else goes back. So a lost message needs no repair but the next one.

At most one message waits for its answer. If the server may hold it (a long poll), the next one replaces it as soon as
there is news. Otherwise news wait for its answer, and without an answer in time the same message goes out again, under
the same number: whichever copy arrives first counts. An answer to another message than the last one is ignored (GR5).

The rules are docs/explanation/groups.md, GR4, GR5, GR8, GR9, GR22 and GR23.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pubsub.base.limits import CLAIMED_BYTES_MAX, CLAIMED_RECORDS_MAX, WORK_LINES_MAX
from pubsub.client.core.group_in_hand import ASKING
from pubsub.client.core.group_life import ANSWERED, ENDED, ENDS, LEAVING, LEFT, LIFE, NEW
from pubsub.client.core.group_places import Places
from pubsub.client.core.group_work import Ended, GroupWork, Sent
from pubsub.client.core.retries import TRY_SECONDS_MAX
from pubsub.errors import PubsubError
from pubsub.protocol import Position, Records
from pubsub.protocol.group_bodies import HELD, OFFERED, Dead, Holding, Later, Say, Tried
from pubsub.protocol.groups import Work

HEARTBEAT_SECONDS: Final = 1.0
"""Interval of the messages of a member that holds something."""

TELL_SECONDS: Final = 0.25
"""Longest time until done work is told, if no other message tells it."""

BUSY_SECONDS: Final = 0.5
"""Time for which all handlers are busy before records that they have not begun go back."""

IDLE_SECONDS: Final = 0.1
"""Time without a call before records that no handler has begun go back."""

WAIT_SECONDS: Final = 10.0
"""Longest time for which the server may hold a message."""

SLOW_FACTOR: Final = 3.0
"""Times of the usual time of an answer after which a message goes out again."""

TELL_MAX: Final = WORK_LINES_MAX // 4
"""Most ranges done, and most ended attempts, in one message. The others are in the next one."""

NAMES_MAX: Final = WORK_LINES_MAX // 2
"""Most ranges that a member names as kept or offered; with more, records that no handler has begun go back."""

POLL_SECONDS: Final = 1.0
"""Time between two messages of a member to which the server hands out nothing, for a reason."""


class GroupMember(GroupWork):
    """Decides about a member's messages; arguments and attributes as of `GroupWork`."""

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
            ahead = max(left, self.pace.ahead(1))
            want = ahead - queued if queued < left or queued <= ahead // 2 else 0
        elif self.pace.fast:
            ahead = min(self.pace.ahead(workers), max(0, left))
            want = ahead - queued if queued <= ahead // 2 else 0
        else:
            want = min(workers - held, left) - queued
        if want > 0 and self.holdings.soft:  # The server counts them until it is told that they are done.
            room -= self.holdings.soft.records()
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
        return self._compose(now, take(), epoch) if self._goes_out(now) else None

    def _goes_out(self, now: float) -> bool:
        """Return True if a new message should go out."""
        sent = self.sent
        return self._is_due(now) if sent is None else sent.parked and self._has_news(now)

    def goes_on(self, now: float) -> bool:
        """Return True if a record can begin now, and no message is due."""
        if not self.ready or self.ask is not None or (self.sent is not None and now >= self.sent.deadline):
            return False
        return not self._goes_out(now)

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
        tells = bool(claims or say.done or ended)  # News must be answered, or it is told again and again.
        if want and not tells and self.life != NEW:
            until = max(call.until for call in self.calls)
            wait = 0.0 if self.retries.failed else min(WAIT_SECONDS, max(0.0, until - now))
        work = Work(
            self.client, self.topic, self.name, self.number, number, self.store, epoch,
            records_max=want, bytes_max=CLAIMED_BYTES_MAX if want else 0, wait_ms=int(wait * 1000),
            claim=int(bool(want) and (self.before or self.pace.fast)), cut=int(self.cuts_now > self.cuts),
            leave=int(leaves), log=self.log, avoid=self.avoid, database=self.database, say=say,
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
        """Return the time at which records that no handler has begun go back (GR22)."""
        if not self.holdings.queue:
            return float("inf")
        if not self.calls:
            return max(self._idle_at, self.answered_at) + IDLE_SECONDS
        workers = sum(call.workers for call in self.calls)
        busy = len(self.holdings.hands) >= workers or not any(call.left for call in self.calls)
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
            tried.append(Tried(log, offset, one.attempts, one.error))
    return tuple(tried), tuple(later), tuple(dead)
