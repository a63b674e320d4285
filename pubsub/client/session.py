"""One open client: its core, its store, its Messenger, and the one lock that orders what they do.

Whatever happens is the same short turn, under the lock: take the answers that came, let the core handle them, commit
what is due, fsync where that is due, send what may be sent. A call does its own change first and then such a turn; the
thread that drives the sockets does one whenever an answer came or a deadline passed (it is the Messenger's `ticker`).
Nobody waits for the sockets while holding the lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final, Protocol

import zmq

from pubsub.base import forks
from pubsub.base.clock import Clock, SystemClock
from pubsub.base.limits import PROXIES_MAX
from pubsub.client.arguments import check_seconds
from pubsub.client.core.chain import Row
from pubsub.client.core.changes import Change, Tried
from pubsub.client.core.core import ClientCore, CoreSettings
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.outbox import Draft
from pubsub.client.core.subscription import Subscription
from pubsub.client.guards import within_guard
from pubsub.client.storage.places import state_path
from pubsub.client.storage.store import Store, storage_errors
from pubsub.client.storage.transaction import Transaction
from pubsub.config.settings import ClientSettings
from pubsub.errors import (
    AfterFork,
    CallerError,
    ConfigurationError,
    DecodeError,
    Interrupted,
    PubsubError,
    StorageError,
    TooLarge,
)
from pubsub.messenger import Messenger
from pubsub.messenger.sockets import other_context
from pubsub.protocol import Position, Put, Status, check_id, decode, encode

if TYPE_CHECKING:
    from pubsub.client.storage.recorder import Recorder, RecordSink

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NEVER: Final = float("inf")
_NOTHING: Final = BaseException()
_AWAITED: Final = frozenset({"zmq.asyncio", "zmq.green.core", "zmq.green"})
"""Modules whose sockets do not answer when they are called."""

_log: Final = logging.getLogger("pubsub.client")


class Timer(Protocol):
    """Something that wants to be looked at when its time has come: a publisher with an open batch.

    Attributes:
        topic: the publisher's.
    """

    topic: str

    def deadline(self) -> float:
        """When, on the monotonic clock; infinity: not at all."""

    def tick(self, now: float) -> None:
        """Do it. Called without the session's lock, and must not wait for another thread."""

    def finish(self) -> int:
        """The client is about to be closed: put what is held, and hold no more. How many messages those were."""

    def give_back(self) -> None:
        """An exception came from anywhere: hold no lock."""

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that made it: be of no use."""


def boot_id() -> str:
    """Which start of the operating system this is; "" where that cannot be known."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _check_proxies(proxies: Sequence[str]) -> None:
    if not 0 < len(proxies) <= PROXIES_MAX:
        raise ConfigurationError(f"a client needs 1 to {PROXIES_MAX} proxies; {len(proxies)} are named")


def _check_context(context: object, proxies: Sequence[str]) -> None:
    """See that a context can be used, and the proxies be reached with it.

    Raises:
        CallerError, ConfigurationError: not so.
    """
    if context is None:
        elsewhere = [proxy for proxy in proxies if proxy.startswith("inproc://")]
        if elsewhere:
            raise ConfigurationError(other_context(elsewhere[0]))
    elif not isinstance(context, zmq.Context) or type(context).__module__ in _AWAITED:
        kind = f"{type(context).__module__}.{type(context).__qualname__}"
        raise CallerError(f"context is a zmq.Context, not {kind}; an AsyncClient takes the same")


def _opened(record: RecordSink | Path | str | None) -> tuple[RecordSink | None, bool]:
    """Where the record goes, and whether it is ours to close."""
    if not isinstance(record, Path | str):
        return record, False
    from pubsub.client.storage.recorder import open_record  # noqa: PLC0415 - most clients have none.

    return open_record(record), True


