"""The server's core: it decides the effect and the answer of each message, without a socket, a file or a clock.

The rules are those of docs/explanation/cores-and-shells.md, A1 and A3.

The shell feeds the core a batch of messages, commits the changes, and lets the core hand out messages. Only then does
it send the answers. So an answer never leaves before the state that it reports is durable, and all messages that arrive
together share one fsync. Batches that handing out finds damaged are changes too, in a commit of their own:

    handle(…) for each message  →  changes()  →  commit  →  deliver()  →  changes(), mostly none  →  outgoing()

This module builds the rooms on one `State`, dispatches messages to them, and runs the steps of the loop.

* A put, a subscription and an acknowledgement change memory at once, and the difference is noted for the commit.
* If the commit finds the disk full, `reverted` restores the state that the store holds and turns the answers into
  retries.
* A GET waits until `deliver`, after the commit, so it also receives messages put in the same loop.
* A request that needs this server to be the topic's sole owner waits until enough proxies have answered. It is then
  dispatched again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub.base.clock import Stamps
from pubsub.config.settings import ServerSettings
from pubsub.errors import DecodeError
from pubsub.protocol.bodies import split_topics
from pubsub.protocol.deletions import Deleted
from pubsub.protocol.families import Patterns
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.protocol.messages import (
    Configure,
    Get,
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Put,
    Read,
    Report,
    Settings,
    Status,
    Subscribe,
    Unsubscribe,
)
from pubsub.protocol.names import is_hex
from pubsub.protocol.sinks import Stage
from pubsub.protocol.topic_objects import Purge
from pubsub.protocol.transfers import Merge, Transfer
from pubsub.server.groups.memory import Memory
from pubsub.server.moves.moves import Moves
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.ownership.sole_owner import Compacting, Delivering, SoleOwner, Trimming
from pubsub.server.ownership.stores import Stores
from pubsub.server.ownership.unconfirmed import UnconfirmedAnnouncements
from pubsub.server.recovery.abandoned import Abandoned
from pubsub.server.recovery.deletions import ServerDeletions
from pubsub.server.recovery.quarantine import Quarantine
from pubsub.server.requests.admission import Admission
from pubsub.server.requests.configuring import Configuring
from pubsub.server.requests.gets import Gets
from pubsub.server.requests.groups import Groups
from pubsub.server.requests.operations import Operations
from pubsub.server.requests.purging import Purging
from pubsub.server.requests.puts import Puts
from pubsub.server.requests.reads import Reads
from pubsub.server.requests.replays import Replays
from pubsub.server.requests.report import Reports
from pubsub.server.requests.sinks import Sinks
from pubsub.server.requests.subscriptions import Subscriptions
from pubsub.server.state.replies import LISTENER, Origin, Outgoing, is_its_own
from pubsub.server.state.state import Request, State, announced
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.loaded import Loaded
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.backlog_limit import BacklogLimit
from pubsub.server.upkeep.delays import Delays
from pubsub.server.upkeep.retention import Retention
from pubsub.server.upkeep.staging import Staging

if TYPE_CHECKING:
    from random import Random


class ServerCore:
    """The state and the decisions of one server.

    Args:
        loaded: the state read from the store.
        reader: reads stored batches, those of the open transaction included.
        stamps: the server's clock for timestamps.
        random: source of log IDs.
        now: monotonic seconds.
    """

    def __init__(
        self, settings: ServerSettings, loaded: Loaded, reader: BatchReader, stamps: Stamps, random: Random, now: float
    ) -> None:
        self.state = state = State(settings, loaded, reader, stamps, random, now)
        # Each room is given the rooms below it that it uses.
        self.proxies = Proxies(settings, loaded.store_id, loaded.incarnation, stamps, now)
        for topic, value in state.given.items():
            self.proxies.remember(topic, value, state.change)
        self.unconfirmed = UnconfirmedAnnouncements(state, self.proxies, settings.heartbeat_seconds, now)
        self.stores = Stores(state, self.proxies, loaded.notes)
        self.contested = Contested(state, self.stores)
        self.patterns = ServerPatterns(state, self.proxies, loaded.notes)
        self.sole_owner = SoleOwner(state, self.proxies, self.contested, self.patterns)
        leftovers = loaded.discarded, loaded.unused_watermarks
        self.retention = Retention(state, self.sole_owner, self.patterns, *leftovers, now, self.proxies.trusts_ages)
        self.staging = Staging(state, loaded.next_stage, loaded.next_piece, loaded.dropped, now)
        self.backlogs = BacklogLimit(state)
        self.delays = Delays(state, self.sole_owner, self.retention, self.backlogs, loaded.discarded_shelves, now)
        self.moves = Moves(state, self.proxies, self.contested, self.retention, self.staging, self.delays, random)
        self.quarantine = Quarantine(state, self.retention, self.moves)
        self.abandoned = Abandoned(
            state, self.proxies, self.contested, self.sole_owner, self.retention, self.moves, self.quarantine
        )
        self.deletions = ServerDeletions(state, self.proxies, self.moves, self.quarantine)
        self.admission = Admission(state, self.proxies)
        self.puts = Puts(
            state, self.sole_owner, self.admission, self.retention, self.backlogs, self.abandoned, self.delays
        )
        self.replays = Replays()
        trusts_ages = self.proxies.trusts_ages
        self.gets = Gets(state, self.sole_owner, self.abandoned, self.replays, trusts_ages)
        self.subscriptions = Subscriptions(state, self.sole_owner, self.admission)
        self.group_memory = Memory(state, trusts_ages, now)
        self.groups = Groups(state, self.group_memory, self.sole_owner, self.admission, self.subscriptions)
        self.configuring = Configuring(state, self.admission, self.retention)
        self.purging = Purging(state, self.sole_owner, self.patterns, self.retention)
        self.reads = Reads(state, self.sole_owner, self.admission, self.replays)
        self.sinks = Sinks(state, self.sole_owner, self.admission, self.staging, self.retention, self.backlogs)
        self.operations = Operations(state, self.proxies, self.retention, self.moves, self.abandoned, loaded.notes)
        self.reports = Reports(state, self.proxies, self.stores, self.moves, self.group_memory)
        self.intercept: Callable[[Origin, Message, float], bool] = _nobody
        """Handles a message for a member of a pair; returns False if the message is not of that kind."""
        self.deposed: Callable[[int], None] = _nothing
        """Called with the term of another primary of this store when a proxy reports one."""
        self._durable: list[Outgoing] = []
        self._hold_back_unreadable()

    def _hold_back_unreadable(self) -> None:
        """Hold back each topic that could not be read; otherwise it would look like an empty topic."""
        for topic in [topic for topic in self.state.topics.values() if topic.unreadable]:
            self.quarantine.damaged(topic, topic.unreadable)

    # Incoming messages

    def handle(self, origin: Origin, message: Message, now: float) -> None:
        """Process a message that a proxy forwarded, or that a proxy or another server sent.

        Args:
            origin: the destination of the answer.
            message: the decoded message.
            now: monotonic seconds.
        """
        self.proxies.received(origin.link, now)
        if isinstance(origin.link, str) or origin.link == LISTENER:
            self._from_server(origin, message, now)
        elif isinstance(message, Request):
            self._dispatch(origin, message, now)
        elif isinstance(message, Operate):
            self.operations.handle(origin, message, now)
        elif isinstance(message, Report):
            origin.waits = False
            self.state.replies.answer(origin, Outcome.SUCCESS, body=self.reports.report(now, message.topic))
        elif isinstance(message, Merge) and not origin.origin:
            self.moves.merge(message, now)
        elif isinstance(message, Patterns) and not origin.origin:
            for name in self.patterns.told(int(origin.link), message):
                self.retention.look_at(name)
        elif isinstance(message, Deleted) and not origin.origin:
            self.deletions.told(int(origin.link), message, now)
        elif origin.origin or not isinstance(message, Status | Heartbeat):
            if not origin.origin and self.intercept(origin, message, now):
                return
            self.state.replies.refuse(origin, f"a server does not process {type(message).__name__} here")
        elif isinstance(message, Status):
            self._status(origin, message, now)
        else:
            self._follow_clock(message.stamp, now)
            if origin.callback:  # The proxy asks to confirm that all its earlier messages were processed.
                origin.waits = False
                self.state.replies.answer(origin, Outcome.SUCCESS)

    def _dispatch(self, origin: Origin, request: Request, now: float, sole_owner: bool = False) -> None:
        """Process a client's request about a topic.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        origin.topic = request.topic
        if self.admission.rejects(origin, request.topic, request):
            return
        if isinstance(request, Put):
            self.replays.shared = True
            self.puts.put(origin, request, now, sole_owner)
        elif isinstance(request, Get):
            if request.name:
                self.subscriptions.acknowledge(origin, request)
            else:
                self.gets.get(origin, request, now, sole_owner)
        elif isinstance(request, Work | Describe | Group):
            self.groups.keep(origin, request, sole_owner)
        elif isinstance(request, Subscribe | Unsubscribe):
            if request.group:
                self.groups.subscribe(origin, request, now, sole_owner)
            elif request.name:
                self.subscriptions.subscribe_named(origin, request, now, sole_owner)
            else:
                self.subscriptions.subscribe(origin, request, now, sole_owner)
        elif isinstance(request, Configure | Settings):
            self.configuring.handle(origin, request, now)
        elif isinstance(request, Purge):
            self.purging.handle(origin, request, sole_owner)
        elif isinstance(request, Read):
            self.reads.read(origin, request, now, sole_owner)
        elif isinstance(request, Stage):
            self.replays.shared = True
            self.sinks.stage(origin, request, now)
        else:
            self.replays.shared = True
            self.sinks.publish(origin, request, now, sole_owner)

    def _go_on(self, now: float) -> None:
        """Continue the operations for which the question of sole ownership is answered now."""
        for operation, sole in self.sole_owner.decided():
            if isinstance(operation, Trimming):
                self.retention.decided(operation, sole, now)
            elif isinstance(operation, Compacting):
                self.retention.compaction.decided(operation, sole, now)
            elif isinstance(operation, Delivering):
                self.delays.decided(operation.topic, sole, now)
            elif sole:
                self._dispatch(operation.origin, operation.request, now, sole_owner=True)
            else:
                self.sole_owner.reject(operation)

    def _from_server(self, origin: Origin, message: Message, now: float) -> None:
        """Process a message that came to this server's own address, or over a link to another server."""
        if not is_its_own(origin, message.sender if isinstance(message, Transfer | Status) else None):
            self.state.counters["servers_under_a_wrong_name"] += 1
        elif isinstance(message, Transfer):
            self.moves.transfer(origin, message, now)
        elif isinstance(message, Status) and origin.link != LISTENER:
            topic, gone = self.moves.refused(origin, message, now)
            if gone:
                self.abandoned.announced(topic, gone, now)
        elif origin.link != LISTENER or not self.intercept(origin, message, now):
            self.state.replies.refuse(origin, f"a server does not process {type(message).__name__} here")

    def refuse(self, origin: Origin, reason: str, now: float) -> None:
        """Answer a message that cannot be decoded.

        Args:
            reason: a few words for a person.
        """
        self.proxies.received(origin.link, now)
        if is_its_own(origin, None):
            self.state.replies.refuse(origin, reason)
        else:
            self.state.counters["servers_under_a_wrong_name"] += 1

    def _follow_clock(self, stamp: int, now: float) -> None:
        if stamp and not self.state.stamps.follow(stamp, now):
            self.state.counters["stamps_too_far_ahead"] += 1

    def _status(self, origin: Origin, status: Status, now: float) -> None:
        """Process a proxy's answer to an announcement, a heartbeat (no callback) or a question of sole ownership."""
        self._follow_clock(status.stamp, now)
        proxy = int(origin.link)
        if status.outcome is Outcome.DEPOSED:
            self.deposed(status.term)
            return
        if origin.callback:
            named = self.sole_owner.answered(origin.callback, proxy, status)
            self._go_on(now)
            for name, others in named.items():
                self._told(name, ",".join(sorted(others)), proxy, now)
            return
        self.proxies.answered(proxy, status, now)
        self.unconfirmed.confirmed()
        self.moves.forget_given()
        if status.outcome is Outcome.STALE:
            self.quarantine.hold_all_back(status.reason, status.change)
        elif status.outcome in {Outcome.SUCCESS, Outcome.FULL}:
            self._told_of_topics(status, proxy, now)

    def _told_of_topics(self, status: Status, proxy: int, now: float) -> None:
        """Process a proxy's list of other holders of our topics, abandoned logs and known stores."""
        self.stores.told(status)
        try:
            topics = split_topics(status.body)
        except DecodeError:
            self.state.counters["answers_not_understood"] += 1
            return
        for name, value in topics.items():
            self._told(name, value, proxy, now)

    def _told(self, name: str, value: str, proxy: int, now: float) -> None:
        """Process a proxy's report about one topic: its other holders, or one of our logs that was abandoned."""
        if is_hex(value):
            self.abandoned.announced(name, value, now)
        else:
            for server, log in self.contested.told(name, value):
                self.abandoned.named(name, server, log, proxy, now)

    def leave(self, now: float) -> None:
        """Tell every proxy that this process ends."""
        nothing = not (self.state.topics or self.state.quarantined or self.state.given)
        # The other member may still hold topics, and this goodbye waits for no confirmation.
        alone = not self.proxies.member
        self.proxies.leave(now, empty=self.proxies.draining and nothing and alone)

    # Time

    def tick(self, now: float) -> None:
        """Do all that is due: expired waits, heartbeats, announcements, retention."""
        state = self.state
        state.long_polls.tick(now)
        self.sole_owner.tick(now)
        self._go_on(now)
        self.reads.tick(now)
        self.moves.tick(now)
        self.unconfirmed.tick(now)
        if now >= self.proxies.deadline():
            # A proxy that gets a new socket receives a complete announcement too.
            announcing = any(now >= min(proxy.announce_at, proxy.reconnect_at) for proxy in self.proxies.all)
            # A topic that went to another server in this loop must not look unowned before its announcement leaves.
            given = {name: value for name, value in state.announcements.items() if "." in value}
            holdings = given | {name: announced(topic) for name, topic in state.topics.items()} if announcing else {}
            self.proxies.tick(holdings, state.change, now)
            state.count_change = state.count_change or announcing
        state.uncommitted.rows += self.retention.tick(now)
        state.uncommitted.rows += self.staging.tick(now)
        state.uncommitted.rows += self.delays.tick(now)
        self.backlogs.tick(now)
        self.group_memory.tick(now)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return min(
            self.proxies.deadline(),
            self.unconfirmed.deadline(),
            self.state.long_polls.deadline(),
            self.sole_owner.deadline(),
            self.retention.deadline(),
            self.state.uncommitted.deadline(),
            self.moves.deadline(),
            self.reads.deadline(),
            self.staging.deadline(),
            self.delays.deadline(),
            self.backlogs.deadline(),
            self.group_memory.deadline(),
        )

    # Outgoing messages

    def changes(self, now: float) -> list[c.Change]:
        """Return the changes to commit: everything noted since the last call."""
        self.sole_owner.send(now)
        return self.state.changes(now)

    def has_ready(self) -> bool:
        """Return True if `deliver` has a waiting request to look at."""
        return self.state.long_polls.has_ready() or self.reads.has_ready() or self.groups.has_ready()

    def deliver(self, now: float) -> None:
        """Answer the waiting GETs and READs that have messages; call it when this loop's changes are in the store."""
        self.replays.begin(now)
        self.gets.deliver(now)
        self.reads.deliver(now)
        self.groups.deliver(now)
        self.replays.end()

    def committed(self, now: float) -> None:
        """Mark all changes taken so far as durable while the loop goes on; a later `reverted` keeps their answers."""
        self._durable += self._said(now)

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the messages to send, announcements first; call it when all changes taken are committed."""
        out, self._durable = self._durable, []
        return out + self._said(now)

    def _said(self, now: float) -> list[Outgoing]:
        state = self.state
        self.stores.committed(now)
        self.contested.committed(now)
        self.patterns.committed(now)
        self.deletions.committed(now)
        state.uncommitted.committed()
        if state.announcements:
            self.proxies.announce(state.announcements, state.change, now)
            self.unconfirmed.announced(state.announcements, state.change, now)
            state.announcements = {}
        out, self.proxies.out = self.proxies.out, []
        for origin, answer in (*self.unconfirmed.take(), *state.replies.take()):
            if self.unconfirmed.holds(origin, answer):
                continue
            self.proxies.sent(origin.link, now, waits=origin.waits)
            out.append(Outgoing(origin.link, origin.origin, origin.callback, 0, answer, origin.waits, origin.timing))
        out += self.moves.outgoing(now)
        for topic, reason in self.moves.unreadable:
            self.quarantine.damaged(topic, reason)
        self.moves.unreadable.clear()
        return out

    def reverted(
        self,
        reload: Callable[[str], Topic | None],
        now: float,
        outcome: Outcome = Outcome.FULL,
        reason: str = "disk",
    ) -> None:
        """Restore the state that the store holds after a failed commit, and turn the loop's answers into retries.

        Args:
            reload: returns a topic as the store has it, or None if the store has no topic of that name.
            outcome, reason: put into the answers; by default, that the disk is full.
        """
        touched = self.state.revert(reload)
        self._hold_back_unreadable()
        # Moves and announcements under way are not stored, so they start again.
        self.proxies.withdraw_announcements()
        self.moves.reverted(now)
        self.retention.pause(now, touched)
        self.staging.pause(now)
        self.delays.pause(now, touched)
        self.group_memory.reverted(touched)
        self.state.replies.retry(outcome, reason)


def _nobody(origin: Origin, message: Message, now: float) -> bool:
    return False


def _nothing(term: int) -> None:
    return None
