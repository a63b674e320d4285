"""The server's process: sockets, the loop, the store. It decides nothing (docs/explanation/cores-and-shells.md, A2).

The loop receives messages from the sockets, lets the core handle them, commits once, and sends the answers. Then it
sleeps until the next message or the core's deadline. If a commit finds the disk full, the changes are undone and the
requests are answered with a retry. Any other failure of the disk ends the process before it answers, and the next start
recovers from the disk.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections import Counter
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

import apsw
import zmq

from pubsub.base.clock import Clock, SystemClock, valid_wall
from pubsub.base.database import Turns, translate
from pubsub.base.open_files import check_files
from pubsub.base.patched import refuse_patched
from pubsub.base.reserve import Reserve, ReserveFile
from pubsub.base.resources import allow_connections, used
from pubsub.base.supervision import OFF, Watchdog
from pubsub.config.settings import ServerSettings
from pubsub.console.terminal import announce
from pubsub.errors import ConfigurationError, StorageError, StoreFull
from pubsub.messenger.memory import MemoryGuard, once_free
from pubsub.messenger.sockets import Connections, open_router
from pubsub.messenger.wakeup import Wakeup
from pubsub.metrics.serving import Metrics, open_metrics, said
from pubsub.metrics.snapshot import Snapshot
from pubsub.protocol.messages import Message
from pubsub.protocol.names import keyed_endpoint, keyless_endpoint
from pubsub.security.process_keys import ProcessKeys
from pubsub.server.access import ServerAccess, keys_of
from pubsub.server.group_commit import GroupCommit
from pubsub.server.links import Links, reject
from pubsub.server.listening import listen
from pubsub.server.loop import Loop, check_stale
from pubsub.server.metrics import following, serving
from pubsub.server.pair import APPLY_RETRY_SECONDS, Pair
from pubsub.server.standby import membership
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk, begin_pair, open_disk
from pubsub.server.standby.member import Role
from pubsub.server.state.replies import Origin
from pubsub.server.storage.checkpoint import Checkpointer, grow_log
from pubsub.server.storage.store import Store

TRANSFERS_RECEIVED_MAX: Final = 32
"""Received messages of one other server that may wait; more than a server sends before it gets an answer."""

CONNECTION_COUNTERS: Final = ("connections_accepted", "connections_established", "connections_ended")

HANDSHAKES_FAILED: Final = "handshakes_failed"

_log: Final = logging.getLogger(__name__)


class ServerProcess:
    """A server, in this process.

    Args:
        context: a shared ZeroMQ context (for inproc). None: a context of its own.
        clock: None: the system's clock.
        guard: detects that the process uses too much memory. None: no check, because other programs share the process.
        keys: its keys in memory. None: the keys that its settings name, if any. In a shared context a proxy answers
            ZeroMQ's access requests.
    """

    metrics: Metrics | None = None
    watchdog = OFF

    def __init__(
        self,
        settings: ServerSettings,
        *,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        guard: MemoryGuard | None = None,
        keys: ProcessKeys | None = None,
    ) -> None:
        refuse_patched("a server")
        self.settings = settings
        self._keys = keys
        self._access: ServerAccess | None = None
        self.address, self._own_context = "", context is None
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self._clock = clock or SystemClock()
        self._random: Random = SystemRandom()
        self._wakeup = Wakeup()
        self._guard = guard or MemoryGuard(0)
        self._stopping = self._serving = self._asked_to_pair = self._unpaired = self._ready = False
        self._closers: list[Any] = []
        self._pair: Pair | None = None
        self._counters: Counter[str] = Counter()
        """A standby's counters; a server that serves counts in its state."""

    def start(self) -> None:
        """Open the store and the sockets.

        Raises:
            ConfigurationError, StorageError: the settings or the directory cannot be used.
        """
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        settings = self.settings
        keys = self._keys or keys_of(settings, self._clock.wall())
        self.metrics = open_metrics(settings.metrics, settings.insecure, self._wakeup.set, self._closers)
        self._open_disk()
        if keys is not None:
            self._access = ServerAccess(settings, keys, self._context, self._clock, alone=self._own_context)
            self._closers.append(self._access.close)
        store = None if self._disk is not None else self._store
        self._listener, self.address = listen(settings.bind, self._bound, store, self._local)
        self._closers.append(lambda: self._close_listener())  # noqa: PLW0108 - `_close_listener` may be replaced
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup.fileno(), zmq.POLLIN)
        if self._access is not None and self._access.sock is not None:
            self._poller.register(self._access.sock, zmq.POLLIN)
        told = settings.advertise or self.address
        self._told = keyless_endpoint(told) if keys is None else keyed_endpoint(settings.id, told)
        self._links = Links(self._context, self._poller, self._wakeup, self._access)
        self._closers.append(self._links.goodbye)
        if self._disk is None:
            self._serve(None)
        else:
            self._start_member(self._disk)

    def _open_disk(self) -> None:
        """Open the store, and the files of a member if this server is one of two members or is to become one."""
        settings = self.settings
        self._local = LocalFile(settings.directory)
        self._disk = open_disk(settings, self._local, self._reserve().release)
        if self._disk is not None:
            self._closers.append(self._disk.close)
            return
        self._store = Store(settings.directory, bytes_max=settings.store_bytes_max)
        self._closers.append(self._store.close)

    def _member(self, disk: MemberDisk) -> Pair:
        now = self._clock.monotonic()
        return Pair(self.settings, self._told, self._local, disk, self._links, self._random, now)

    def _start_member(self, disk: MemberDisk) -> None:
        """Follow; or continue to bootstrap the register, if the last process ended during that."""
        pair = self._pair = self._member(disk)
        self._closers.append(pair.close)
        now, wall_ms = self._clock.monotonic(), self._wall_ms()
        if pair.is_founding:
            assert disk.store is not None
            self._serve(pair.found(max(wall_ms, disk.store.incarnation() + 1), now))
            pair.serve(self.core, self._listener, self._loop.dealers)
        else:
            self._watch_listener()
            pair.follow(now, wall_ms)

    def _wall_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    def _serve(self, loops: HeldAnswers | None) -> None:
        """Start to serve: alone, or as the primary of a term."""
        settings = self.settings
        if self._disk is not None:
            assert self._disk.store is not None
            self._store = self._disk.store
        self._group_commit = self._make_group_commit(loops, None if self._disk is None else self._disk.lock)
        self.core = self._group_commit.core
        self.core.retention.compaction.clock = self._clock.monotonic
        check_stale(settings, self.core)
        self.core.proxies.address = self._told
        self.core.state.process = partial(used, settings.directory)
        if self.metrics is not None:
            self._group_commit.measure(self._clock.monotonic)
            self.core.reports.metrics = self.metrics.url
        self._checkpointer = self._make_checkpointer()
        self._checkpointer.start()
        self._closers.append(self._checkpointer.stop)
        self._serving = True
        self._watch_listener()
        if self._access is not None:
            self.core.reports.keys = partial(self._access.report, self._links.refusals)
        self._loop = Loop(settings, self._group_commit, self._links, self._listener, self._checkpointer.check)
        self.core.intercept = self._intercept

    def _make_group_commit(self, loops: HeldAnswers | None, lock: Turns | None) -> GroupCommit:
        now, wall = self._clock.monotonic(), valid_wall(self._clock.wall())
        return GroupCommit(self.settings, self._store, self._reserve(), self._random, now, wall, loops, lock)

    def _reserve(self) -> Reserve:
        settings = self.settings
        size = min(settings.reserve_bytes, (settings.store_bytes_max or 1 << 60) // 8)
        return ReserveFile(settings.directory / "reserve", size)

    def _make_checkpointer(self) -> Checkpointer:
        with _translated(self._store.path):
            grow_log(self._store)
        return Checkpointer(self._store, self._group_commit.lock, self._wakeup.set)

    def _intercept(self, origin: Origin, message: Message, now: float) -> bool:
        """Record that another member asks to follow this lone server; after this loop its store gets a register."""
        asked = membership.may_follow(self.core.state, origin, message)
        self._asked_to_pair = self._asked_to_pair or asked
        return asked

    def _found(self, now: float) -> None:
        """Become the first of two members, between two loops."""
        self._asked_to_pair = False
        term, lock = self.core.state.incarnation, self._group_commit.lock
        try:
            self._disk = begin_pair(self.settings, self._local, self._store, lock, term)
        except (ConfigurationError, StoreFull) as error:  # A server with a full disk continues to serve alone.
            if not self._unpaired:
                _log.error("another member asks to follow and has to wait: %s", error)
            self._unpaired = True
            return
        self._closers[self._closers.index(self._store.close)] = self._disk.close
        pair = self._pair = self._member(self._disk)
        self._closers.append(pair.close)
        self._group_commit.loops = pair.found(term, now)
        pair.serve(self.core, self._listener, self._loop.dealers)
        _log.info("another member asks to follow: this one is member %s", pair.member.identity.member)

    def _take(self, pair: Pair, now: float) -> None:
        """Apply everything and serve, because the register names this member as primary."""
        if not pair.take(now, self._wall_ms()):
            return
        self._unwatch_listener()
        try:
            self._serve(pair.lead(now))
        except StoreFull as error:
            _log.error("this member cannot begin to serve as primary and tries again: %s", error)
            self._watch_listener()
            pair.follow(now, self._wall_ms(), APPLY_RETRY_SECONDS)
            return
        pair.serve(self.core, self._listener, self._loop.dealers)
        _log.warning("server %s is primary now, in term %d", self.settings.id, pair.member.term)

    def _step_down(self, pair: Pair, now: float) -> None:
        """Drop the held answers and follow, because another term has begun."""
        _log.warning("server %s is not primary here any longer: another member is, or will be", self.settings.id)
        self._closers.remove(self._checkpointer.stop)
        self._checkpointer.stop()
        self._loop.close()
        self._unwatch_listener()
        self._serving = False
        self._watch_listener()
        pair.follow(now, self._wall_ms())

    def _watch_listener(self) -> None:
        counters = self.core.state.counters if self._serving else self._counters
        failed = "" if self._access is None else HANDSHAKES_FAILED
        self._connections = Connections(self._context, self._listener, counters, CONNECTION_COUNTERS, failed)
        for sock in (self._listener, self._connections.sock):
            self._poller.register(sock, zmq.POLLIN)

    def _unwatch_listener(self) -> None:
        for sock in (self._listener, self._connections.sock):
            self._poller.unregister(sock)
        self._connections.close()
        del self._connections

    def _close_listener(self) -> None:
        if hasattr(self, "_connections"):
            self._connections.close()
        self._listener.close(0)

    def _connect_anew(self) -> None:
        """Close all connections, drop the messages in them, and open them again."""
        _log.warning("the process has reached memory_bytes_max: it closes all connections and opens them again")
        if not self._serving:
            assert self._pair is not None
            self._pair.disconnect()
            return
        self.core.state.counters["memory_limit_reached"] += 1
        self._unwatch_listener()
        self._close_listener()
        self._listener, _ = once_free(lambda: self._bound(self.address))
        self._watch_listener()
        self._loop.connect_anew(self._listener, self._clock.monotonic())
        if self._pair is not None:
            self._pair.serve(self.core, self._listener, self._loop.dealers)

    def _bound(self, address: str) -> tuple[zmq.Socket[bytes], str]:
        curve = None if self._access is None else self._access.curve
        return open_router(self._context, address, received_max=TRANSFERS_RECEIVED_MAX, curve=curve)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`.

        Args:
            ready: called once: when a proxy has accepted this server, or none answers. For a standby: its primary.

        Raises:
            StorageError: the disk failed; every answer sent so far is on the disk.
            ConfigurationError: another server has this server's ID.
        """
        refused = False
        if self.metrics is not None:
            self.metrics.handover.started = True
        try:
            while not self._stopping:
                self._turn()
                self.watchdog.turned(self._clock.monotonic())
                who = self.core.proxies if self._serving else self._pair
                if not self._ready and who is not None and who.is_ready(self._clock.monotonic()):
                    self._ready = True
                    ready()
                elif self._serving and not (self._ready or refused) and (refusal := self.core.proxies.refusal()):
                    refused = True
                    _log.warning("server %s is not ready and waits: %s", self.settings.id, refusal.replace("_", " "))
        except StorageError:
            if self._serving:
                self._store.keep_log()
            raise
        if self._serving:
            now = self._clock.monotonic()
            self.core.leave(now)
            self._loop.send(now)

    def _turn(self) -> None:
        access, deadline = self._access, self.deadline
        if access is not None:
            deadline = min(deadline, access.authorizer.deadline, self._links.due)
        wait = deadline - self._clock.monotonic()
        most = min(self._guard.wait_ms or 1000, self.watchdog.wait_ms)
        ready = dict(self._poller.poll(max(0, min(most, int(wait * 1000) + 1)) if wait > 0 else 0))
        if ready.pop(self._wakeup.fileno(), None):
            self._wakeup.clear()
        now = self._clock.monotonic()
        if self._guard.exceeded(now):
            self._connect_anew()
            return
        if self._connections.sock in ready:
            self._connections.take()
        if access is not None:
            self._accept_connections(access, ready, now)
        self._act(ready, now)
        if self.metrics is not None and self.metrics.handover.wanted:
            self.metrics.handover.give(self._snapshot(now))

    def _snapshot(self, now: float) -> Snapshot:
        if self._serving:
            return serving(self._loop, self.core, self._checkpointer, self._pair, self._ready, now)
        assert self._pair is not None
        return following(self.settings, self._counters, self._pair, self._ready, now)

    @property
    def deadline(self) -> float:
        """The time at which the store or its register needs a turn, on the monotonic clock in seconds."""
        serving = self.core.deadline() if self._serving else float("inf")
        return serving if self._pair is None else min(serving, self._pair.deadline)

    def _act(self, ready: Container[Any], now: float) -> None:
        """Run one turn in the current role, which may end with another role."""
        pair = self._pair
        if pair is None:
            self._loop.turn(ready, now)
            if self._asked_to_pair:
                self._found(now)
        elif self._serving:
            self._loop.turn(ready, now)
            pair.after(now, self._wall_ms())
            if pair.member.over:
                self._step_down(pair, now)
        else:
            if self._listener in ready:
                reject(self._links, self._listener, self.settings.id, pair.member.primary[1])
            pair.turn(ready, now, self._wall_ms())
            if pair.member.role is Role.TAKING:
                self._take(pair, now)

    def _accept_connections(self, access: ServerAccess, ready: Container[Any], now: float) -> None:
        """Answer access requests, and close the links to servers that are no longer authorized."""
        if access.sock in ready:
            access.take()
        if now >= access.authorizer.deadline and access.look(now):
            if self._serving:
                self.core.moves.receiving.drop_givers(access.is_server)
                self._loop.close_servers(self._links.is_outdated)
            if self._pair is not None:
                self._pair.disconnect()  # The keys expected of the other member may have changed.
        self._links.turn(ready, now)

    def hang_up(self) -> None:
        """Read the access list and open the audit file again; safe from any thread and any signal handler."""
        if self._access is not None:
            self._access.authorizer.hang_up()
            self._wakeup.set()

    def stop(self) -> None:
        """End `run` after the current commit; safe from any thread and any signal handler."""
        self._stopping = True
        self._wakeup.set()

    def close(self) -> None:
        """Release all resources; uncommitted changes are lost."""
        for closer in reversed(self._closers):
            closer()
        self._closers.clear()
        self._wakeup.close()
        if self._own_context:
            self._context.term()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from None


def run_server(settings: ServerSettings) -> None:
    """Run a server until SIGTERM or SIGINT.

    Raises:
        PubsubError: why the server could not start, or had to end.
    """
    allow_connections()
    check_files()
    valid_wall(SystemClock().wall())  # A wrong clock must be found before the first write.
    process = ServerProcess(settings, guard=MemoryGuard(settings.memory_bytes_max))
    process.watchdog = Watchdog()
    if settings.authorized is not None:  # Set before `start`, since a large store takes long to open.
        signal.signal(signal.SIGHUP, lambda *_: process.hang_up())
    process.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        process.run(lambda: announce(f"server {settings.id} ready: {process.address}{said(process.metrics)}"))
        process.watchdog.stopping()
    finally:
        process.close()
