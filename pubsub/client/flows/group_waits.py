"""Join groups, leave and end them, and wait for their records (docs/explanation/groups.md)."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from pubsub.base.limits import ATTEMPTS_MAX, LOST_SECONDS_MIN, PARTS_MAX, TOPIC_LENGTH_MAX
from pubsub.client.arguments import check_not_of_calls, check_seconds, check_truth
from pubsub.client.core.changes import Change, DeadLettered, LossRaised
from pubsub.client.core.group_core import GroupCore, allow_again
from pubsub.client.core.group_life import LEFT
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_request import Ask, Wish
from pubsub.client.core.group_work import GroupCall
from pubsub.client.core.subscription import DROPPED, PURGED, UNREADABLE
from pubsub.client.errors import GroupFull, GroupSuspended
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.session import Session
from pubsub.errors import CallerError, DataLoss, NotSubscribed, StateCopied, Superseded, Unavailable
from pubsub.protocol import check_id, check_new_topic, check_topic, format_position
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, WAIT
from pubsub.protocol.names import LATEST, Start
from pubsub.protocol.patterns import is_pattern

_REASONS: Final = {"dropped": DROPPED, "purged": PURGED}
_STOPPED: Final = "suspended"
_FULL: Final = frozenset({"dead_letters_full"})


def check_group(group: object) -> str:
    """Return the name of a group.

    Raises:
        InvalidName: it is not allowed.
    """
    return check_id("group", group)  # type: ignore[arg-type]


def check_one_topic(topic: object) -> None:
    """Check that no pattern of topics is named for a group.

    Raises:
        CallerError: one is.
    """
    if isinstance(topic, str) and is_pattern(topic):
        raise CallerError(
            f"{topic[:TOPIC_LENGTH_MAX]} is a pattern of topics, and a consumer group is of one topic: name that topic,"
            " or subscribe to the pattern without a group"
        )


class GroupOptions(TypedDict, total=False):
    """The values of a group that a call of `subscribe` may name: see there."""

    mode: Literal["shared", "keyed"] | None
    parts: int | None
    on_lost: Literal["wait", "redeliver"] | None
    lost_seconds: float | None
    attempts: int | None


def make_wish(start: Start | None, options: GroupOptions) -> Wish:
    """Return the values that a call of `subscribe` names of a group.

    Raises:
        CallerError: a value is not allowed.
    """
    mode, parts, attempts = options.get("mode"), options.get("parts"), options.get("attempts")
    on_lost, lost_seconds = options.get("on_lost"), options.get("lost_seconds")
    for name in options:
        if name not in GroupOptions.__annotations__:
            raise CallerError(f"subscribe has no argument {name!r}"[:200])
    if mode not in (None, SHARED, KEYED):
        raise CallerError(f'mode is "shared" or "keyed", not {mode!r}'[:200])
    if on_lost not in (None, WAIT, REDELIVER):
        raise CallerError(f'on_lost is "wait" or "redeliver", not {on_lost!r}'[:200])
    if parts is not None and mode == SHARED:
        raise CallerError("a shared group has no parts; parts belong to mode keyed")
    _check_number("parts", parts, PARTS_MAX)
    _check_number("attempts", attempts, ATTEMPTS_MAX)
    check_seconds("lost_seconds", lost_seconds)
    if lost_seconds is not None and lost_seconds < LOST_SECONDS_MIN:
        raise CallerError(f"lost_seconds is {LOST_SECONDS_MIN} at least, not {lost_seconds:g}")
    named = KEYED if mode is None and parts is not None else mode
    milliseconds = 0 if lost_seconds is None else int(lost_seconds * 1000)
    begins = LATEST if start is None else start
    return Wish(named or "any", parts or 0, begins, on_lost or "", milliseconds, attempts or 0)


def _check_number(name: str, value: int | None, most: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
        raise CallerError(f"{name} is a number from 1 to {most:,}, not {value!r}"[:200])


class GroupWaits:
    """The calls about groups on one session."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def core(self) -> GroupCore:
        return self.session.core

    # Joining and ending

    def subscribe(
        self,
        topic: str,
        group: str,
        wish: Wish,
        timeout: float | None,
        *,
        fresh: bool = False,
        service: bool = False,
    ) -> Flow[None]:
        """Make a group, or join it."""
        session = self.session
        if fresh:
            raise CallerError(
                "fresh drops a backlog, and that of a group belongs to all its members: end_group ends it"
            )
        if not service:
            check_not_of_calls(topic)
            check_one_topic(topic)
            check_new_topic(topic)
        until = session.until(timeout)
        check_group(group)
        with session.entered():
            session.check_may_wait()
            session.check_disk()
            member = self.core.membership(topic, group)
            if isinstance(member.failure, StateCopied):
                raise member.failure
            if isinstance(member.failure, Superseded):
                self.core.numbers.reopen()
            ask = self.core.ask_group(member, True, wish, until)
            session.turn()
        yield from self._answer(member, ask, until, timeout, "subscribe")

    def end(self, topic: str, group: str, timeout: float | None, *, force: bool) -> Flow[None]:
        """End a group for all its members."""
        check_truth("force", force)
        session = self.session
        check_topic(topic)
        check_group(group)
        until = session.until(timeout)
        with session.entered():
            session.check_may_wait()
            session.check_disk()
            member = self.core.membership(topic, group)
            ask = self.core.ask_group(member, False, member.wish, until, force=force)
            session.turn()
        yield from self._answer(member, ask, until, timeout, "unsubscribe")

    def _answer(self, member: GroupMember, ask: Ask, until: float, timeout: float | None, word: str) -> Flow[None]:
        session, refusing = self.session, self.core.refusing

        def done() -> bool:
            return ask.done or session.over or refusing.closed

        while not done():
            if not (yield Wait(done, until)):
                break
        if ask.failure is not None:
            raise ask.failure
        session.check_usable()
        session.check_open()
        if not ask.done:
            refusing.check()
            seconds = session.settings.timeout_seconds if timeout is None else timeout
            raise Unavailable(word, member.topic, seconds, ask.trouble or session.silence)

    def joined(self, topic: str, group: str) -> GroupMember:
        """Return a membership.

        Raises:
            NotSubscribed: the client did not join the group.
        """
        check_one_topic(topic)
        found = self.core.members.get((check_topic(topic), check_group(group)))
        if found is None or not found.number:
            raise NotSubscribed(self.session.name, topic, group=group)
        return found

    def member_of(self, topic: object, group: str) -> GroupMember:
        """Return the membership for a call of `process`.

        Raises:
            CallerError: several topics are named.
            NotSubscribed: the client did not join the group.
        """
        if not isinstance(topic, str):
            raise CallerError("a consumer group is of one topic: name it alone")
        with self.session.entered():
            return self.joined(topic, group)

    def leave(self, topic: str, group: str, timeout: float | None) -> Flow[None]:
        """Give all back, after the handlers that run have ended."""
        session = self.session
        until = session.until(timeout)
        with session.entered():
            session.check_may_wait()
            member = self.joined(topic, group)
            member.stop_calls()
        hands = member.holdings.hands
        if hands and not session.over:
            yield Wait(lambda: not hands or session.over, until)
        with session.entered():
            self.begin_leaving(member)
            session.turn()
        yield Wait(lambda: member.life == LEFT or member.failure is not None or session.over, until)
        session.check_open()
        if member.failure is not None:
            raise member.failure
        if member.life != LEFT:
            seconds = session.settings.timeout_seconds if timeout is None else timeout
            raise Unavailable("leave", topic, seconds, member.trouble or session.silence)

    def begin_leaving(self, member: GroupMember) -> None:
        """Give back the records of handlers, and let the last message go out. The lock is held."""
        member.lose_hands()
        self.session.sync()  # The last message must tell all that is done.
        member.leave()

    # Waiting

    def available(self, member: GroupMember, call: GroupCall, started: float, until: float) -> Flow[bool]:
        """Begin a call, and wait until a record may begin; False: none came. `end` must follow.

        Raises:
            PubsubError: as `Client.get`.
        """
        session, refusing = self.session, self.core.refusing
        with session.entered():
            session.check_may_wait()
            session.check_disk()
            if refusing.closed:
                refusing.called = True
            allow_again(member)
            opening = member.opening()
            if opening:
                session.commit(opening)
                member.opened()
            member.begin_call(call, session.now)
            session.turn()

        def done() -> bool:
            told = member.failure is not None or member.losses or member.holdings.missing
            return bool(member.ready or told or member.stop in _FULL or member.stop == _STOPPED)

        while True:
            if not (done() or session.over or refusing.closed):
                yield Wait(lambda: done() or session.over or refusing.closed, until)
            with session.entered():
                if member.ready:
                    return True
                self._raise(member)
            session.check_usable()
            session.check_open()
            refusing.check()
            if session.now >= until:
                self._check_answer(member, started, until)
                return False

    def end_call(self, member: GroupMember, call: GroupCall) -> None:
        """End a call; the records that it has not taken go back unless another call comes soon."""
        with self.session.lock:
            member.end_call(call, self.session.now)
            if not self.session.is_cut_off:
                self.session.wake()

    def _raise(self, member: GroupMember) -> None:
        """Raise the news for a call. The lock is held."""
        if member.failure is not None:
            raise member.failure
        if member.losses or member.holdings.missing:
            raise self.lose(member)
        if member.stop == _STOPPED:
            raise GroupSuspended(member.topic, member.name)
        if member.stop in _FULL:
            raise GroupFull(member.topic, member.name, member.stop)

    def lose(self, member: GroupMember) -> DataLoss:
        """Keep a loss as a dead letter, tell it as done, and return its error. The lock is held."""
        session = self.session
        if member.losses:
            error = member.losses.pop(0)
            session.commit(_letter(error, session.clock.wall()))
            return error
        missing = member.holdings.missing[0]
        log, low, high, _ = missing.range
        reason = _REASONS.get(missing.reason, UNREADABLE)
        error = DataLoss(member.topic, format_position((log, low)), format_position((log, high - 1)), reason)
        session.commit([*_letter(error, session.clock.wall()), *member.done_changes((missing.range,))])
        member.row_done((missing.range,))
        member.holdings.told_missing(missing)
        member.look()
        self.core.group_moved(session.now, fsynced=True)
        session.send()
        return error

    def _check_answer(self, member: GroupMember, started: float, until: float) -> None:
        """Check, at the end of a wait, that the service has answered lately.

        Raises:
            Unavailable: it has not.
        """
        session = self.session
        if until <= started:
            return
        patience = session.settings.timeout_seconds
        silent = session.now - max(member.answered_at, member.asked_at)
        if member.answered_at < started and (member.trouble or round(silent, 3) >= patience):
            reason = member.trouble or session.silence
            raise Unavailable("get", member.topic, round(until - started, 3), reason)


def _letter(error: DataLoss, at: float) -> list[Change]:
    """Return the changes that keep a loss, which is raised at once."""
    letter = DeadLettered(error.topic, error.first, error.last, "", 0, 0, None, error.reason, 0, at)
    return [letter, LossRaised(error.topic)]
