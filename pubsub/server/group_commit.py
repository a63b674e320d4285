"""A server on its store, without its sockets: the part of a loop between receiving and sending.

The rules are those of docs/explanation/cores-and-shells.md, A3, A4 and A6.

    handle(…) for each message  →  tick  →  commit, then hand out  →  outgoing messages, to send

All messages of one turn of the loop (`loop`) share one commit. (A client's groups of puts are something different.)
This module decides nothing; the core does. If the commit finds the disk full, the changes are undone and the requests
are answered with a retry. Any other failure of the disk is raised, and the process ends before it answers. The process
runs this on real sockets, the simulator on a network that it can cut.

The rules are those of docs/explanation/put.md, P12; docs/explanation/stores.md, S4.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import apsw

from pubsub.base.clock import Stamps
from pubsub.base.database import Turns, translate
from pubsub.base.reserve import Reserve
from pubsub.config.settings import ServerSettings
from pubsub.errors import DecodeError, StoreDamaged, StoreFull
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import Frames
from pubsub.protocol.codec import decode, encode
from pubsub.protocol.messages import Outcome, Put
from pubsub.protocol.transfers import Transfer
from pubsub.server.core import ServerCore
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.state.measures import Measures
from pubsub.server.state.replies import Origin, Outgoing
from pubsub.server.state.state import Request
from pubsub.server.storage.loading import load
from pubsub.server.storage.local import begin_incarnation
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import Change
from pubsub.server.topic.commits import Commit
from pubsub.server.topic.topic import Topic

FULL_RETRY_SECONDS: Final = 0.5
"""Interval at which a server with a full disk checks for free space."""

_REJECTED = Request | Transfer
"""Messages dropped while too many answers are held for the other member; their senders repeat them."""

_log: Final = logging.getLogger(__name__)


class GroupCommit:
    """One server between its sockets and its disk.

    Args:
        store: open.
        reserve: disk space that is released when the disk is full.
        random: source of log IDs and transfer IDs.
        now: monotonic seconds.
        wall: seconds since 1970.
        loops: the held answers of the term that begins, if the store has two members. The term is the incarnation.
        lock: held while the store is written; None: a new lock.

    Raises:
        StorageError: the store cannot be read, or its new incarnation cannot be written.

    Attributes:
        loops: as given, or set between two loops. None if the store has one member.
        clock: returns monotonic seconds, to measure durations. None: nothing is measured.
    """

    def __init__(
        self,
        settings: ServerSettings,
        store: Store,
        reserve: Reserve,
        random: Random,
        now: float,
        wall: float,
        loops: HeldAnswers | None = None,
        lock: Turns | None = None,
    ) -> None:
        self.store, self.reserve, self.loops = store, reserve, loops
        self.lock = lock or Turns()
        self._full_check_at = 0.0
        self._commits = 0
        self.clock: Callable[[], float] | None = None
        self._measures: Measures | None = None
        reserve.release()  # The start itself may need the space.

        with self._translated():
            if loops is None:
                begin_incarnation(store, int(wall * 1000), settings.id)
            else:
                loops.begin_term(store, settings.id)
            loaded = load(store)
        stamps = Stamps(wall, now, store.stamp())
        self.core = ServerCore(settings, loaded, store.reader, stamps, random, now)
        self.core.state.disk = store.sizes
        reserve.make()

    def measure(self, clock: Callable[[], float]) -> None:
        """Start to measure, by this clock (monotonic seconds), the durations and counts that `Measures` names."""
        self.clock = clock
        self._measures = self.core.state.measures = Measures()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise translate(error, self.store.path) from None

    def handle(self, link: int | str, frames: Frames, now: float, speaker: str | None = None) -> int:
        """Decode and process one message.

        Args:
            link: the connection that the message came over, as in `Origin`.
            frames: origin, head and body. The origin is empty if the peer sends none.
            now: monotonic seconds.
            speaker: the server that the key of the connection belongs to, as in `Origin`.

        Returns:
            The weight of the message in the limit of one loop: the number of rows for a train, 1 for any other message.
        """
        core = self.core
        if not 2 <= len(frames) <= 3:
            core.state.counters["malformed"] += 1
            return 1
        head = bytes(frames[1])
        try:
            prefix = unpack(head)
        except DecodeError:
            core.state.counters["malformed"] += 1
            return 1
        origin = Origin(link, bytes(frames[0]), prefix.source, speaker)
        try:
            message = decode(head[prefix.length :], frames[2] if len(frames) == 3 else None)
        except DecodeError as error:
            if prefix.source:
                core.refuse(origin, error.reason, now)
            else:
                core.state.counters["malformed"] += 1
            return 1
        if prefix.destination:
            origin.callback = prefix.destination
        measures = self._measures
        if measures is not None:
            measures.taken += 1
            if type(message) is Put:
                origin.timing = measures.put
        if self.loops is not None and self.loops.rejects and isinstance(message, _REJECTED):
            core.state.counters["not_taken"] += 1  # The sender repeats it, to the member that serves by then.
            return 1
        core.handle(origin, message, now)
        return message.rows or 1 if type(message) is Put else 1

    def commit(self, now: float) -> Commit | None:
        """Commit the changes of this loop, then hand out messages.

        Returns:
            The changes that are durable now. None if there were no changes, or the loop was undone.

        Raises:
            StorageError: the disk failed; nothing may be sent any more.
        """
        core, done = self.core, list[Change]()
        changes = core.changes(now)
        if not changes and not core.has_ready():
            return None
        with self.lock:
            try:
                if changes:
                    self._write(changes)
                    done += changes
                if core.has_ready():
                    if changes:
                        core.committed(now)
                    done += self._deliver(now)
            except StoreFull:
                self._became_full(now)
            except StoreDamaged as error:
                self._met_damage(error, now)
        if not done:
            return None
        self._commits += 1
        return Commit(core.state.incarnation, self._commits, done)

    def _deliver(self, now: float) -> list[Change]:
        """Hand out messages after the commit, because a transaction that has read a damaged page cannot be committed.

        Returns:
            The durable changes that this made: batches found damaged, mostly none.
        """
        with self._translated():
            self.core.deliver(now)
        changes = self.core.changes(now)
        if changes:
            self._write(changes)
        return changes

    def _write(self, changes: list[Change]) -> None:
        begun = 0.0

        def enter() -> None:
            nonlocal begun
            if self.loops is not None:
                self.loops.enter(self.store, changes)
            begun = self._clocked()

        self.store.write(changes, enter)
        if self._measures is not None:
            self._measures.committed(self._clocked() - begun, self.core.state.counters["records"])
        if self.loops is not None:
            self.loops.committed()

    def _clocked(self) -> float:
        return 0.0 if self.clock is None else self.clock()

    def _became_full(self, now: float) -> None:
        if not self.core.state.full:
            _log.error("the disk under %s is full: puts are refused until there is free space", self.store.path)
        self.core.state.full = True
        self._full_check_at = now + FULL_RETRY_SECONDS
        self.reserve.release()
        self._take_back(now)

    def _met_damage(self, error: StoreDamaged, now: float) -> None:
        """Undo the loop and hold the topic back after a change needed a damaged page.

        Raises:
            StoreDamaged: the page belongs to no single topic, or to a topic that is held back already.
        """
        core, change = self.core, self.store.failed()
        topic = None if change is None else core.state.topic_of(change)
        if topic is None and core.moves.receiving.brings(getattr(change, "log", 0), getattr(change, "shelf", 0)):
            _log.error("data from another server is rejected: %s", error)
        elif topic is None or core.state.is_held_back(topic.name):
            raise error
        else:
            _log.error("topic %s is held back, other topics are served: %s", topic.name, error)
        self._take_back(now, Outcome.BUSY, "taken_back")
        found = core.state.topics.get(topic.name) if topic else None
        if found is not None:
            core.quarantine.damaged(found, str(error))

    def _take_back(self, now: float, outcome: Outcome = Outcome.FULL, reason: str = "disk") -> None:
        """Undo the changes of this loop, and answer its requests with `outcome`."""
        core, store = self.core, self.store
        if self.loops is not None:
            self.loops.taken_back()
        with self._translated():
            core.reverted(self._reload, now, outcome, reason)
            # A reloaded topic lacks the watermarks that were about to be deleted, since no span refers to them.
            core.retention.discard_watermarks(store.unused_watermarks(core.state.topics.values()))

    def _reload(self, name: str) -> Topic | None:
        return next(self.store.topics(name, unreadable=True), None)

    def check_full(self, now: float) -> None:
        """Check at intervals whether a full disk has free space again."""
        if not self.core.state.full or now < self._full_check_at:
            return
        self._full_check_at = now + FULL_RETRY_SECONDS
        if self.store.room_bytes() >= self.reserve.size and (
            self.reserve.make() or self.store.free_bytes() >= 2 * self.reserve.size
        ):
            self.core.state.full = False
            _log.info("the disk under %s has free space again: puts are accepted", self.store.path)

    def log_backlogs(self) -> None:
        """Log the topics with a backlog that came near its limit, and those with room again."""
        limit = self.core.backlogs
        for topic, subscriber, share in limit.passed:
            text = "topic %s: its backlog is at %.0f %% of backlog_bytes_max, and at 100 %% its puts are refused"
            cause = "; it waits for %s: start %s, or run pubsub topic unsubscribe %s --subscriber %s"
            names = (subscriber, subscriber, topic, subscriber) if subscriber else ()
            _log.warning(text + cause if subscriber else text, topic, 100 * share, *names)
        for topic in limit.ended:
            _log.info("topic %s: its backlog is away from backlog_bytes_max again", topic)
        limit.passed.clear()
        limit.ended.clear()

    def outgoing(self, now: float) -> list[tuple[Outgoing, list[bytes | memoryview]]]:
        """Return the messages to send after the commit: each destination with its frames, the origin first."""
        with self._translated():
            sent = [(out, self._frames(out)) for out in self.core.outgoing(now)]
        return sent if self.loops is None else self.loops.passed(sent)

    def _frames(self, out: Outgoing) -> list[bytes | memoryview]:
        head, body = encode(out.message)
        frames: list[bytes | memoryview] = [out.origin, pack(0, out.source, out.destination) + head]
        if len(body):
            frames.append(body)
        return frames
