"""The shell of every core: it owns the sockets and the clock, and the core decides.

    submitted actions -> durable changes -> sends -> sleep -> receive (bounded) -> the core's timer

One thread, or the process itself, runs the engine. Only that thread touches a socket or the core. Other threads
`submit`.

The rules are those of docs/explanation/services-engine.md, E1, E2 and E4.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final

import zmq

from pubsub.base import forks
from pubsub.base.clock import Clock, SystemClock, valid_wall
from pubsub.base.limits import BODY_BYTES_MAX
from pubsub.base.open_files import check_files
from pubsub.base.patched import refuse_patched
from pubsub.base.resources import allow_connections
from pubsub.errors import AfterFork
from pubsub.messenger import Counters, CurveServer, Refusal
from pubsub.messenger.receiving import receive_copied, receive_of_user
from pubsub.messenger.redial import Redial, open_redialed
from pubsub.messenger.redials import Redials
from pubsub.messenger.sockets import open_publisher, open_router, open_subscriber, send_frames
from pubsub.messenger.wakeup import Wakeup
from pubsub.services.access import Locks, ServiceAccess
from pubsub.services.core.interface import FRAMES_MAX, NEVER, Core, Dial, Event, Port, PortKind, Send
from pubsub.services.heartbeat_batching import HeartbeatBatching
from pubsub.services.waiting import Waiting

DRAIN_MAX: Final = 256
"""Messages read from one socket before the other sockets and the timers are served."""

HELD_MAX: Final = 100
"""Messages that wait for one handshake. ZeroMQ queues further ones."""

SLEEP_SECONDS_MAX: Final = 1.0
"""Longest single sleep. A signal that comes just before a sleep is handled only after it."""

LINGER_MS: Final = 200
"""Time for the last messages of a service that ends."""

_log: Final = logging.getLogger("pubsub.services")

Socket = zmq.Socket[bytes]
Action = Callable[[float], object]
"""An action on the core; it receives the monotonic time in seconds."""


class _Open:
    __slots__ = ("gated", "held", "locked", "name", "redial", "routed", "sock")

    def __init__(
        self,
        name: str,
        sock: Socket,
        *,
        routed: bool,
        gated: bool = False,
        locked: bool = False,
        redial: Redial | None = None,
    ) -> None:
        self.name, self.sock, self.routed, self.gated, self.locked = name, sock, routed, gated, locked
        self.redial = redial
        self.held: list[Send] | None = None
        """Messages that wait for the handshake; None: messages are sent at once."""


class Engine:
    """A core and its sockets.

    Args:
        ports: the sockets that stay open as long as the engine.
        context: a ZeroMQ context to share, which the engine does not end; None: a context of its own.
        commit: makes the core's durable changes durable before anything is sent; None: the core has none.
        told: receives each event, in the thread that runs the engine, and may use the core; None: the log receives
            them.

    Attributes:
        core: the core, for the thread that runs the engine only.
        addresses: bound addresses of the listening ports, after `open`.
        counters: counters of connections.
        ended: the engine has ended or failed; it does nothing any more.
    """

    def __init__(
        self,
        core: Core,
        ports: Sequence[Port] = (),
        *,
        locks: Locks | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        commit: Callable[[], object] | None = None,
        told: Callable[[Event, float], object] | None = None,
    ) -> None:
        refuse_patched("a service, its workers and its clients")
        check_files()
        self.core, self._ports, self._locks = core, tuple(ports), locks or Locks()
        self._clock = clock or SystemClock()
        self._own_context = context is None
        self._context: zmq.Context[Any] = context or zmq.Context()
        self._commit, self._told = commit, told or log_event
        self._wakeup = Wakeup()
        self._actions: deque[Action] = deque()
        self._sleeping = self._stopping = self.ended = False
        self._parent = 0
        self.addresses: dict[str, str] = {}
        self.counters = Counters()
        self._open: dict[str, _Open] = {}
        self._by_source: dict[Any, _Open] = {}
        self._by_watch: dict[Any, _Open] = {}
        self._access: ServiceAccess | None = None
        self._redials = Redials(self.counters, _call, self.submit)
        self._batching = HeartbeatBatching()
        self._until: Sized = ()
        self._due_at = NEVER
        """Due time of the last sleep."""
        self._worked = False
        """Whether the received messages led to an action of the core."""
        self._expected: dict[str, int] = {}
        """Estimated number of waiting messages by port, from the number at earlier reads."""
        self._waiting = Waiting()
        self._opened_anew = True
        self._gates: list[str] = []
        self._not_read: tuple[str, ...] = ()
        forks.watch(self)

    # From any thread

    def submit(self, action: Action) -> None:
        """Queue an action on the core, for the thread that runs the engine. No action runs after the engine has ended.

        Raises:
            AfterFork: the parent process opened the engine before a fork.
        """
        if self._parent:
            raise AfterFork("this service's connection", self._parent)
        self._actions.append(action)
        if self._sleeping:  # The engine checks the actions once more after it has set `_sleeping`.
            self._sleeping = False
            self._wakeup.set()

    def stop(self) -> None:
        """End `run` soon. Any thread and any signal handler may call this."""
        self._stopping = True
        self._wakeup.set()

    def hang_up(self) -> None:
        """Read the access list again soon, and reopen the audit file. For any thread and any signal handler."""
        if self._access is not None:
            self._access.hang_up()
        self._wakeup.set()

    def forked(self, parent: int) -> None:
        """Disable this copy of the engine in a forked child of process `parent`, without touching a socket."""
        self._parent, self.ended = parent, True

    @property
    def inherited(self) -> bool:
        """Whether this is the copy of a forked child, which must not be touched."""
        return self._parent != 0

    @property
    def keyed(self) -> bool:
        """Whether clients and workers need a key."""
        return self._access is not None

    # From the thread that runs the engine

    def open(self) -> None:
        """Bind, connect, and start the core.

        Raises:
            ConfigurationError: an address is in use or invalid, the keys cannot be used, or the clock is wrong.
        """
        try:
            valid_wall(self._clock.wall())  # The clock must be right before anything is written.
            allow_connections()
            if self._locks.listening is not None and any(_listens(port) for port in self._ports):
                audit = self._locks.audit
                assert audit is not None
                self._access = ServiceAccess(self._locks.listening, audit, self._context, self._clock)
            for port in self._ports:
                self._open_port(port)
            now = self._clock.monotonic()
            self.core.start(now)
            self._settle(now)
        except BaseException:
            self.close()
            raise

    def _open_port(self, port: Port) -> None:
        leaves = not port.address.startswith("inproc://")
        curve = self._access.curve() if self._access is not None and leaves else None
        if port.kind is PortKind.SUBSCRIBER:
            sock = open_subscriber(self._context, port.address, curve=self._locks.curve(port.address))
        else:
            sock, self.addresses[port.name] = _bound(self._context, port, curve)
        routed = port.kind is PortKind.ROUTER
        self._adopt(_Open(port.name, sock, routed=routed, gated=port.gated, locked=routed and curve is not None))

    def _adopt(self, opened: _Open) -> None:
        self._open[opened.name] = opened
        self._by_source[opened.sock] = opened
        if opened.gated:
            self._gates.append(opened.name)
        self._opened_anew = True

    def _dial(self, dial: Dial) -> None:
        self._hang_up(dial.port)
        curve = self._locks.curve(dial.address)

        def told(refusal: Refusal | None) -> None:
            reason = "" if refusal is None else self._locks.sentence(refusal, dial.address)
            self.core.refused(dial.port, reason, self._clock.monotonic())

        sock, redial = open_redialed(self._context, dial.address, curve=curve, told=told, identified=dial.lasting)
        self._redials.add(redial)
        self._adopt(_Open(dial.port, sock, routed=False, redial=redial))
        if curve is not None:  # Another key needs a new connection, which loses ZeroMQ's queue.
            self._open[dial.port].held = []
        self._by_watch[redial.sock] = self._open[dial.port]

    def _hang_up(self, name: str) -> None:
        opened = self._open.pop(name, None)
        if opened is not None:
            del self._by_source[opened.sock]
            self._by_watch.pop(self._redials.drop(opened.sock), None)
            opened.sock.close(0)
            self._opened_anew = True

    def run(self, until: Sized = ()) -> None:
        """Run until `stop`, or until `until` is not empty. No further message is read then.

        Raises:
            StorageError: a durable change could not be stored.
        """
        clock, self._until = self._clock.monotonic, until
        while not self._stopping and not until:
            now = clock()
            self._settle(now)
            sources = self._sleep(now)
            now = clock()
            self._worked = False
            taken = 0
            for source in sources:
                opened = self._by_source.get(source)
                if opened is not None:
                    taken += self._drain(opened, now)
                else:
                    self._take(source, now)
            if taken:  # Without a commit each message was settled at once.
                worked = self._worked or (self._commit is not None and self._settle(now))
                self._batching.took(taken, now, worked=worked)
            if self._due_at <= now:
                self._do_due(now)

    def _do_due(self, now: float) -> None:
        self._redials.redial(now)
        if self._access is not None:
            self._access.look(now)
        due = self.core.timer()
        if due is not None and due <= now:
            self.core.tick(now)

    def _sleep(self, now: float) -> list[Any]:
        """Wait for a message, a due time or a wakeup. Return the sources to read."""
        not_read = tuple([name for name in self._gates if not self.core.reads(name)]) if self._gates else ()
        if self._opened_anew or not_read != self._not_read:
            self._not_read = not_read
            self._make_waiting(not_read)
        # Set before the check of the actions: a thread that submits after the check then wakes the engine.
        self._sleeping = True
        timer = self.core.timer()
        due = self._redials.due if timer is None else min(timer, self._redials.due)
        self._due_at = due = due if self._access is None else min(due, self._access.deadline)
        seconds = 0.0 if self._actions or self._stopping else max(0.0, min(due - now, SLEEP_SECONDS_MAX))
        batching_seconds = self._batching.batching_seconds(now)
        if batching_seconds:
            batching_seconds = min(batching_seconds, seconds)
            self._waiting.batching_seconds(batching_seconds)
            seconds -= batching_seconds
        ready = self._waiting.wait(0.0 if self._actions or self._stopping else seconds)
        self._sleeping = False
        return ready

    def _make_waiting(self, not_read: Sequence[str]) -> None:
        quiet: list[Any] = [self._wakeup.fileno()]
        if self._access is not None:
            quiet.append(self._access.sock)
        wakers, every = tuple(quiet), self._open.values()
        quiet += [opened.redial.sock for opened in every if opened.redial is not None]
        quiet += [opened.sock for opened in every if opened.sock.type == zmq.PUB]  # Never has a message.
        self._waiting = Waiting(
            [opened.sock for opened in every if opened.name not in not_read and opened.sock not in quiet], quiet, wakers
        )
        self._opened_anew = False

    def _take(self, source: Any, now: float) -> None:
        """Handle a source that carries no messages of the core."""
        if source in self._by_watch:
            self._watch(source, now)
        elif self._access is not None and source is self._access.sock:
            self._access.take()
        elif source == self._wakeup.fileno():
            self._wakeup.clear()

    def _watch(self, source: Any, now: float) -> None:
        """Handle an event on the connection of a dialled port."""
        self._redials.take(source, now)
        opened = self._by_watch.get(source)
        if opened is None or opened.redial is None:
            return
        if opened.redial.up and opened.held is not None:
            held, opened.held = opened.held, None
            for send in held:
                self._send(send, now)
        if opened.redial.ended:
            opened.redial.ended = False
            if opened.held is None and not opened.redial.up and self._locks.curve(opened.redial.endpoint) is not None:
                opened.held = []
            self.core.ended(opened.name, now)

    def _drain(self, opened: _Open, now: float) -> int:
        core, sock, name = self.core, opened.sock, opened.name
        receive, user, expected = core.receive, "", self._expected.get(name, 1)
        # Read the estimated number without polling; the next wait finds further messages.
        expected = min(2 * expected, DRAIN_MAX) if self._waiting.at_once else max(1, expected // 2)
        self._expected[name] = expected
        for count in range(expected):
            if opened.gated and not core.reads(name):
                return count
            if opened.locked:
                user, frames = receive_of_user(sock, FRAMES_MAX + 1, BODY_BYTES_MAX)
            else:
                frames = receive_copied(sock, FRAMES_MAX + 1, BODY_BYTES_MAX, known=True)
            if frames is None:
                self._expected[name] = max(1, count)
                return count
            if len(frames) <= opened.routed:
                core.counters["undecodable"] += 1
                continue
            peer = frames.pop(0) if opened.routed else b""
            if opened.locked and not self._allows(user, name, frames, now):
                core.counters["denied"] += 1
                continue
            receive(name, peer, frames, now)
            if self._commit is None and self._settle(now):  # The reply leaves without delay.
                self._worked = True
                # The core closed or redialled the port, or `run` is complete.
                if self._until or self._open.get(name) is not opened:
                    return count + 1
        return expected

    def _allows(self, user: str, port: str, frames: Sequence[bytes], now: float) -> bool:
        assert self._access is not None
        return self._access.allows(user, self.core.asked(port, frames), now)

    def _settle(self, now: float) -> bool:
        """Run actions, commit, send and deliver events until nothing is left. Return True if there was anything."""
        core, actions = self.core, self._actions
        worked = bool(actions)
        while actions:
            actions.popleft()(now)
        while True:
            if self._commit is not None:
                self._commit()
            sends, events = core.take_sends(), core.take_events()
            if not sends and not events:
                return worked
            worked, again = True, self._commit is not None
            for act in sends:
                if type(act) is not Send:
                    self._dial(act) if isinstance(act, Dial) else self._hang_up(act.port)
                    again = True
                elif not self._send(act, now):
                    again = True
            for event in events:
                self._told(event, now)
            if not again:  # `run` settles again before it sleeps, and sends the results of events.
                return True

    def _send(self, send: Send, now: float) -> bool:
        opened = self._open.get(send.port)
        if opened is not None and opened.held is not None and len(opened.held) < HELD_MAX:
            opened.held.append(send)
        elif opened is None or not send_frames(opened.sock, send.peer, send.frames[0], send.frames[1:]):
            self.core.undelivered(send, now, gone=opened is None or opened.routed)
            return False
        return True

    def leave(self) -> None:
        """Send the core's goodbye messages."""
        now = self._clock.monotonic()
        self._settle(now)  # A reply that is still queued leaves before the goodbye.
        self.core.leave(now)
        self._settle(now)

    def close(self) -> None:
        """Close the sockets, after `run` has ended."""
        if self.ended:
            return
        self.ended = True
        self._redials.close()
        for opened in self._open.values():
            opened.sock.close(LINGER_MS)
        self._open.clear()
        self._by_source.clear()
        self._by_watch.clear()
        if self._access is not None:
            self._access.close()
        if self._own_context:
            self._context.term()
        self._wakeup.close()


def _bound(context: zmq.Context[Any], port: Port, curve: CurveServer | None) -> tuple[Socket, str]:
    if port.kind is PortKind.PUBLISHER:
        return open_publisher(context, port.address, curve=curve)
    return open_router(context, port.address, curve=curve, identity=port.identity)


def _call(function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
    """Run a callback of `Redials`; its errors are not caught."""
    function(*arguments)
    return True


def _listens(port: Port) -> bool:
    """Whether other processes can reach the port, so that it needs a key."""
    return port.kind is not PortKind.SUBSCRIBER and not port.address.startswith("inproc://")


def log_event(event: Event, now: float) -> None:
    text = getattr(event, "text", "")
    if text:
        _log.log(logging.WARNING if getattr(event, "warning", False) else logging.INFO, "%s", text)
