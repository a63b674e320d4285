"""The core of a client, with its memberships in consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from pubsub.client.core.changes import GroupForgotten, GroupJoined, GroupOpened
from pubsub.client.core.core import ASKED_MAX, SYNC_SECONDS, CoreSettings
from pubsub.client.core.effects import Due, Outgoing
from pubsub.client.core.group_looks import Silent, silent_member
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_places import Places
from pubsub.client.core.group_request import Ask, Wish, error_of
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.pattern_core import PatternCore
from pubsub.client.core.rights import refusal
from pubsub.client.core.subscription import NO_LOG
from pubsub.client.errors import GroupDiffers, GroupEnded, GroupFull
from pubsub.errors import DataLoss, DecodeError, NotAllowed, PubsubError, StateCopied, Superseded
from pubsub.protocol import Message, Outcome, Records, Status
from pubsub.protocol.group_bodies import GroupValues, Holding, Range, decode_values, encode_values, split_holdings
from pubsub.protocol.groups import Work
from pubsub.protocol.names import LATEST

UNKNOWN_MAX: Final = 3
"""Answers in a row that a group is unknown, for each proxy, after which the member makes the group anew."""

NO_GROUP: Final = "no server knows group {} any more: its topic was deleted, or the server that held it was given up"
LATER: Final = "a_later_message_came"
OPENED_AGAIN: Final = "opened_again"


class _Flight(NamedTuple):
    member: GroupMember
    sent: Work | Ask
    proxy: int
    number: int


class GroupCore(PatternCore):
    """A client's core that also decides about groups; arguments as for `ClientCore`.

    Attributes:
        members: by topic and name of the group; former: under an earlier store ID, only to give back their records.
        silent, settling: members to be looked up in the client's database, and messages about those that were.
    """

    def __init__(
        self,
        settings: CoreSettings,
        numbers: Numbers,
        cuts: int,
        load_taken: Callable[[str], dict[str, int]],
        wall: Callable[[], float],
    ) -> None:
        super().__init__(settings, numbers, cuts, load_taken, wall)
        self.members, self.former = dict[tuple[str, str], GroupMember](), list[GroupMember]()
        self.silent, self.settling, self._settled = list[Silent](), list[tuple[GroupMember, Work]](), list[int]()
        self._last_member, self.cuts, self._group_flights = 0, cuts, dict[int, _Flight]()

    # State

    def load_groups(
        self, rows: Iterable[tuple[int, str, str, str, int, str, str, str, int, bool]]
    ) -> list[GroupMember]:
        """Load memberships in the form of `Store.groups`; return them."""
        found = []
        for member, topic, name, store, number, log, values, wish, cuts, left in rows:
            which = member, self.settings.client, topic, name, store
            made = GroupMember(*which, self._retries(), self.settings.database)
            made.load(number, log, decode_values(values.encode("ascii")), Wish.of(wish), cuts, left=left)
            self._last_member = max(self._last_member, member)
            if store == self.publisher:
                self.members[topic, name] = made
            else:
                made.leave()
                self.former.append(made)
            found.append(made)
        return found

    def load_group_work(
        self, member: GroupMember, done: Iterable[tuple[str, int, int, int]], begun: Iterable[tuple[str, int, int]]
    ) -> None:
        """Load the work of a membership, in the forms of `Store.group_done` and `Store.group_begun`."""
        places = Places(Range(log, low, high, None if part < 0 else part) for log, part, low, high in done)
        member.load_work(places, {(log, offset): attempts for log, offset, attempts in begun}, self.cuts)

    def membership(self, topic: str, name: str) -> GroupMember:
        """Return the membership in a group, and make one that was not joined if there is none."""
        found = self.members.get((topic, name))
        if found is None:
            self._last_member += 1
            which = self._last_member, self.settings.client, topic, name, self.publisher
            found = GroupMember(*which, self._retries(), self.settings.database)
            found.cuts = found.cuts_now = self.cuts
            self.members[topic, name] = found
        return found

    def all_members(self) -> list[GroupMember]:
        """Return all memberships."""
        return [*self.members.values(), *self.former] if self.former else list(self.members.values())

    # Calls

    def ask_group(self, member: GroupMember, on: bool, wish: Wish, until: float, *, force: bool = False) -> Ask:
        """Make or join a group, or end it."""
        if self.refusing.closed:
            self.refusing.called = True
        member.ask = Ask(on, wish, until, self._retries(), force)
        return member.ask

    def group_moved(self, now: float, *, fsynced: bool) -> None:
        """Record a commit with effects of a group's records."""
        if fsynced:
            self.synced()
        elif self.sync_at is None:
            self.sync_at = now + SYNC_SECONDS

    def synced(self) -> None:
        """Record an fsync of all commits so far."""
        super().synced()
        for member in self.all_members():
            member.synced()

    def group_renewal(self, store: str) -> list[GroupJoined]:
        """Return the changes by which another store ID is a member of each group; `groups_renewed` follows."""
        return [
            GroupJoined(
                self._last_member + place, member.topic, member.name, store, member.number, member.log,
                encode_values(member.values).decode("ascii"), member.wish.text(),
            )
            for place, member in enumerate(self.members.values(), 1)
        ]  # fmt: skip

    def groups_renewed(self, changes: Iterable[GroupJoined]) -> None:
        """Accept the commit of `group_renewal`: the earlier store IDs give back their records."""
        former, self.members = list(self.members.values()), {}
        for change, before in zip(changes, former, strict=True):
            before.lose_hands()
            before.leave()
            self.former.append(before)
            made = self.membership(change.topic, change.name)
            made.store = change.store
            made.load(before.number, before.log, before.values, before.wish, self.cuts, left=True)

    # Answers

    def receive(self, token: int, status: Status, now: float) -> None:
        """Handle the answer to the message sent with `token`; ignore an answer that is no longer expected."""
        flight = self._group_flights.pop(token, None)
        if flight is None:
            super().receive(token, status, now)
            return
        member, sent = flight.member, flight.sent
        if isinstance(sent, Ask):
            if member.ask is sent and not sent.done:
                self._asked(member, sent, status, flight, now)
        elif member.sent is not None and member.sent.work is sent:
            self._worked(member, sent, status, flight.proxy, now)

    def _forget(self, tokens: list[int]) -> None:
        for token in tokens:
            if self._group_flights.pop(token, None) is not None:
                self.flights.forgotten.append(token)
        tokens.clear()

    # Answers to requests about a group

    def _asked(self, member: GroupMember, ask: Ask, status: Status, flight: _Flight, now: float) -> None:
        values = _values(status)
        if status.outcome is Outcome.SUCCESS and (values is not None or not ask.on):
            self._forget(ask.tokens)
            self.proxy = flight.proxy
            self._granted(member, ask, status, values, now)
        elif status.outcome is Outcome.SUPERSEDED and not ask.begun_anew:
            ask.begun_anew, ask.deadline = True, None
            try:
                self.numbers.reopen(status.number)
            except PubsubError as error:
                self._ask_failed(ask, error)
        elif (found := _ask_error(self.settings.client, member, ask, status, values)) is not None:
            self._ask_failed(ask, found)
        else:
            ask.trouble = status.reason.replace("_", " ") or str(status.outcome)
            ask.deadline = now + ask.retries.patience
            _follow(member, status)

    def _granted(self, member: GroupMember, ask: Ask, status: Status, values: GroupValues | None, now: float) -> None:
        if not ask.on:
            self.due.append(Due([GroupForgotten(member.member)], partial(self._ended, member, ask)))
            return
        assert values is not None
        log = status.log or member.log
        text = encode_values(values).decode("ascii")
        change = GroupJoined(
            member.member, member.topic, member.name, member.store, status.number, log, text, ask.wish.text()
        )

        def then() -> None:
            if status.number != member.number:
                self._drop_flight(member)
                if member.remaking and member.number and not member.losses:
                    member.losses.append(DataLoss(member.topic, "-1", "-1", NO_GROUP.format(member.name)))
            member.joined(status.number, log, values, ask.wish)
            member.answered_at = now
            ask.done = True

        self.due.append(Due([change], then))

    def _ended(self, member: GroupMember, ask: Ask) -> None:
        ask.done = True
        member.end(GroupEnded(member.topic, member.name))
        self._drop_flight(member)
        self.members.pop((member.topic, member.name), None)

    def _ask_failed(self, ask: Ask, error: PubsubError) -> None:
        self._forget(ask.tokens)
        ask.failure, ask.done = error, True

    # Answers to WORK

    def _worked(self, member: GroupMember, work: Work, status: Status, proxy: int, now: float) -> None:
        outcome = status.outcome
        if outcome is Outcome.SUCCESS:
            self._shown(member, work, status, proxy, now)
        elif outcome is Outcome.SUPERSEDED:
            self._superseded(member, work, status)
        elif outcome is Outcome.GONE:
            self._group_lost(member, now)
        elif outcome is Outcome.FULL and status.reason == "members_max":
            self._drop_flight(member)
            member.deny(GroupFull(member.topic, member.name, status.reason))
        elif outcome in {Outcome.REFUSED, Outcome.DENIED}:
            self._drop_flight(member)
            member.deny(refusal(self.settings.client, "get", member.topic, status))
        else:
            self._worked_later(member, status, now)

    def _shown(self, member: GroupMember, work: Work, status: Status, proxy: int, now: float) -> None:
        try:
            lines, records = read_answer(status)
        except DecodeError:
            self._worked_later(member, status, now, "an answer that is damaged")
            return
        if any((one.range.part is None) == bool(member.values.parts) for one in lines):
            self._worked_later(member, status, now, "an answer for a group of another mode")
            return
        self._drop_flight(member, keep=True)
        member.log = status.log or member.log
        member.retries.restart(proxy)
        self.proxy = proxy
        self.silent += silent_member(member, work.subscription, status.silent)
        member.answered(work, lines, records, status.reason, now)
        if work.leave and not member.left:
            change = GroupOpened(member.member, True, member.cuts)
            self.due.append(Due([change, *member.cleanup(), *member.attempts_told()], partial(self._left, member)))
        elif work.cut:  # Otherwise each later process would tell it again, and count an attempt at all its claims.
            self.due.append(Due([GroupOpened(member.member, member.left, member.cuts)]))

    def _left(self, member: GroupMember) -> None:
        member.left = True
        member.cleaned()
        if member in self.former:
            self.former.remove(member)
            self.due.append(Due([GroupForgotten(member.member)]))

    def _superseded(self, member: GroupMember, work: Work, status: Status) -> None:
        self.check_life()
        if status.reason == LATER:
            if status.number > self.numbers.highest:
                evidence = f"group {member.name} of {member.topic} has a later message of this client"
                member.end(StateCopied(self.settings.client, self.settings.path, evidence))
            elif status.number > work.number:
                self._drop_flight(member)
                member.sent = None
            return
        self._drop_flight(member)
        if status.reason == OPENED_AGAIN:
            member.end(Superseded(self.settings.client, member.topic))
            return
        member.end(GroupEnded(member.topic, member.name, again="again" in status.reason))
        self.due.append(Due([GroupForgotten(member.member)], member.forget))

    def _group_lost(self, member: GroupMember, now: float) -> None:
        """Make a group anew after the log that held it was given up, and tell the application of the loss."""
        self._drop_flight(member)
        member.sent = None
        member.losses.append(DataLoss(member.topic, "-1", "-1", NO_LOG))
        member.holdings.lose_all()
        member.remaking = True
        self.ask_group(member, True, member.remade()._replace(start=LATEST), float("inf"))

    def _worked_later(self, member: GroupMember, status: Status, now: float, trouble: str = "") -> None:
        """Send the same message again later."""
        assert member.sent is not None
        member.trouble = trouble or status.reason.replace("_", " ") or str(status.outcome)
        member.sent.deadline = now + member.retries.patience
        _follow(member, status)
        if status.outcome is Outcome.UNKNOWN:
            member.unknown += 1
            if member.unknown >= UNKNOWN_MAX * self.settings.proxies and member.ask is None:
                member.remaking = True
                self.ask_group(member, True, member.remade(), float("inf"))

    def _drop_flight(self, member: GroupMember, *, keep: bool = False) -> None:
        """Expect no answer any more. `keep`: the message itself is needed."""
        if member.sent is not None:
            self._forget(member.sent.tokens)
            if not keep:
                member.sent = None

    # Sending

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the messages to send now, and count them as sent."""
        out = super().outgoing(now)
        if not self.members and not self.former:
            return out
        for member in self.all_members():
            if member.ask is not None:
                self._send_ask(member, member.ask, out, now)
            before = member.sent
            work = member.next_work(now, self.numbers.take, self.numbers.epoch)
            if work is not None:
                assert member.sent is not None
                if before is not None and before is not member.sent:
                    self._forget(before.tokens)
                out.append(self._group_out(member, work, member.sent.tokens, member.retries.proxy, work.number))
        if self.settling:
            settling, self.settling = self.settling, []
            self._forget(self._settled)
            out += [self._group_out(one, work, self._settled, one.retries.proxy, work.number) for one, work in settling]
        return out

    def _send_ask(self, member: GroupMember, ask: Ask, out: list[Outgoing], now: float) -> None:
        if member.remaking and isinstance(ask.failure, GroupDiffers) and ask.wish.mode != Wish().mode:
            # Another member made the group again, and its values were changed: they are taken as they are.
            ask = self.ask_group(member, True, Wish(start=ask.wish.start), ask.until)
        if ask.done or now >= ask.until:
            member.ask = None
            if ask.done and member.remaking and ask.failure is not None:
                member.remaking = False
                member.deny(ask.failure)
            return
        if ask.deadline is not None and now < ask.deadline:
            return
        number = self.numbers.take()
        ask.deadline = now + ask.retries.patience
        message = ask.message(
            self.settings.client, member.topic, member.name, number, self.numbers.epoch, member.log, member.avoid
        )
        if len(ask.tokens) >= ASKED_MAX:
            self._forget(ask.tokens)
        out.append(self._group_out(member, ask, ask.tokens, ask.retries.proxy, number, message))

    def _group_out(
        self, member: GroupMember, sent: Work | Ask, tokens: list[int], proxy: int, number: int,
        message: Message | None = None,
    ) -> Outgoing:  # fmt: skip
        token = self.flights.take_token()
        tokens.append(token)
        self._group_flights[token] = _Flight(member, sent, proxy, number)
        if message is None:
            assert isinstance(sent, Work)
            message = sent
        return Outgoing(token, proxy, message)

    # Time

    def tick(self, now: float) -> None:
        """Handle expired deadlines."""
        super().tick(now)
        for member in self.all_members():
            member.tick(now)
            ask = member.ask
            if ask is not None and not ask.done and ask.deadline is not None and now >= ask.deadline:
                ask.retries.fail()

    def deadline(self) -> float | None:
        """Return the next time at which `tick` or `outgoing` has work; None: not before the next call or answer."""
        due = super().deadline()
        if not self.members and not self.former:
            return due
        at = float("inf")
        for member in self.all_members():
            at, ask = min(at, member.deadline()), member.ask
            if ask is not None and not ask.done and ask.deadline is not None:
                at = min(at, ask.deadline)
        return due if at == float("inf") else at if due is None else min(due, at)


def allow_again(member: GroupMember) -> None:
    """Allow a new request, for a call, after a denial or a limit."""
    if isinstance(member.failure, NotAllowed | GroupFull):
        member.failure = None


def read_answer(status: Status) -> tuple[tuple[Holding, ...], Records | None]:
    """Return the lines of an answer to WORK, and its records.

    Raises:
        DecodeError: it is damaged.
    """
    lines, raw = split_holdings(status.body)
    if raw and crc32(raw) != status.checksum:
        raise DecodeError("a body that does not match its checksum")
    return lines, Records(raw) if raw else None


def _follow(member: GroupMember, status: Status) -> None:
    """Go to the holder that an answer names, or away from the one that does not know the group."""
    if status.outcome is Outcome.MOVED:
        member.log = status.log or member.log
    elif status.outcome is Outcome.UNKNOWN:
        member.avoid = status.log


def _ask_error(
    client: str, member: GroupMember, ask: Ask, status: Status, values: GroupValues | None
) -> PubsubError | None:
    found = error_of(member.topic, member.name, status, values)
    if found is not None:
        return found
    if status.outcome is Outcome.SUPERSEDED:
        return GroupEnded(member.topic, member.name, again=not ask.on)
    if status.outcome in {Outcome.REFUSED, Outcome.DENIED, Outcome.GONE}:
        return refusal(client, "subscribe" if ask.on else "unsubscribe", member.topic, status)
    return None


def _values(status: Status) -> GroupValues | None:
    """Return the values of a group in an answer; None: it has none."""
    try:
        return decode_values(status.body) if len(status.body) else None
    except DecodeError:
        return None
