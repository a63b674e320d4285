"""Clients of the simulated world: the shipped session, core, store and calls, on a Messenger without sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import apsw

from pubsub.client.core.chain import Row
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.processing import Processing
from pubsub.client.reopening import suspend
from pubsub.client.session import Session
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError, InDoubt, PubsubError, StorageError, StoreInUse
from tests.simulation import client_memory
from tests.simulation.client_messenger import SimulatedMessenger
from tests.simulation.disk import NAME
from tests.simulation.nodes import proxy_addresses
from tests.simulation.world import Host, Process, World


class Cancelled(Exception):
    """A call was cancelled while it waited.

    Args:
        open_bodies: bodies in no row of the outbox at that time, of all callers: their puts have not begun.
    """

    def __init__(self, open_bodies: frozenset[bytes]) -> None:
        super().__init__(open_bodies)
        self.open_bodies = open_bodies


class HandlerError(Exception):
    """The error that a handler of the simulated application raises."""


class Call:
    """One call of the application, under way.

    Args:
        flow: its flow.
        then: gets its result and its error; a call of a process that died before its end calls nothing.
    """

    __slots__ = ("flow", "then", "wait")

    def __init__(self, flow: Flow[Any], then: Callable[[Any, Exception | None], None]) -> None:
        self.flow, self.then = flow, then
        self.wait: Wait | None = None


class Forgetful(dict[str, int]):
    """Counters that are not remembered."""

    def __init__(self, topic: str = "") -> None:
        super().__init__()

    def get(self, key: str, default: Any = None) -> Any:
        return default


class Clock:
    """A client's clocks, as they are when they are read."""

    def __init__(self, host: Host) -> None:
        self.monotonic, self.wall = host.monotonic, host.wall


