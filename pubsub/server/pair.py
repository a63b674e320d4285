"""A server's process as one member of a pair: it carries the member's messages over sockets and does its disk work.

    standby   `Following`'s loop: its own link to the primary, and to the proxies only messages about the register
    primary   beside the server's loop: members' messages arrive at the server's own address and are answered there

The standby connects, and the primary answers over the connection of the last FOLLOW. With keys, the peer on that link
must have a key that is authorized for this very server and is not this member's own. `standby.member` makes the
decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError, DecodeError, StoreFull
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import Frames
from pubsub.protocol.codec import decode, encode
from pubsub.protocol.messages import Message, Outcome, Status
from pubsub.protocol.register import Forget, Vote
from pubsub.protocol.standby import Ack, Copy, Entries, Follow, Repair
from pubsub.server.core import ServerCore
from pubsub.server.links import GOODBYE_MS
from pubsub.server.standby import membership
from pubsub.server.standby.disk.copying import Getting, Giving
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.election.failure_detector import times_of
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.member import NO_STORE, Member, Role
from pubsub.server.standby.operator_requests import OperatorRequests
from pubsub.server.standby.repairs import BatchRepairs
from pubsub.server.standby.replication.entries import Entry
from pubsub.server.standby.status import CHANGES, StandbyStatus
from pubsub.server.state.replies import LISTENER, Origin

if TYPE_CHECKING:
    from random import Random

DRAIN_MAX: Final = 256
"""Messages received from one socket before the standby writes."""

FRAMES_MAX: Final = 1 << 16
"""Most frames of one message between two members; a message with more is dropped."""

APPLY_SECONDS: Final = 0.02
"""A standby applies entries at most this often, in one transaction. No request waits for it: the entries are synced."""

APPLY_RETRY_SECONDS: Final = 0.5
"""The same interval after the standby's disk was full."""

_log: Final = logging.getLogger(__name__)


class Wires(Protocol):
    """The transport of a member's messages; see `Links`."""

    def dealer(self, address: str) -> Any: ...

    def to_member(self, address: str) -> Any: ...

    def ended(self, sock: Any) -> bool:
        """Return True if the connection of a socket to the other member has ended since the last call."""

    def close(self, sock: Any, linger_ms: int = 0) -> None:
        """Close a socket; its last messages have `linger_ms` milliseconds to leave."""

    def receive(self, sock: Any) -> Frames | None:
        """Receive the next message; None if there is none."""

    def send(self, sock: Any, frames: list[Any]) -> bool:
        """Send a message; return False if the socket cannot take it."""


