"""Pass the records of a group to a handler: its effect, its puts and the record's end are one commit, or nothing is.

A record that is only offered is claimed when its handler on a thread has to write: at the first statement of its
transaction, or after its return. So a process that ends within a handler, before that, leaves nothing in doubt. The
claim cannot wait until the commit, because an open transaction has the client's only connection to its database, and
nobody may wait for the service while it holds that (docs/explanation/client-session.md, D2).

A statement cannot be awaited. So a task awaits the claim before its handler begins, and no other task waits for that.

The rules are docs/explanation/groups.md, GR1, GR16, GR22, GR23, GR24 and GR25, and
docs/explanation/client-session.md, D14.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.handler_errors import described, located, one_line
from pubsub.client.core.changes import Change
from pubsub.client.core.group_in_hand import CLAIMED, LOST, RecordInHand
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_queue import Entry
from pubsub.client.core.group_request import attempt_error, dead_reason
from pubsub.client.core.group_work import Ended, GroupCall
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outcomes import Later, NotBegun, Reject
from pubsub.client.errors import ClaimLost
from pubsub.client.flows.apart import apart
from pubsub.client.flows.awaiting import HandlerTransaction
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.group_waits import GroupWaits
from pubsub.client.flows.handler_run import HandlerRun, NotOurs
from pubsub.client.flows.handlers import AsyncHandler
from pubsub.errors import CallerError, Interrupted
from pubsub.protocol.group_bodies import Range
from pubsub.protocol.time_to_live import is_over

AUTO: Final = "auto"
BEFORE: Final = "before"

_log: Final = logging.getLogger("pubsub.client")


def check_claim(claim: object) -> None:
    """Check the argument `claim` of `process`.

    Raises:
        CallerError: it is not allowed.
    """
    if claim not in (AUTO, BEFORE):
        raise CallerError(f'claim is "auto" or "before", not {claim!r}'[:200])


@dataclass(slots=True)
class GroupAttempt:
    """A record with a running handler."""

    hand: RecordInHand
    message: Message
    settled: bool = False
    acted: bool = True
    ahead: Entry | None = None
    size: int = 1

    @property
    def given(self) -> Message:
        """What the handler gets."""
        return self.message


class GroupTransaction(HandlerTransaction):
    """A handler's transaction, which claims its record before it begins.

    Args:
        run: the records of the call.
        attempt: the record.
    """

    def __init__(self, run: GroupProcessing, attempt: GroupAttempt) -> None:
        super().__init__(run.session, lambda: run.changes(attempt))
        self._run, self._attempt = run, attempt

    def prepare(self) -> None:
        """Wait until the record is claimed. The lock is not held."""
        if self._attempt.hand.state != CLAIMED:
            self._session.handlers.discard(self._thread)
            self._run.claim(self._attempt)

    def entered(self) -> None:
        """Check, under the lock, that the record belongs to this client."""
        self._run.check(self._attempt)


class GroupProcessing(HandlerRun[GroupAttempt]):
    """The records of a call of `process` with a group.

    Args:
        waits: the calls about groups.
        member: the membership.
        most: most records to take.
        concurrency: most handlers at a time.
        claim: AUTO or BEFORE.
        run: awaits a flow; None: the handlers run on threads.
    """

    def __init__(
        self,
        waits: GroupWaits,
        member: GroupMember,
        most: int,
        concurrency: int,
        claim: str,
        run: Callable[[Flow[Any]], Awaitable[Any]] | None = None,
    ) -> None:
        self.waits, self.session, self.member = waits, waits.session, member
        self._most, self._concurrency, self._before, self._await = most, concurrency, claim == BEFORE, run
        self._call_of: GroupCall | None = None

    # The source of a worker pool

    def wait(self, started: float, until: float) -> Flow[bool]:
        """Wait until a record is here."""
        call = GroupCall(self._concurrency, until, self._most, before=self._before)
        self._call_of = call
        try:
            return (yield from self.waits.available(self.member, call, started, until))
        except BaseException:
            self.release()
            raise

    def hold(self) -> None:
        """Go on asking for records while handlers run."""
        if self._call_of is not None:
            self._call_of.until = float("inf")

    def release(self) -> None:
        """End the call."""
        call, self._call_of = self._call_of, None
        if call is not None:
            self.waits.end_call(self.member, call)
            self.send_held()

    def stop(self) -> None:
        """Begin no further record in this call, which then ends with its handlers."""
        with self.session.lock:
            if self._call_of is not None:
                self._call_of.left = 0
                self.session.wake()

    def ready(self) -> bool:
        """Return True if a record can begin now. Takes no lock and changes nothing."""
        call = self._call_of
        return self.member.ready and call is not None and call.left > 0

    def begin(self, *, first: bool) -> GroupAttempt | int | None:
        """Begin a record, after the commit that counts the attempt. The lock is held."""
        member, call, session = self.member, self._call_of, self.session
        if call is None or call.left <= 0:
            return None
        if first and member.holdings.missing:
            raise self.waits.lose(member)
        entry = member.front(claimed=self._before)
        if entry is None:
            return None
        if self._is_expired(entry):
            self._pass_over(entry)
            return 0
        changes = member.begin_changes(entry)
        if changes:
            session.commit(changes)
        hand = member.begin(entry, session.now)
        call.left -= 1
        message = next(iter(Batch(member.topic, [hand.piece])))
        message.in_attempt(hand.attempts)
        message.in_part(hand.part)
        return GroupAttempt(hand, message)

    def _is_expired(self, entry: Entry) -> bool:
        run, index = entry.piece.run, entry.piece.start
        return bool(run.headers) and is_over(
            run.headers[index], run.stamp, int(self.session.clock.wall() * MICROSECONDS)
        )

    def _pass_over(self, entry: Entry) -> None:
        """Take a record with a time to live that has ended."""
        member, session = self.member, self.session
        done = Range(entry.lane[0], entry.low, entry.end(1), entry.part)
        fsynced = session.commit(member.done_changes((done,)))
        session.counters["expired"] += 1
        member.passed_over(entry)
        self.waits.core.group_moved(session.now, fsynced=fsynced)

    async def attempt(self, found: GroupAttempt, handler: AsyncHandler, *, awaits: bool) -> int:
        """Run the handler and commit."""
        if self._await is not None and not self.member.is_claimed(found.hand):
            found.acted = False
            began = self.session.now
            await self._await(self._claiming(found))
            self._not_handling(found.hand, self.session.now - began)
            if not self.member.is_claimed(found.hand):
                return await apart(self.session, partial(self._not_claimed, found))
            found.acted = True
        try:
            return await self.run(found, handler, awaits=awaits)
        except BaseException as error:
            found.acted = not isinstance(error, NotBegun)
            raise

    def between(self) -> None:
        """Send due messages. The lock is held.

        Usually nothing is due while records are here; to find that out is a part of the cost of each record.
        """
        session = self.session
        if session.may_send or not self.member.goes_on(session.now):
            self.send_due()

    def abandon(self, found: GroupAttempt) -> None:
        """Give back a record with an attempt that was not the handler's fault, and take back its count.

        With claim "before" the attempt counts: its handler may have done things outside (GR23). It does not count if
        the handler has not begun, such as a command that cannot be run.
        """
        session = self.session
        with session.lock:
            if found.settled or found.hand.over or session.is_cut_off:
                return
            try:
                with session.entered():
                    if self._before and found.acted:
                        self.member.return_hand(found.hand)
                    else:
                        self.member.uncounted(found.hand)
                    session.follow(only_send=True)
            except Interrupted:
                return

    # The handler

    def transaction_of(self, attempt: GroupAttempt) -> HandlerTransaction:
        """Make the transaction of a handler."""
        return GroupTransaction(self, attempt)

    def check(self, attempt: GroupAttempt) -> None:
        """Check that a record belongs to this client. The lock is held.

        Raises:
            ClaimLost: it does not.
        """
        member, hand = self.member, attempt.hand
        if not member.is_claimed(hand):
            raise ClaimLost(member.topic, member.name, attempt.message.id)
        attempt.message.doubtful = hand.piece.doubtful  # It may have been given up since its handler began.

    def claim(self, attempt: GroupAttempt) -> None:
        """Wait on this thread until the claim of a record is granted or refused, for the client's time-out at most."""
        if attempt.hand.state == CLAIMED:
            return
        session, began = self.session, self.session.now
        flow = self._claiming(attempt)
        wait = next(flow, None)
        if wait is not None:
            session.wait(wait.done, wait.deadline)
            self._not_handling(attempt.hand, session.now - began)

    def _not_handling(self, hand: RecordInHand, seconds: float) -> None:
        """Leave the wait for a claim out of the pace.

        Otherwise such waits make handlers look slow, so that their records come unclaimed, which makes them wait more.
        """
        with self.session.lock:
            hand.began += seconds

    def _claiming(self, attempt: GroupAttempt) -> Flow[None]:
        session, member, hand = self.session, self.member, attempt.hand
        with session.entered():
            if not member.is_decided(hand):
                member.wants(hand)
                session.turn()
        deadline = session.now + session.settings.timeout_seconds
        if not member.is_decided(hand):
            yield Wait(lambda: member.is_decided(hand) or session.over, deadline)

    def changes(self, attempt: GroupAttempt) -> Sequence[Change]:
        """Return the changes that commit with the handler's: the record is done, and the next one is begun."""
        member, hand, call = self.member, attempt.hand, self._call_of
        if not member.is_claimed(hand):
            raise NotOurs
        own = Range(hand.log, hand.low, hand.high, hand.part)
        done = member.done_changes((own,), (hand.log, hand.offset))
        attempt.ahead = None
        if member.pace.fast and call is not None and call.left > 0:
            entry = member.front(claimed=self._before)
            if entry is not None and not self._is_expired(entry):
                attempt.ahead = entry
                done += member.begin_changes(entry)
        return done

    def handled(self, attempt: GroupAttempt) -> None:
        """Accept the commit of a handler's transaction. The lock is held."""
        session, member = self.session, self.member
        attempt.settled = True
        if attempt.ahead is not None:
            member.ahead(attempt.ahead)
        member.finished(attempt.hand)
        member.pace.took(session.now - attempt.hand.began)
        self.waits.core.group_moved(session.now, fsynced=session.store.power_safe)
        if session.recorder is not None:
            session.recorder.delivered(member.topic, [attempt.hand.piece], handler=True)

    def failed_with(self, attempt: GroupAttempt, error: Exception) -> int:
        """Give the record back, as its handler decided, or as a failed attempt."""
        session, hand = self.session, attempt.hand
        with session.lock:
            if session.is_cut_off:
                raise error
            if hand.state == LOST or hand.over:
                return self.not_ours(attempt)
            with session.entered():
                attempt.settled = True
                return self._failed(attempt, error)

    def _failed(self, attempt: GroupAttempt, error: Exception) -> int:
        """Give the record back. The lock is held.

        Returns:
            1 if the handler decided that; otherwise the error is raised.
        """
        session, member, hand, message = self.session, self.member, attempt.hand, attempt.message
        if isinstance(error, Later):
            session.counters["put_off"] += 1
            member.failed(hand, Ended(hand.attempts, session.now + error.seconds))
        elif isinstance(error, Reject):
            session.counters["dead_letters"] += 1
            _log.error("%s of %s goes to the dead letters of group %s: %s", message.id, member.topic, member.name,
                       one_line(error.reason))  # fmt: skip
            member.failed(hand, Ended(hand.attempts, None, dead_reason(error.reason)))
        else:
            session.counters["handler_errors"] += 1
            _log.warning("handler failed on %s of %s, group %s, attempt %d: %s", message.id, member.topic, member.name,
                         hand.attempts, located(error))  # fmt: skip
            _log.debug("handler failed on %s of %s: %s", message.id, member.topic, described(error), exc_info=error)
            member.failed(hand, Ended(hand.attempts, error=attempt_error(described(error))))
            session.follow(only_send=True)
            session.let_pass(error)
            raise error
        session.follow(only_send=True)
        return 1

    def _not_claimed(self, attempt: GroupAttempt) -> int:
        """Give back a record that was not claimed, and whose handler has not begun; return 0."""
        if attempt.hand.state == LOST or attempt.hand.over:
            return self.not_ours(attempt)
        self.abandon(attempt)
        attempt.settled = True
        return 0

    def not_ours(self, attempt: GroupAttempt) -> int:
        """Forget a record that belongs to another member now, or has no claim; return 0."""
        session, member, hand = self.session, self.member, attempt.hand
        attempt.settled = True
        with session.lock:
            if session.is_cut_off:
                return 0
            session.counters["claims_lost"] += 1
            error = ClaimLost(member.topic, member.name, attempt.message.id)
            _log.warning("client %s: %s", session.name, error)
            with session.entered():
                if not hand.over:
                    member.return_hand(hand)
                session.follow(only_send=True)
        return 0
