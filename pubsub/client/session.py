"""Run one open client: its core, its store, its Messenger, and the one lock that orders their work.

All work is the same short turn under the lock: take the answers that came, let the core handle them, commit and fsync
as needed, and send. A call makes its own change first and then such a turn. The thread that drives the sockets makes a
turn after each answer or deadline, as the Messenger's `ticker`. No thread waits for the sockets while it holds the
lock.

The rules are those of docs/explanation/client-session.md, D1 and D2.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import zmq

from pubsub.base import forks
from pubsub.base.clock import Clock, SystemClock
from pubsub.base.locks import holds
from pubsub.client.accumulator import Accumulator
from pubsub.client.arguments import check_seconds
from pubsub.client.core.chain import Row
from pubsub.client.core.changes import Change
from pubsub.client.core.outbox import Draft
from pubsub.client.session_parts import (
    SessionParts,
    boot_id,
    check_context,
    check_proxies,
    find_keys,
    load_core,
    open_store,
)
from pubsub.client.settling import Looks
from pubsub.client.signs_of_life import may_enter
from pubsub.client.steps import Steps
from pubsub.client.storage.interface import ClientStore
from pubsub.client.wire import Wire
from pubsub.config.settings import ClientSettings
from pubsub.errors import AfterFork, CallerError, Interrupted, PubsubError
from pubsub.messenger import Messenger
from pubsub.protocol import Position, check_id

if TYPE_CHECKING:
    from pubsub.client.step_thread import StepThread
    from pubsub.client.storage.recorder import Recorder, RecordSink
    from pubsub.security.process_keys import ClientKeys

_NEVER: Final = float("inf")
_COUNTERS: Final = ("undecodable", "handler_errors", "put_off", "dead_letters", "redriven", "expired", "claims_lost")
_log: Final = logging.getLogger("pubsub.client")


class Session(Steps):
    """One open client.

    Args:
        context: ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        random: source of the first numbers.
        messenger: a Messenger to use instead of its own.
        vfs: SQLite's file system, if it is not the machine's.
        record: destination of the record; None: as in the settings.
        keys: the client's and the proxies' keys; None: as in the settings.
        opened: gets the session before any part is open, so that an interrupted caller can give it up.
        known: by counter, the unfinished rows of the previous session, which their callers still hold.

    Attributes:
        keys: the client's and the proxies' keys; None: it has none.
        context: the ZeroMQ context that it shares; None: it has its own.
        recorder: writes the record; None: no record.
        thread: runs the steps of an `AsyncClient` with a database; None: they run where they are called.
        trying: by topic, handler attempts that are counted on the disk, or about to be, and have not failed.

    Raises:
        InvalidName, ConfigurationError, StorageError: see `Client`.
    """

    _held_since: float | None
    recorder: Recorder | None = None
    thread: StepThread | None = None

    def __init__(
        self,
        name: str,
        settings: ClientSettings,
        *,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        boot: str | None = None,
        messenger: Messenger | None = None,
        vfs: str | None = None,
        record: RecordSink | Path | str | None = None,
        keys: ClientKeys | None = None,
        opened: list[Session] | None = None,
        known: Mapping[int, Row] = MappingProxyType({}),
    ) -> None:
        super().__init__(check_id("client ID", name))
        check_proxies(settings.proxies)
        if messenger is None:
            check_context(context, settings.proxies)
        self.keys = find_keys(name, settings) if keys is None else keys
        self.settings, self.context = settings, context
        self.clock: Clock = clock or SystemClock()
        self.released, self._next, self._held_since = False, _NEVER, None
        self.trying: dict[str, Sequence[tuple[Position | None, int]]] = {}
        self.counters, self._parts = dict.fromkeys(_COUNTERS, 0), SessionParts()
        boot = boot_id() if boot is None else boot
        if opened is not None:
            opened.append(self)
        try:
            sink = self._parts.open_sink(settings.record if record is None else record)
            self.store: ClientStore = open_store(name, settings, boot, vfs, self._parts.stores)
            self.store.on_lost = self.was_interrupted
            with self.store.errors(loading=True):
                self.core = load_core(name, settings, self.store, self.clock, random or SystemRandom(), known)
            self.core.check_life = self.store.sync if self.store.database else self.core.check_life
            if sink is not None:
                self._record(sink, boot, owned=sink is self._parts.sink)
            self._messenger = self._parts.messenger = messenger or Messenger(context, self.clock)
            self._wire = Wire(self.name, self._messenger, settings.proxies, self.counters, self.keys)
            self.accumulator, self._looks = Accumulator(self), Looks(self)
            self.timers += (self.accumulator, self._looks)
            self._messenger.ticker = self  # From here on the Messenger's thread asks for our deadline.
            self._ask_again()
            forks.watch(self)
            self._parts.complete = True
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Release everything after a failed opening, also after Ctrl-C: no caller has the session to close it."""
        if self._parts.complete:
            self.release()
            return
        self.closed = True
        self.return_taken()
        self._parts.release()

    def _record(self, sink: RecordSink, boot: str, *, owned: bool) -> None:
        from pubsub.client.storage.recorder import Recorder  # noqa: PLC0415 - most clients have none.

        self.recorder = Recorder(self.name, self.core, self.clock, boot, sink, owned=owned)
        self.core.outbox.on_done = self.recorder.acknowledged
        self.recorder.opened()

    def _ask_again(self) -> None:
        """Ask the service again, at every start, about each intent that is not settled."""
        with self.lock:
            until = self.now + self.settings.timeout_seconds
            for sub in self.core.subscriptions.values():
                if not sub.intent.settled:
                    self.core.settle(sub, until)
            self.core.families.ask_again(until)
            self.turn()

    @property
    def silence(self) -> str:
        """Text for an error without any answer."""
        return self.core.refusing.silence(self.settings.proxies)

    @property
    def now(self) -> float:
        """The monotonic clock, in seconds."""
        return self.clock.monotonic()

    def until(self, timeout: float | None, now: float | None = None) -> float:
        """Return the deadline of a call that begins now, on the monotonic clock.

        Raises:
            CallerError: the time-out is not a number of seconds.
        """
        check_seconds("timeout", timeout)
        return (self.now if now is None else now) + (self.settings.timeout_seconds if timeout is None else timeout)

    def forked(self, parent: int) -> None:
        """Make every call raise in a child process, without touching the parent's resources."""
        error = self.inherited = AfterFork(f"client {self.name}", parent)
        self.closed, self.owner, self.thread = True, None, None
        if not holds(self.lock):
            self.lock = threading.RLock()  # A thread of the parent may hold the old lock, which is never released here.
        self.store.forked(error)
        if self.transaction is not None:
            self.transaction.forked(error)
        forks.keep(self.recorder)
        self.recorder = None
        for timer in self.timers:
            timer.forked(error)
        for sub in self.core.subscriptions.values():
            if sub.chunk is not None:
                sub.chunk.stop()

    def release_driver(self) -> None:
        """Stop driving the sockets on this thread, and wake waiting callers if a step was interrupted."""
        self._messenger.recover()
        if self.unusable:
            self._messenger.announce()

    # The turn

    def deadline(self) -> float | None:
        """Return the time of the next turn, as the Messenger's ticker."""
        if self._wire.inbox or self._wire.refusing:
            return float("-inf")
        return None if (due := min([self._next, *[one.deadline() for one in self.timers]])) == _NEVER else due

    def tick(self, now: float) -> None:
        """Make a turn on the thread that drives the sockets, as the Messenger's ticker."""
        try:
            for timer in tuple(self.timers):
                if timer.deadline() <= now:
                    timer.tick(now)
            if (now < self._next and not self._wire.inbox and not self._wire.refusing) or self.over:
                return
            if not self.core.members or may_enter(self.lock, self.core, self._wire, now):
                with self.entered():
                    self.follow()
        except CallerError:
            pass  # The client was closed, or one of its steps interrupted, meanwhile.
        except BaseException:
            self.return_taken()
            raise

    @property
    def answered(self) -> bool:
        """True if answers are here that no turn has taken. A put takes them, or another thread waits for its turn."""
        return bool(self._wire.inbox)

    def follow(self, *, only_send: bool = False) -> None:
        """Make a turn, or only its sending part, after a success; a failure in the turn is tried again later."""
        if self.unusable:
            return
        try:
            self.send() if only_send else self.turn()
        except PubsubError as error:
            self._next = self.now + self.settings.try_seconds
            self.wake()  # The thread that drives the sockets may sleep for much longer.
            _log.warning("client %s: %s", self.name, error)

    def turn(self) -> None:
        """Take answers, commit, fsync, send. The lock is held.

        Raises:
            StorageError: a commit failed; it is tried again later, and nothing that depends on it has happened.
        """
        core, now = self.core, self.now
        answered = self.answered
        while self._wire.inbox:
            token, status = self._wire.inbox.popleft()
            core.receive(token, status, now)
        if self._wire.refusing:
            self._wire.receive_refusals(core, now)
        if self.recorder is not None:
            self.recorder.flush()  # Record acknowledged puts before their rows can leave the outbox.
        core.tick(now)
        self.accumulator.write_due(now)
        if core.due:
            due, core.due = core.due, []
            self.commit([change for one in due for change in one.changes], fsync=True)
            for one in due:
                one.then()
        self._looks.follow(core, self.store)
        if core.outbox.is_untidy:
            self.commit(())
        if core.wants_sync:
            self.sync()
        self.send()
        self.look()
        if answered and not self.drives:
            self._messenger.announce()  # The driving thread found no answers left, and may sleep by now.

    def commit(self, changes: Sequence[Change], *, fsync: bool = False) -> bool:
        """Commit changes; return True if the commit was fsynced. The lock is held.

        The removal of finished rows joins the commit if they are many, if the commit is fsynced, or if there are no
        changes.

        Raises:
            StorageError: nothing of it happened.
        """
        outbox = self.core.outbox
        tidy = outbox.is_untidy or fsync or not changes
        removals = outbox.removals() if tidy and outbox.finished_rows else []
        if self.recorder is not None:
            self.recorder.intending(changes)
        fsynced = self.store.commit([*removals, *changes], fsync=fsync)
        if removals:
            outbox.removed()
        if self.recorder is not None:
            self.recorder.committed(changes)
        if fsynced:
            self._synced()
        return fsynced

    def sync(self) -> None:
        """Fsync all commits so far. The lock is held.

        Raises:
            StorageError: the fsync failed.
        """
        self.store.sync()
        self._synced()

    def _synced(self) -> None:
        self._held_since = None
        self.core.synced()

    def send(self) -> None:
        """Send all messages that may be sent, and note the time of the next turn. The lock is held."""
        core, now = self.core, self.now
        if core.refusing.retry_due:  # First, since the messages below need a connection.
            core.refusing.retry_due = False
            self._wire.retry()
        for outgoing in core.outgoing(now):
            self._wire.send(outgoing.token, outgoing.proxy, outgoing.complete(self.store.body))
        if core.flights.forgotten:
            self._wire.forget(core.flights.forgotten)
        due = core.deadline()
        before, self._next = self._next, _NEVER if due is None else due
        if self._next < before:
            self._messenger.wake()

    @property
    def may_send(self) -> bool:
        """True if anything but a new message of a group may be due, or the time of the next turn may have changed."""
        core, at = self.core, self._next
        if self.held_since is not None or core.outbox.active or (core.sync_at is not None and core.sync_at < at):
            return True
        return self.now >= at

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Drive the sockets, or wait while another thread does, until `done()` or the deadline; return `done()`."""
        self.check_may_wait()  # Also for a thread that is about to drive, since no other thread can take that role.
        try:
            return self._messenger.wait(done, deadline)
        except Interrupted:
            raise Interrupted(f"client {self.name}") from None

    def drive_once(self) -> None:
        """Take the answers that have arrived, unless another thread drives the sockets, without waiting."""
        self._messenger.look()

    def tell_waiting(self) -> None:
        """Let waiting threads and coroutines check if another one did the work that they wait for."""
        self._messenger.announce()
        self.look()

    def wake(self) -> None:
        """Let the thread that drives the sockets see an earlier deadline."""
        self._messenger.wake()

    @property
    def drives(self) -> bool:
        """True if this thread drives the sockets."""
        return self._messenger.driven_here

    def check_disk(self) -> None:
        """Check that the disk takes writes again after it was full or failed. The lock is held.

        Raises:
            StorageError: it does not; nothing is requested until it does.
        """
        if self.store.failed:
            self.sync()

    def accept(self, draft: Draft, *, fsync: bool) -> None:
        """Accept the committed puts of a transaction. The lock is held."""
        now = self.now
        self.core.outbox.accept(draft, held=not fsync)
        if self.recorder is not None and draft.rows:
            self.recorder.begun(draft.rows)
        for row in draft.rows:
            self.core.finish(row.topic, now + self.settings.timeout_seconds)
        if fsync or self.store.power_safe:
            self._synced()
        elif draft.rows and self._held_since is None:
            self._held_since = now

    @property
    def held_since(self) -> float | None:
        """Time since which rows wait for an fsync before they may be sent; None: no rows wait."""
        return self._held_since

    # The end

    def release(self) -> None:
        """Close the sockets, then the store; a call in another thread ends. A second call does nothing.

        Raises:
            StorageError: the last commit failed; everything is released all the same.
        """
        with self.lock:
            self.closed = True
            self.look()
        self._messenger.close()
        with self.lock:
            if self.released:
                return
            if self.recorder is not None:
                self.recorder.close()
            self.store.close()
            self.released = True