class Pair:
    """One member, with its disk and its sockets.

    Args:
        address: the address at which the other member reaches this one.
        local: the member's own durable facts, which exist already.
        disk: open.
        wires: the transport of its messages.
        random: source of tokens and waits.
        now: monotonic seconds.

    Attributes:
        member: makes the decisions.
        loops: a primary's held answers, for `GroupCommit`.
    """

    def __init__(
        self,
        settings: ServerSettings,
        address: str,
        local: LocalFile,
        disk: MemberDisk,
        wires: Wires,
        random: Random,
        now: float,
    ) -> None:
        self._settings, self._address, self._local = settings, address, local
        self._proxies, self.disk, self._wires, self._random = membership.digest(settings.proxies), disk, wires, random
        self._times = times_of(settings)
        self.loops: HeldAnswers | None = None
        self.dealers: list[Any] = []
        self.link: Any = None
        self._link_to, self._link_heard = "", now
        self._listener: Any = None
        self._route = b""
        self._refused = ""
        self._answered, self._ready_by = False, now + self._times.patience
        self._apply_at, self._wall_ms = float("-inf"), 0
        self._status = StandbyStatus(now)
        self._make_member(now)

    @property
    def is_founding(self) -> bool:
        """True if this member is the first of its store, and does not know yet that the store has a register."""
        return not self.member.registered

    def _make_member(self, now: float) -> None:
        """Make the member. Without a store it gets its store ID with the first copy, and this is then called again."""
        local = self._local.local
        assert local is not None
        store = NO_STORE if self.disk.store is None else self.disk.store.store_id
        identity = Identity(self._settings.id, store, local.member, self._address)
        self.member = Member(
            identity,
            self._settings.proxies,
            self._times,
            self._random,
            now,
            registered=local.registered,
            eligible=not local.lost,
        )
        self.giving = Giving(identity, self.disk, self._times.beat)
        self.getting = Getting(identity, self.disk, self._times.beat)
        self.batch_repairs = BatchRepairs(identity, self.disk, self._times.beat)

    # As standby

    def follow(self, now: float, wall_ms: int, resume_after: float = 0.0) -> None:
        """Become a standby: at the start, after a term, or after a term that could not begin. See `Member.follow`.

        Raises:
            ConfigurationError, StorageError: a socket cannot be opened, or the disk failed.
        """
        if self.disk.store is None:
            membership.see_whom(self._settings, self._address)
        self.giving.close()
        self.loops, self._listener, self._route = None, None, b""
        staged: Sequence[Entry] = ()
        if self.member.leading is None:
            end, staged = self.disk.end, self.disk.staged
        else:
            end = self.disk.step_down()
        self.member.follow(end, staged, now, wall_ms, resume_after)
        self.dealers = [self._wires.dealer(proxy) for proxy in self._settings.proxies]

    def turn(self, ready: Container[Any], now: float, wall_ms: int) -> None:
        """Run one turn of a standby: receive, write and sync, acknowledge, apply.

        Args:
            ready: the readable sockets.
            now: monotonic seconds.
            wall_ms: the wall clock, in milliseconds since 1970.

        Raises:
            ConfigurationError, StorageError: the disk failed, or the primary is of a later release.
        """
        self._wall_ms = wall_ms
        for place, dealer in enumerate(self.dealers):
            if dealer in ready:
                self._drain_proxy(place, dealer, now)
        if self.link is not None:
            self._drain_link(now)
            if self._wires.ended(self.link):  # After all messages that arrived before the end.
                self.member.link_ended(now)
        self.member.tick(now, wall_ms)
        following = self.member.following if self.member.role is Role.STANDBY else None
        if following is not None:
            self.disk.write(following)
        self._connect(now)
        self.send(now)  # Clients of the primary wait for the acknowledgement.
        if following is not None and following.may_apply and now >= self._apply_at:
            self._apply_at = now + (APPLY_SECONDS if self.disk.apply(following) else APPLY_RETRY_SECONDS)
            self.send(now)  # Only now may the store answer requests for a batch that is damaged at the primary.
        self._keep()

    def _drain_proxy(self, place: int, dealer: Any, now: float) -> None:
        for _ in range(DRAIN_MAX):
            frames = self._wires.receive(dealer)
            if frames is None:
                return
            message = decoded(frames[1:])
            if isinstance(message, Vote):
                self.member.vote(place, message, now)

    def _drain_link(self, now: float) -> None:
        for _ in range(DRAIN_MAX):
            frames = self._wires.receive(self.link)
            if frames is None:
                return
            message = decoded(frames[:2]) if len(frames) <= FRAMES_MAX else None
            if isinstance(message, Status) and message.outcome is Outcome.REFUSED:
                self._not_reached(membership.sentence(message.reason, self._settings.id, self._link_to))
            if not isinstance(message, Entries | Forget | Copy | Repair):
                continue
            self._link_heard, self._answered = now, True
            try:
                if isinstance(message, Copy):
                    self._copy(message, now)
                elif isinstance(message, Repair):
                    self.batch_repairs.receive(message, self.member)
                else:
                    self.member.receive(message, frames[2:], now)
            except DecodeError as error:
                _log.warning("a message of the primary cannot be decoded and is dropped: %s", error.reason)

    def is_ready(self, now: float) -> bool:
        """Return True if the standby has a store, its primary has answered, or its patience for an answer is over."""
        if self.disk.store is not None or self._answered:
            return True
        if now >= self._ready_by:
            _log.warning("no member of server %s answers at %s: this one waits", self._settings.id, self._link_to)
        return now >= self._ready_by

    def _not_reached(self, said: str) -> None:
        """Raise if this member has no store yet; otherwise log the reason once, because it may have to take over."""
        if self.disk.store is None:
            raise ConfigurationError(said)
        if said != self._refused:
            self._refused = said
            _log.error("%s", said)

    def _copy(self, message: Copy, now: float) -> None:
        following, me = self.member.following, self.member.identity
        if following is None or message.sender != me.server or message.member == me.member:
            return
        if me.store not in {NO_STORE, message.store}:
            return
        try:
            if not self.getting.receive(message, following, now):
                return
        except StoreFull:
            self.getting.full(following)
            return
        self.disk.adopt(self.getting.taken())
        _log.info("the store is a copy of the primary's now")
        view = self.member.view
        self._make_member(now)
        self.member.view = view
        self.member.follow(self.disk.end, (), now, self._wall_ms)

    def _connect(self, now: float) -> None:
        """Keep a link to the known primary; open a new one if its address has changed or the link is too silent."""
        following = self.member.following
        if following is None or self.member.role is not Role.STANDBY:
            return  # Its last message to the replaced primary needs the existing link.
        address = self.member.primary[1] or (self._settings.standby_of or "")
        stale = now - self._link_heard > 2 * self._times.patience
        if self.link is not None and (address != self._link_to or stale):
            self.disconnect()
        if self.link is None and address and address != self._address:
            try:
                self.link, self._link_to, self._link_heard = self._wires.to_member(address), address, now
                following.connected(now)
            except ConfigurationError as error:  # The other member may be gone; this one may have to take over.
                self._not_reached(str(error))

    def disconnect(self, linger_ms: int = 0) -> None:
        """Close the link to the primary; the next turn opens a new one."""
        if self.link is not None:
            self._wires.close(self.link, linger_ms)
            self.link = None

    @property
    def deadline(self) -> float:
        """The time at which `turn` has something to do (monotonic seconds)."""
        following = self.member.following
        applies = self._apply_at if following is not None and following.may_apply else float("inf")
        return float("-inf") if self.giving.pending else min(self.member.deadline(), applies)

    # As primary

    def take(self, now: float, wall_ms: int) -> bool:
        """Apply all entries and close the sockets of the standby: this member becomes the primary.

        Returns:
            False if the disk is full: the member stays a standby, and soon asks the register whether it is still named.
        """
        following = self.member.following
        assert following is not None
        try:
            self.disk.take(following)
        except StoreFull as error:
            _log.error("this member cannot become primary and tries again: %s", error)
            self.member.follow(self.disk.end, following.promote(), now, wall_ms, APPLY_RETRY_SECONDS)
            return False
        self.disconnect(GOODBYE_MS)
        for dealer in self.dealers:
            self._wires.close(dealer)
        self.dealers = []
        return True

    def lead(self, now: float) -> HeldAnswers:
        """Begin the chosen term; return the held answers for `GroupCommit`, which commits the term's first entry."""
        self._status = StandbyStatus(now)
        leading = self.member.lead(self.disk.end, self.disk.stream, now)
        self.loops = HeldAnswers(leading, self.disk.stream, self._send_entries)
        return self.loops

    def found(self, term: int, now: float) -> HeldAnswers:
        """Bootstrap the register of a store with one member: this one, which keeps its incarnation as the term."""
        end = self.disk.found(term)
        leading = self.member.found(term, end, self.disk.stream, now)
        self.loops = HeldAnswers(leading, self.disk.stream, self._send_entries)
        return self.loops

    def serve(self, core: ServerCore, listener: Any, dealers: list[Any]) -> None:
        """Attach this member to a server's loop.

        Args:
            core: the server's core.
            listener: the socket on the server's own address.
            dealers: the sockets to the proxies; the server's loop keeps the list up to date.
        """
        self._core, self._listener, self.dealers = core, listener, dealers
        core.intercept = self.intercept
        self.batch_repairs.serve(core.state)
        core.proxies.member = self.member.identity.member
        core.reports.standby = self.report
        operator_requests = OperatorRequests(self.member, core.state.replies, lambda: self._wall_ms)
        core.operations.actions.update(operator_requests.actions())
        core.deposed = self.member.deposed_by

    def intercept(self, origin: Origin, message: Message, now: float) -> bool:
        """Handle a message between members; return False if the message is not of that kind."""
        if isinstance(message, Vote) and isinstance(origin.link, int) and origin.link != LISTENER:
            self.member.vote(origin.link, message, now)
            return True
        if origin.link != LISTENER or not isinstance(message, Follow | Ack | Forget | Copy | Repair | Entries):
            return False
        if origin.speaker not in {None, self._settings.id}:
            self._core.state.counters["servers_under_a_wrong_name"] += 1
            return True
        core = self._core.state
        if isinstance(message, Follow) and not membership.may_follow(
            core, origin, message, membership.occupants(self.member.proposer.view, message.member)
        ):
            return True
        try:
            if isinstance(message, Copy):
                self.giving.asked(message, now)
            elif isinstance(message, Repair):
                self.batch_repairs.receive(message, self.member)
            elif self.member.receive(message, (), now) and membership.is_of_standby(self.member.leading, message):
                self._route = origin.origin
        except DecodeError:
            self._core.state.counters["malformed"] += 1
        return True

    def after(self, now: float, wall_ms: int) -> None:
        """Do a primary's work of one loop, after the server's own: timers, ballots, messages.

        Raises:
            StorageError: the disk failed.
        """
        member, self._wall_ms = self.member, wall_ms
        member.tick(now, wall_ms)
        _tell(self._status.look(member, self.giving.busy, now))
        if self._keep():  # The store has a register now, so proxies must learn which member announces it.
            self._core.proxies.announce_all(now)
        self.send(now)

    # Both

    def send(self, now: float) -> None:
        """Send all waiting messages to the other member and to the proxies."""
        for place, message in self.member.to_proxies():
            self._wires.send(self.dealers[place], [b"", *framed(message)])
        self._say(self.member.to_other(now), now)
        self._say([(copy, []) for copy in self._copies(now)], now)
        self._say([(repair, []) for repair in self.batch_repairs.outgoing(self.member, now)], now)

    def _send_entries(self) -> None:
        """Send entries in the middle of a primary's commit, at which no time has passed."""
        self._say(self.member.to_other(0.0), 0.0)

    def _say(self, messages: Iterable[tuple[Message, list[Entry]]], now: float) -> None:
        for message, entries in messages:
            if isinstance(message, Follow):
                message.proxies = self._proxies
            parts = [part for entry in entries for part in entry.parts]
            if self._listener is None and self.link is not None:
                self._wires.send(self.link, [*framed(message), *parts])
            elif self._listener is not None and self._route:
                sent = self._wires.send(self._listener, [self._route, *framed(message), *parts])
                if not sent:
                    self.member.link_ended(now)

    def _copies(self, now: float) -> list[Copy]:
        leading, following = self.member.leading, self.member.following
        if leading is not None:
            return self.giving.outgoing(leading, now)
        return [] if following is None else self.getting.outgoing(following, now)

    def _keep(self) -> bool:
        """Write the facts to disk that this member needs at its next start; return True if they have changed."""
        before, member = self._local.local, self.member
        member.kept = self._local.try_to_keep(registered=member.registered, lost=not member.eligible)
        return self._local.local is not before

    def report(self, now: float) -> dict[str, Any]:
        """Return the report about the two members; see `Standing.report`."""
        return self._status.report(self.member, self._address, self.giving.percent, now)

    def close(self) -> None:
        """End copies that are under way; the owner of the disk closes it."""
        self.giving.close()
        self.getting.close()


def framed(message: Message) -> list[Any]:
    """Return head and body of a message. A message with entries always has a body, which lists them."""
    head, body = encode(message)
    return [pack(0, 0, 0) + head, *([body] if len(body) else [])]


def decoded(frames: Sequence[Any]) -> Message | None:
    """Decode a message from its head and body; None if that fails."""
    if not frames:
        return None
    head = bytes(frames[0])
    try:
        return decode(head[unpack(head).length :], frames[1] if len(frames) > 1 else None)
    except DecodeError:
        return None


def _tell(state: str) -> None:
    if state:
        _log.log(logging.INFO if state == "in sync" else logging.WARNING, "%s", CHANGES[state])