class Step:
    """A step as a `with` block: made once for a session, since it holds nothing of its own."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        self._session.leave(error)


class Session:
    """One open client.

    Args:
        name: the client ID.
        settings: what it may do.
        context: a ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        clock: where the time comes from.
        random: where numbers start.
        boot: identifies this start of the operating system.
        messenger: one to use instead of its own.
        vfs: SQLite's file system, for one that is not the machine's.
        record: where to write down what it does; None: where the settings say, if they do.

    Attributes:
        recorder: writes down what it does; None: nobody does.
        trying: by topic, attempts of handlers that are counted on the disk, or about to be, and have not failed.
        midway: a step has begun and has not ended. Where nobody has the lock it never will.
        torn: that was found out, of a step or of the Messenger: every call raises Interrupted, but for `close`.
        released: everything is closed.
        block: stands for the caller's `with` block whose transaction is open; None: there is none.

    Raises:
        InvalidName, ConfigurationError, StorageError: see `Client`.
    """

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
    ) -> None:
        self.name = check_id("client ID", name)
        _check_proxies(settings.proxies)
        if messenger is None:
            _check_context(context, settings.proxies)
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.owner: int | None = None
        self.midway = self.torn = self.closed = self.released = False
        self.block: object = None
        self._passing, self._mender = _NOTHING, 0
        self._step = Step(self)
        self.inherited: AfterFork | None = None
        self.transaction: Transaction | None = None
        self._inbox: deque[tuple[int, Status]] = deque()
        self._registered: dict[int, int] = {}
        self._next = _NEVER
        self._held_since: float | None = None
        self.trying: dict[str, Sequence[tuple[Position | None, int]]] = {}
        self.timers: list[Timer] = []
        self.watchers: list[Callable[[], None]] = []
        self.counters = {"undecodable": 0, "handler_errors": 0}
        boot = boot_id() if boot is None else boot
        sink, owned = _opened(settings.record if record is None else record)
        self.recorder: Recorder | None = None
        try:
            self.store = Store(state_path(name, settings.directory), boot, power_safe=settings.power_safe, vfs=vfs)
        except BaseException:
            if sink is not None and owned:
                sink.close()
            raise
        try:
            with storage_errors(self.store.path):
                self.core = self._load(random or SystemRandom())
            if sink is not None:
                self._record(sink, boot, owned=owned)
            self._messenger = messenger or Messenger(context, self.clock)
            self._messenger.ticker = self
            try:
                self._peers = [self._messenger.connect(proxy) for proxy in settings.proxies]
            except BaseException:
                self._messenger.close()
                raise
        except BaseException:
            self.store.close(clean=False)
            if sink is not None and owned:
                sink.close()
            raise
        self._ask_again()
        forks.watch(self)

    def _load(self, random: Random) -> ClientCore:
        settings, store = self.settings, self.store
        numbers = Numbers(store.state("milliseconds"), self.clock.wall, random, store.save_milliseconds)
        core = ClientCore(
            CoreSettings(
                client=self.name,
                path=store.path,
                publisher=store.state("store"),
                proxies=len(settings.proxies),
                tries=settings.tries,
                try_seconds=settings.try_seconds,
                window=settings.window,
                outbox_bytes_max=settings.outbox_bytes_max,
                prefetch_records=settings.prefetch_records,
                prefetch_bytes=settings.prefetch_bytes,
            ),
            numbers,
            store.state("cuts"),
            store.taken,
            self.clock.wall,
        )
        core.outbox.load(store.chains(), store.rows())
        core.load_subscriptions(store.subscriptions())
        core.load_losses(store.untold())
        return core

    def _record(self, sink: RecordSink, boot: str, *, owned: bool) -> None:
        from pubsub.client.storage.recorder import Recorder  # noqa: PLC0415 - most clients have none.

        self.recorder = Recorder(self.name, self.core, self.clock, boot, sink, owned=owned)
        self.core.outbox.on_done = self.recorder.acknowledged
        self.recorder.opened()

    def _ask_again(self) -> None:
        """Every start asks again for what is not settled."""
        with self.lock:
            until = self.now + self.settings.timeout_seconds
            for sub in self.core.subscriptions.values():
                if not sub.settled:
                    self.core.settle(sub, until)
            self.turn()

    @property
    def silence(self) -> str:
        """What to say where nobody answered at all."""
        return f"no answer from {', '.join(self.settings.proxies)}"

    @property
    def now(self) -> float:
        """The monotonic clock, in seconds."""
        return self.clock.monotonic()

    def until(self, timeout: float | None) -> float:
        """The deadline of a call, on the monotonic clock.

        Raises:
            CallerError: the time-out is no number of seconds.
        """
        check_seconds("timeout", timeout)
        return self.now + (self.settings.timeout_seconds if timeout is None else timeout)

    # The lock

    def entered(self) -> Step:
        """Hold the lock for a call: a `with` block. Raises as `enter`."""
        return self._step

    def enter(self) -> None:
        """Take the lock for a step, as a call does; `leave` ends it.

        A step that does not reach its end, because a signal raised something in it, leaves `midway` behind: then the
        memory may be ahead of the disk or behind it, and nobody gets in any more.

        Raises:
            CallerError: the client is closed, or this thread is inside a transaction; Interrupted: a step was cut off.
        """
        self.lock.acquire()
        if self.midway or self.torn or self.closed:
            self._refuse()
        self.midway = True

    def _refuse(self) -> None:
        if self._mender == threading.get_ident() and not self.closed:
            return
        self.lock.release()
        self.check_outside()
        self.check_open()
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise CallerError(f"this thread is in the midst of another call of client {self.name}")
        self.torn = True
        self.check_whole()

    def leave(self, error: BaseException | None = None) -> None:
        """End a step, by `error` where that is not None: one of ours, or one that was let pass, leaves all sound."""
        if error is None or error is self._passing or isinstance(error, PubsubError):
            self.midway, self._passing = False, _NOTHING
        self.lock.release()

    def let_pass(self, error: BaseException) -> None:
        """The caller's own code raised this, and what it had done is rolled back: the step ends by it in good order."""
        self._passing = error

    def passes(self, error: BaseException) -> bool:
        """Whether it was let pass."""
        return error is self._passing

    def recover(self, *, block: bool = False) -> None:
        """An exception leaves the client: give back what this thread still holds, wherever it struck.

        Args:
            block: it leaves the block of a transaction; else a transaction of this thread keeps the lock.
        """
        if not block and within_guard():
            return
        if not block and self.owner == threading.get_ident() and self.lock._is_owned():  # type: ignore[attr-defined]
            return
        self.give_back()
        self._messenger.recover()
        if self.torn:
            self._messenger.announce()
            self.look()

    def give_back(self) -> None:
        """Have the locks be free of this thread, and see whether the step within was cut off."""
        for timer in tuple(self.timers):
            timer.give_back()
        owned = self.lock._is_owned()  # type: ignore[attr-defined]
        # Who is in a step holds the lock: where it can be had, a step that has begun is nobody's any more.
        if not owned and not (self.midway and self.lock.acquire(blocking=False)):
            return
        self.torn = self.torn or self.midway
        self.transaction, self.owner, self.block = None, None, None
        while self.lock._is_owned():  # type: ignore[attr-defined]
            self.lock.release()

    def look(self) -> None:
        """Have coroutines that wait look whether it is over."""
        for watcher in tuple(self.watchers):
            watcher()

    def struck(self) -> None:
        """The Messenger was interrupted in the midst of something (it is our driver): nothing is sent any more."""
        self.torn = True
        self.look()

    @property
    def over(self) -> bool:
        """Whether nothing more will come: it is closed, or a step was cut off."""
        return self.closed or self.torn

    def check_whole(self) -> None:
        """See that no step was cut off.

        Raises:
            Interrupted: one was.
        """
        if self.torn:
            raise Interrupted(f"client {self.name}")

    def check_outside(self) -> None:
        """See that this thread is not inside a transaction, which may put by the transaction only.

        Raises:
            CallerError: it is.
        """
        if self.owner == threading.get_ident() and self.lock._is_owned():  # type: ignore[attr-defined]
            raise CallerError(
                "this thread is inside a transaction of the same client; "
                "there only put(…, transaction=…) is possible, and it goes out with the commit"
            )

    def check_open(self) -> None:
        """See that it is.

        Raises:
            CallerError: it is closed; AfterFork: it is the parent's.
        """
        if self.closed:
            raise self.inherited or CallerError(f"client {self.name} is closed")

    def forked(self, parent: int) -> None:
        """This is a child of the process that opened it: every call raises, and nothing of the parent's is touched."""
        error = self.inherited = AfterFork(f"client {self.name}", parent)
        self.closed, self.owner = True, None
        if not self.lock._is_owned():  # type: ignore[attr-defined]
            self.lock = threading.RLock()  # Who held it is a thread of the parent.
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

    # The turn

    def deadline(self) -> float | None:
        """When a turn has something to do (the Messenger's ticker)."""
        if self._inbox:
            return float("-inf")
        due = self._next
        for timer in self.timers:
            due = min(due, timer.deadline())
        return None if due == _NEVER else due

    def tick(self, now: float) -> None:
        """A turn on the thread that drives the sockets (the Messenger's ticker)."""
        for timer in tuple(self.timers):
            if timer.deadline() <= now:
                timer.tick(now)
        if (not self._inbox and now < self._next) or self.over:
            return
        try:
            with self.entered():
                self.follow()
        except CallerError:
            pass  # It was closed, or cut off, meanwhile.
        except BaseException:
            self.give_back()
            raise

    def follow(self) -> None:
        """A turn after something that has succeeded: what fails in it is tried again later. The lock is held."""
        if self.torn:
            return
        try:
            self.turn()
        except PubsubError as error:
            self._next = self.now + self.settings.try_seconds
            _log.warning("client %s: %s", self.name, error)

    def turn(self) -> None:
        """Take answers, commit, fsync, send. The lock is held.

        Raises:
            StorageError: a commit failed; it is tried again later, and what depends on it has not happened.
        """
        core, now = self.core, self.now
        while self._inbox:
            token, status = self._inbox.popleft()
            core.receive(token, status, now)
        if self.recorder is not None:
            self.recorder.flush()  # What is acknowledged, before its rows can leave the outbox.
        core.tick(now)
        if core.due:
            due, core.due = core.due, []
            self.commit([change for one in due for change in one.changes], fsync=True)
            for one in due:
                one.then()
        if core.outbox.is_untidy:
            self.commit(())
        if core.wants_sync:
            self.sync()
        self.send()
        self.look()

    def commit(self, changes: Sequence[Change], *, fsync: bool = False) -> bool:
        """Commit changes; whether that was fsynced. The lock is held.

        The rows that are finished go with it where they are many, where it is fsynced, or where there is nothing else.

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
        """Fsync all that was committed. The lock is held.

        Raises:
            StorageError: it could not be.
        """
        self.store.sync()
        self._synced()

    def _synced(self) -> None:
        self._held_since = None
        self.core.synced()

    def send(self) -> None:
        """Send what may be sent, and note when the next turn is due. The lock is held."""
        core, now = self.core, self.now
        for outgoing in core.outgoing(now):
            message = outgoing.message
            if outgoing.row is not None and outgoing.row.body is None and isinstance(message, Put):
                message.body = self.store.body(message.counter)
            head, body = encode(message)
            try:
                self._registered[outgoing.token] = self._messenger.send(
                    self._peers[outgoing.proxy],
                    (head, body) if len(body) else head,
                    partial(self._answered, outgoing.token),
                    retry=False,
                )
            except TooLarge as error:  # The Messenger is at a limit of its own: the next try may find room.
                _log.warning("client %s: %s", self.name, error)
        if core.flights.forgotten:
            for token in core.flights.forgotten:
                if (registered := self._registered.pop(token, None)) is not None:
                    self._messenger.forget(registered)
            core.flights.forgotten.clear()
        due = core.deadline()
        before, self._next = self._next, _NEVER if due is None else due
        if self._next < before:
            self._messenger.wake()

    def _answered(self, token: int, peer: object, contents: Any, frames: Sequence[Any]) -> None:
        self._registered.pop(token, None)
        try:
            status = decode(contents, frames[0] if frames else None)
        except DecodeError as error:
            self.counters["undecodable"] += 1
            _log.warning("client %s: an answer is dropped: %s", self.name, error)
            return
        if isinstance(status, Status):
            self._inbox.append((token, status))

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Drive the sockets, or wait while another thread does, until `done()` or the deadline; what `done()` says."""
        try:
            return self._messenger.wait(done, deadline)
        except Interrupted:
            raise Interrupted(f"client {self.name}") from None

    def wake(self) -> None:
        """Let the thread that drives the sockets see an earlier deadline."""
        self._messenger.wake()

    @property
    def busy_here(self) -> bool:
        """Whether this thread is in the midst of something with this client."""
        return bool(self.lock._is_owned()) or self._messenger.driven_here  # type: ignore[attr-defined]

    def check_disk(self) -> None:
        """See that the disk takes writes again after it was full or failed. The lock is held.

        Raises:
            StorageError: it does not; nothing is requested until it does.
        """
        if self.store.failed:
            self.sync()

    def check_disk_now(self) -> None:
        """As `check_disk`, without the lock held."""
        with self.entered():
            self.check_disk()

    def forget_told(self, subs: Sequence[Subscription], *, fsync: bool = False) -> None:
        """Make durable of which losses the user was told; there is a commit where `fsync` asks for it too.

        Raises:
            StorageError: it could not be.
        """
        if fsync or any(sub.told for sub in subs):
            self.commit([change for sub in subs for change in sub.forget_told()], fsync=fsync)
            for sub in subs:
                sub.forgot_told()

    # Puts

    def put_rows(self, topic: str, batches: Sequence[Sequence[bytes]], until: float) -> list[Row]:
        """Commit batches to the outbox and send them, after those before. The lock is held.

        Raises:
            TooLarge, StorageError, StateCopied: nothing was written, nothing is sent.
        """
        return self.put_draft(topic, self.draft(topic, batches), until)

    def draft(self, topic: str, batches: Sequence[Sequence[bytes]]) -> Draft:
        """Batches as rows to be committed. The lock is held.

        Raises:
            TooLarge, StorageError, StateCopied: they cannot be.
        """
        if self.core.copied is not None:
            raise self.core.copied
        draft = Draft(self.core.outbox)
        for bodies in batches:
            draft.add(topic, bodies)
        return draft

    def put_draft(self, topic: str, draft: Draft, until: float) -> list[Row]:
        """Commit what is drafted to the outbox and send it, after what is there. The lock is held.

        Raises:
            StorageError: nothing was written, nothing is sent.
        """
        core = self.core
        self.commit(draft.changes())
        core.outbox.accept(draft)
        if self.recorder is not None:
            self.recorder.begun(draft.rows)
        core.finish(topic, until)
        self.follow()
        return draft.rows

    def accept(self, draft: Draft, *, fsync: bool) -> None:
        """What a transaction put is committed. The lock is held."""
        now = self.now
        self.core.outbox.accept(draft, held=not fsync)
        if self.recorder is not None and draft.rows:
            self.recorder.begun(draft.rows)
        for row in draft.rows:
            self.core.finish(row.topic, now + self.settings.timeout_seconds)
        if fsync or self.settings.power_safe:
            self._synced()
        elif draft.rows and self._held_since is None:
            self._held_since = now

    @property
    def held_since(self) -> float | None:
        """Since when rows wait for an fsync before they may be sent; None: none do."""
        return self._held_since

    # The end

    def close(self, acknowledge_seconds: float) -> None:
        """Fsync, acknowledge what was taken, and release everything; what is unfinished is kept.

        Args:
            acknowledge_seconds: how long the last acknowledgements may take.

        Raises:
            StorageError: the last commit failed; everything is released all the same.
        """
        with suppress(Interrupted):
            if not self.over:
                self._take_leave(acknowledge_seconds)
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

    def _take_leave(self, acknowledge_seconds: float) -> None:
        flying: list[Subscription] = []
        with self.entered():
            try:
                self.forget_told(list(self.core.subscriptions.values()), fsync=True)
                flying = self.core.acknowledge(self.now)
                self.send()
            except StorageError as error:
                _log.warning("client %s: %s", self.name, error)
        if flying:
            self.wait(lambda: not any(sub.deadline is not None for sub in flying), self.now + acknowledge_seconds)

    def cut_off(self) -> bool:
        """Whether a step was cut off, found out already or not."""
        self.give_back()
        return self.torn

    def mend(self) -> None:
        """A step was cut off and the client is about to be closed: forget the memory, and load what is on the disk.

        Nothing is sent any more; this thread, and no other, gets in, so that what publishers hold goes to the outbox.
        """
        with self.lock:
            self.torn, self._mender = True, threading.get_ident()
            self.midway, self.owner, self.transaction = False, None, None
            self.store.rollback()
            positions = {topic: position for topic, _, _, _, _, position, _, _ in self.store.subscriptions()}
            for sub in self.core.subscriptions.values():
                chunk = sub.chunk
                if chunk is not None:
                    chunk.stop()
                    if positions.get(sub.topic) == chunk.pieces[-1].last:  # It was taken, and nothing given back.
                        self.store.commit([sub.give_back(chunk)])
            for topic, _, _, _, _, _, tried, attempts in self.store.subscriptions():
                # The handler was at no fault, and the attempt does not count.
                if tried is not None and (tried, attempts) in self.trying.get(topic, ()):
                    self.store.commit([Tried(topic, tried, attempts - 1)])
            self.core = self._load(SystemRandom())