class ClientNode(Process):
    """A client.

    Attributes:
        client: its ID; the host has the same name, except for a copy's.
        acting: the call in its present step, during which the process may be killed.
        on_start: called at the opening of a new session; on_end: called with the stepped call at its end; on_power_cut:
            called at that event.
    """

    def __init__(
        self,
        world: World,
        host: Host,
        proxies: tuple[str, ...],
        *,
        power_safe: bool,
        client: str = "",
        database: str = "",
    ) -> None:
        super().__init__(world, host)
        self.client = client or host.name
        self.database = database
        self.settings = ClientSettings(
            proxies=tuple(proxy_addresses(name)[0] for name in proxies),
            directory=Path(f"/{self.name}"),
            timeout_seconds=1.5,
            try_seconds=0.05,
            power_safe=power_safe,
            window=4,
            prefetch_records=50,
            handler_attempts=world.fate.attempts,
            retry_first_seconds=0.02 if world.fate.retries else 0.0,
            retry_longest_seconds=0.1,
            dead_letters="topic" if world.fate.letters else "table",
            database=f"postgresql://{host.name}@db/{database}" if database else None,
            publisher_records=3,  # Rows of a group hold no more, so that some groups are several rows.
        )
        self._turns = world.random.random() < 0.5
        """Whether a group is written when its event loop has turned, as those of `AsyncClient`; else at once."""
        self.connected = 0
        """Connections of this life."""
        self.calls: Calls
        self.processing: Processing
        self._calls: list[Call] = []
        self.on_start: Callable[[], None] = lambda: None
        self.on_end: Callable[[Call | None], None] = lambda call: None
        self.on_power_cut: Callable[[], None] = lambda: None
        self.acting: Call | None = None
        self.operations = 0
        self.found: list[str] = []
        """The differences between memory and store."""
        self._turning = self._bare = False
        self.went_back: Callable[[], None] | None = None
        """Called at the end of the life in which its database went back to an earlier time; None: it did not."""
        self.closed = False
        """Whether its last life ended with a close that gave the remaining messages back."""
        self.cut_off = False
        """Whether any life has ended otherwise."""

    def begin(self) -> None:
        self._calls, self.connected = [], 0
        self.acting, self.closed = None, False
        self._open({})
        self.make_table("seen", "topic, body, id, stamp, doubtful, aside")
        self.make_table("sent", "token")
        self.on_start()

    def make_table(self, name: str, columns: str) -> None:
        """Make one of the application's own tables, if it is not there."""
        if self.database:
            self.world.databases.make_table(self, name, columns)
        else:
            self.session.store.db.execute(f"create table if not exists {name} (n integer primary key, {columns})")

    def _open(self, known: Mapping[int, Row]) -> None:
        self.messenger = SimulatedMessenger(self)
        self.session = self.make_session(known)
        self.calls = Calls(self.session)
        self.processing = Processing(self.session, self.calls.gets)
        if self._turns:
            self.calls.puts.soon = lambda write: self.later(0.0, write)
        if self._bare:
            self.without_net()

    def without_net(self) -> None:
        """Take from the client its second net, the counters that it has passed, as a reader of ranges has none."""
        core = self.session.core
        self._bare = True
        core._load_taken = Forgetful
        for sub in core.subscriptions.values():
            sub.cursor._load, sub.cursor._taken = Forgetful, None

    def make_session(self, known: Mapping[int, Row] = MappingProxyType({})) -> Session:
        host = self.host
        return Session(
            self.client,
            self.settings,
            clock=Clock(host),
            random=Random(self.world.random.getrandbits(64)),
            boot=f"{self.name}-{host.boot}",
            messenger=self.messenger,  # type: ignore[arg-type]
            vfs=NAME,
            known=known,
        )

    def call(
        self,
        flow: Flow[Any],
        then: Callable[[Any, Exception | None], None],
        begun: Callable[[Call], None] = lambda call: None,
    ) -> None:
        """Begin a call. To be used within `act`, or from `then`."""
        self.operations += 1
        call = Call(flow, then)
        begun(call)
        self._calls.append(call)
        self._advance(call, None)

    def act(self, action: Callable[[], None]) -> None:
        """Let the application do something now; the process may be killed at it."""
        if self.alive and not self.paused:
            self._guarded(partial(self._act, action) if self.database else action)
            if self.alive:
                self.wake(self.world.now)

    def _act(self, action: Callable[[], None]) -> None:
        action()
        self.mend()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Let the application do something later in this life, when the process is not paused."""
        life = self.life

        def attempt() -> None:
            if self.life == life and self.alive:
                if self.paused:
                    self.world.after(0.05, attempt)
                else:
                    self.act(action)

        self.world.after(seconds, attempt)

    def _advance(self, call: Call, answer: bool | None) -> None:
        self.acting = call
        try:
            call.wait = call.flow.send(answer)
            self.acting = None
            return
        except StopIteration as stop:
            result, error = stop.value, None
        except (PubsubError, HandlerError) as raised:
            result, error = None, raised
        if self.host.disk.epoch != self.session_epoch:
            return
        self.acting = None
        self._calls.remove(call)
        if error is not None:
            self.mend()  # Only then does the memory show what happened of the call.
        call.then(result, error)

    def mend(self) -> None:
        """Open the client again if its database may differ from its memory, as the application's next call does."""
        if self.database and self.session.unusable:
            self.world.note(f"{self.name} reads its state again")
            self._reopen()
            if self.went_back:  # Its application ends, since it knows more than its database.
                self.later(0.0, self.close)

    @property
    def session_epoch(self) -> int:
        return self._epoch

    def _guarded(self, call: Callable[[], None]) -> None:
        self._epoch = self.host.disk.epoch
        self._turning = True
        super()._guarded(call)
        self._turning = False

    def end(self, how: str) -> None:
        if self.alive and not self._turning:
            self.compare()
        self.cut_off = self.cut_off or (self.alive and how not in {"closed", "over"})
        super().end(how)

    def lose_power(self) -> None:
        super().lose_power()
        self.on_power_cut()

    def compare(self) -> None:
        """Check that its memory equals the state that its next start would load; between two turns of the session."""
        self.found += client_memory.check(self, counters=not self._bare)

    @property
    def is_unwinding(self) -> bool:
        """Whether its process was killed within this step, so that nothing of it reaches anybody."""
        return False

    def block(self, done: Callable[[], bool], deadline: float) -> bool:
        """Wait on the process's only thread; a client that waits for nothing within a step does not wait."""
        return done()

    def drive(self) -> None:
        """Take what has arrived, and do what is due."""
        now, messenger, session = self.host.monotonic(), self.messenger, self.session
        batch, self.inbox = self.inbox, []
        for key, *frames in batch:
            messenger.arrived(key, frames, now)
        due = messenger.core.deadline()
        if due is not None and due <= now:
            messenger.core.tick(now)
            messenger.flush()
        due = session.deadline()
        if due is not None and due <= now:
            session.tick(now)

    def turn(self) -> None:
        self.drive()
        self.mend()
        now = self.host.monotonic()
        for call in list(self._calls):
            wait = call.wait
            if call in self._calls and wait is not None and (wait.done() or now >= wait.deadline):
                self._advance(call, wait.done())
        self.mend()

    def deadline(self) -> float:
        return min([self.due(), *(call.wait.deadline for call in self._calls if call.wait is not None)])

    def due(self) -> float:
        """The time at which `drive` has something to do."""
        if self.inbox:
            return float("-inf")
        dues = self.session.deadline(), self.messenger.core.deadline()
        return min((due for due in dues if due is not None), default=float("inf"))

    def close(self) -> None:
        """The application closes: waiting calls get an error, and unfinished puts are kept."""
        if self.alive and not self.paused:
            self._guarded(self._close)
            self.end("closed")

    def reopen(self) -> None:
        """A signal's handler cut a step off: the application's next call opens the client again, and it goes on."""
        if self.alive and not self.paused:
            self.act(self._reopen)

    def _reopen(self) -> None:
        session = self.session
        session.in_step, session.unusable = -1, True
        waiting = [call for call in self._calls if call.wait is not None]
        open_bodies = self._open_bodies()
        known = suspend(session)
        session.release()
        self._open(known)
        for call in waiting:
            assert call.wait is not None
            assert call.wait.done(), "a call goes on waiting when a step of its client was cut off"
            self._calls.remove(call)
            try:
                call.flow.send(True)
            except StopIteration as stop:
                call.then(stop.value, None)
            except (PubsubError, HandlerError):
                call.then(None, Cancelled(open_bodies))
            else:
                raise AssertionError("a call goes on when a step of its client was cut off")

    def _open_bodies(self) -> frozenset[bytes]:
        """Bodies that callers put and no row of the outbox has yet."""
        waiting = self.session.core.groups._waiting.values()
        return frozenset(share.body for queue in waiting for share in queue)

    def cancel(self, random: Random) -> bool:
        """Cancel one of the calls that wait, as `AsyncClient` does; False where none does."""
        waiting = [call for call in self._calls if call.wait is not None]
        if waiting:
            call = random.choice(waiting)
            self.act(partial(self._cancel, call))
        return bool(waiting)

    def give_up(self, call: Call) -> None:
        """Cancel a call where it waits. To be used within `act`."""
        if call in self._calls and call.wait is not None:
            self._cancel(call)

    def _cancel(self, call: Call) -> None:
        self._calls.remove(call)
        open_bodies = self._open_bodies()
        call.flow.close()
        self.session.recover()
        call.then(None, Cancelled(open_bodies))

    def _close(self) -> None:
        try:
            self.calls.close(0.0)
        except StorageError:
            with suppress(apsw.ConnectionClosedError):
                if self.database:
                    raise
                self.session.store.db.pragma("user_version")
                self.found.append(f"{self.name} is not released, as its disk failed at its close")
            raise
        self.closed = True
        for call in self._calls:
            if call.wait is not None:
                assert call.wait.done(), "a call goes on waiting when its client is closed"
                with suppress(StopIteration, CallerError, InDoubt):
                    call.flow.send(True)
                    raise AssertionError("a call goes on when its client is closed")

    def ended(self) -> None:
        acting, self.acting = self.acting, None
        if self.database:
            self.world.databases.process_ended(self.host)
        if self.went_back is not None:
            self.went_back()
            self.went_back = None
        self.on_end(acting)

    def expected(self, error: BaseException) -> bool:
        return self.explains(error)

    def explains(self, error: BaseException | None) -> bool:
        """Return True if an error may follow from the faults of this process's disk or database."""
        if self.database and isinstance(error, StoreInUse):
            self.world.databases.counters["clients that another process had open"] += 1
            return True
        return self.host.disk.explains(error)
