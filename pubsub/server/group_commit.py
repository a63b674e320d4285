"""A server on its store, without its sockets: what a loop does between receiving and sending.

The rules are those of docs/architecture.md, *Cores and shells*.

    handle(…) for each message  →  tick  →  commit, then hand out  →  outgoing, which is sent

All messages of one turn of the loop (`loop`) share the commit; a client's groups of puts are another thing. It decides
nothing: the core does. A commit that finds the disk full is taken back and answered so; any other failure of
the disk is raised, and the process ends before it answers. The process puts sockets around this, the simulator a
network that it can cut.
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
from pubsub.protocol.messages import Outcome, Put, Transfer
from pubsub.server.core import ServerCore
from pubsub.server.standby.disk.held_answers import Loops
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
"""How often a server whose disk was full looks whether it still is."""

_TURNED_AWAY = Request | Transfer
"""What is asked again where it is not taken, while too much is held for the other member."""

_log: Final = logging.getLogger(__name__)


class GroupCommit:
    """One server between its sockets and its disk.

    Args:
        settings: its configuration.
        store: open.
        reserve: space for when the disk is full.
        random: for log IDs and transfers.
        now: monotonic seconds.
        wall: seconds since 1970.
        loops: where the store has two members, the loops of the term that begins: it is the incarnation.
        lock: held while the store is written; None: one of its own.

    Raises:
        StorageError: the store cannot be read, or its new incarnation not be written.

    Attributes:
        loops: as given, or set between two loops; None where the store has one member.
        clock: gives monotonic seconds, where it is measured how long things take; None: nothing is.
    """

    def __init__(
        self,
        settings: ServerSettings,
        store: Store,
        reserve: Reserve,
        random: Random,
        now: float,
        wall: float,
        loops: Loops | None = None,
        lock: Turns | None = None,
    ) -> None:
        self.store, self.reserve, self.loops = store, reserve, loops
        self.lock = lock or Turns()
        self._full_check_at = 0.0
        self._commits = 0
        self.clock: Callable[[], float] | None = None
        self._measures: Measures | None = None
        reserve.release()  # Space for the start itself.
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
        """Measure from now on, by this clock (monotonic seconds), what `Measures` names."""
        self.clock = clock
        self._measures = self.core.state.measures = Measures()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise translate(error, self.store.path) from None

    def handle(self, link: int | str, frames: Frames, now: float, speaker: str | None = None) -> int:
        """Take a message.

        Args:
            link: where it came from, as in `Origin`.
            frames: origin, head and body; the origin is empty where the other end has none.
            now: monotonic seconds.
            speaker: whose key it came with, as in `Origin`.

        Returns:
            What it counts for towards the end of the loop: a train as many as it has rows, any other message one.
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
        if self.loops is not None and self.loops.turns_away and isinstance(message, _TURNED_AWAY):
            core.state.counters["not_taken"] += 1  # It is asked again, of whoever serves then.
            return 1
        core.handle(origin, message, now)
        return message.rows or 1 if type(message) is Put else 1

    def commit(self, now: float) -> Commit | None:
        """Commit what this loop changed, and hand out.

        Returns:
            What is durable now; None where there was nothing to commit, or the loop was undone.

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
        """Hand out, behind the commit: a transaction that reads a damaged page cannot be committed any more.

        Returns:
            What of that is durable: batches that were found damaged, mostly nothing.
        """
        with self._translated():
            self.core.deliver(now)
        changes = self.core.changes(now)
        if changes:
            self._write(changes)
        return changes

    def _write(self, changes: list[Change]) -> None:
        """Make changes durable."""
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
            _log.error("the disk under %s is full: puts are refused until there is space", self.store.path)
        self.core.state.full = True
        self._full_check_at = now + FULL_RETRY_SECONDS
        self.reserve.release()
        self._take_back(now)

    def _met_damage(self, error: StoreDamaged, now: float) -> None:
        """A change needed a page that is damaged: take the loop back, and go on without its topic.

        Raises:
            StoreDamaged: it is no single topic's, or one that is held back already.
        """
        core, change = self.core, self.store.failed()
        topic = None if change is None else core.state.topic_of(change)
        if topic is None and core.moves.receiving.brings(getattr(change, "log", 0)):
            _log.error("what arrives from another server is not taken: %s", error)
        elif topic is None or core.state.is_held_back(topic.name):
            raise error
        else:
            _log.error("topic %s is held back, others are served: %s", topic.name, error)
        self._take_back(now, Outcome.BUSY, "taken_back")
        found = core.state.topics.get(topic.name) if topic else None
        if found is not None:
            core.quarantine.damaged(found, str(error))

    def _take_back(self, now: float, outcome: Outcome = Outcome.FULL, reason: str = "disk") -> None:
        """What this loop did has not come to be; its requests are answered so."""
        core, store = self.core, self.store
        if self.loops is not None:
            self.loops.taken_back()
        with self._translated():
            core.reverted(self._reload, now, outcome, reason)
            # A topic that was read anew has no watermark that was about to be deleted: no span refers to it.
            core.retention.discard_watermarks(store.unused_watermarks(core.state.topics.values()))

    def _reload(self, name: str) -> Topic | None:
        return next(self.store.topics(name, unreadable=True), None)

    def check_full(self, now: float) -> None:
        """Where the disk was full, see now and then whether it still is."""
        if not self.core.state.full or now < self._full_check_at:
            return
        self._full_check_at = now + FULL_RETRY_SECONDS
        if self.store.room_bytes() >= self.reserve.size and (
            self.reserve.make() or self.store.free_bytes() >= 2 * self.reserve.size
        ):
            self.core.state.full = False
            _log.info("there is space again under %s", self.store.path)

    def outgoing(self, now: float) -> list[tuple[Outgoing, list[bytes | memoryview]]]:
        """What is to be sent after the commit: to where, and the frames, with the origin first."""
        with self._translated():
            sent = [(out, self._frames(out)) for out in self.core.outgoing(now)]
        return sent if self.loops is None else self.loops.passed(sent)

    def _frames(self, out: Outgoing) -> list[bytes | memoryview]:
        head, body = encode(out.message)
        frames: list[bytes | memoryview] = [out.origin, pack(0, out.source, out.destination) + head]
        if len(body):
            frames.append(body)
        return frames
