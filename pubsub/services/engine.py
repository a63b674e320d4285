"""The one shell of all services: it owns the sockets and goes round, and what is decided is decided by the core.

    what other threads want done -> durable changes -> sends -> sleep -> drain (bounded) -> the core's timer

Whoever runs it, a thread or the process itself, is the only one that touches a socket or the core. Others `submit`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final

import zmq

from pubsub.base import forks
from pubsub.base.clock import Clock, SystemClock, sound_wall
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
from pubsub.services.core.interface import FRAMES_MAX, NEVER, Core, Dial, Event, Port, PortKind, Send
from pubsub.services.entrance import Entrance, Locks
from pubsub.services.lull import Lull
from pubsub.services.waiting import Waiting

DRAIN_MAX: Final = 256
"""Messages taken from one socket before the others, and the timers, have their turn."""

HELD_MAX: Final = 100
"""Messages that wait for one handshake; further ones are ZeroMQ's to queue."""

SLEEP_SECONDS_MAX: Final = 1.0
"""A signal that comes just before the sleep begins is seen behind it, and not before."""

LINGER_MS: Final = 200
"""How long the last messages of a service that ends may take."""

_log: Final = logging.getLogger("pubsub.services")

Socket = zmq.Socket[bytes]
Action = Callable[[float], object]
"""Something to do with the core; it is given the monotonic time in seconds."""


class _Open:
    """A socket that is open."""

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
        """What waits for the handshake; None: it is sent at once."""


class Engine:
    """A core, and the sockets that it names.

    Args:
        core: what decides.
        ports: the sockets that are open as long as the core is used.
        locks: its keys.
        context: a ZeroMQ context to share, which is left alone; None: one of its own.
        clock: where the core's time comes from.
        commit: makes durable what the core wants durable, before anything is sent; None: nothing is.
        told: is given each event, by whoever runs the engine, and may use the core there; None: only the log is told.

    Attributes:
        core: the core, for whoever runs the engine only.
        addresses: of the ports that listen, as bound, after `open`.
        counters: of connections.
        ended: it has ended, or broke; nothing is done any more.
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
        self._entrance: Entrance | None = None
        self._redials = Redials(self.counters, _call, self.submit)
        self._lull = Lull()
        self._until: Sized = ()
        self._due_at = NEVER
        """When something was due, as of the last sleep."""
        self._worked = False
        """Whether the messages that were taken brought something to be done."""
        self._expected: dict[str, int] = {}
        """Messages that a port probably has when it has one, by those it had before."""
        self._waiting = Waiting()
        self._opened_anew = True
        self._gates: list[str] = []
        """The ports that are gated."""
        self._shut: tuple[str, ...] = ()
        forks.watch(self)

    # From any thread

    def submit(self, action: Action) -> None:
        """Have something done with the core soon, by whoever runs the engine; nothing where that has ended.

        Raises:
            AfterFork: the engine was opened before a fork, by the parent.
        """
        if self._parent:
            raise AfterFork("this service's connection", self._parent)
        self._actions.append(action)
        if self._sleeping:  # Whoever runs it looks at the actions once more after it has said that it sleeps.
            self._sleeping = False
            self._wakeup.set()

    def stop(self) -> None:
        """End `run` soon; any thread and any signal handler may."""
        self._stopping = True
        self._wakeup.set()

    def hang_up(self) -> None:
        """Look soon who is authorized, and open the audit anew; any thread and any signal handler may."""
        if self._entrance is not None:
            self._entrance.hang_up()
        self._wakeup.set()

    def forked(self, parent: int) -> None:
        """This is a child of process `parent`: be of no use, and touch nothing."""
        self._parent, self.ended = parent, True

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child of the process that made it: nothing of it may be touched."""
        return self._parent != 0

    @property
    def keyed(self) -> bool:
        """Whether somebody is at its doors."""
        return self._entrance is not None

    # By whoever runs it

    def open(self) -> None:
        """Bind, connect, and have the core begin.

        Raises:
            ConfigurationError: an address is in use or is not one, the keys cannot be used, or the clock is wrong.
        """
        try:
            sound_wall(self._clock.wall())  # Before anything is written.
            allow_connections()
            if self._locks.listening is not None and any(_listens(port) for port in self._ports):
                audit = self._locks.audit
                assert audit is not None
                self._entrance = Entrance(self._locks.listening, audit, self._context, self._clock)
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
        curve = self._entrance.curve() if self._entrance is not None and leaves else None
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
        if curve is not None:  # To try another key is to connect anew, by which what ZeroMQ has queued is lost.
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
        """Go round until `stop`, or until there is something in `until`; no more messages are taken then.

        Raises:
            StorageError: what was to be durable could not be made so.
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
            if taken:  # Where nothing is to be durable first, all was settled as it came.
                worked = self._worked or (self._commit is not None and self._settle(now))
                self._lull.took(taken, now, worked=worked)
            if self._due_at <= now:
                self._do_due(now)

    def _do_due(self, now: float) -> None:
        self._redials.redial(now)
        if self._entrance is not None:
            self._entrance.look(now)
        due = self.core.timer()
        if due is not None and due <= now:
            self.core.tick(now)

    def _sleep(self, now: float) -> list[Any]:
        """Wait until something comes, something is due or somebody wakes us; what there is to look at."""
        shut = tuple([name for name in self._gates if not self.core.reads(name)]) if self._gates else ()
        if self._opened_anew or shut != self._shut:
            self._shut = shut
            self._make_waiting(shut)
        # First asleep, then a look: who submits after the look sees us asleep and wakes us.
        self._sleeping = True
        timer = self.core.timer()
        due = self._redials.due if timer is None else min(timer, self._redials.due)
        self._due_at = due = due if self._entrance is None else min(due, self._entrance.deadline)
        seconds = 0.0 if self._actions or self._stopping else max(0.0, min(due - now, SLEEP_SECONDS_MAX))
        nap = self._lull.nap(now)
        if nap:
            nap = min(nap, seconds)
            self._waiting.nap(nap)
            seconds -= nap
        ready = self._waiting.wait(0.0 if self._actions or self._stopping else seconds)
        self._sleeping = False
        return ready

    def _make_waiting(self, shut: Sequence[str]) -> None:
        quiet: list[Any] = [self._wakeup.fileno()]
        if self._entrance is not None:
            quiet.append(self._entrance.sock)
        wakers, every = tuple(quiet), self._open.values()
        quiet += [opened.redial.sock for opened in every if opened.redial is not None]
        quiet += [opened.sock for opened in every if opened.sock.type == zmq.PUB]  # Never has a message.
        self._waiting = Waiting(
            [opened.sock for opened in every if opened.name not in shut and opened.sock not in quiet], quiet, wakers
        )
        self._opened_anew = False

    def _take(self, source: Any, now: float) -> None:
        """Look at what has something that is no message."""
        if source in self._by_watch:
            self._watch(source, now)
        elif self._entrance is not None and source is self._entrance.sock:
            self._entrance.take()
        elif source == self._wakeup.fileno():
            self._wakeup.clear()

    def _watch(self, source: Any, now: float) -> None:
        """Something happened to the connection of a port that was dialled."""
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
        # Read without asking, as far as there are probably messages; the next wait asks whether there are more.
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
            if self._commit is None and self._settle(now):  # Whoever waits for it gets it at once.
                self._worked = True
                # The core closed the port or dialled it anew, or `run` has what its caller waits for.
                if self._until or self._open.get(name) is not opened:
                    return count + 1
        return expected

    def _allows(self, user: str, port: str, frames: Sequence[bytes], now: float) -> bool:
        assert self._entrance is not None
        return self._entrance.allows(user, self.core.asked(port, frames), now)

    def _settle(self, now: float) -> bool:
        """Do what was submitted, make durable what is to be, send, and tell; until nothing is left. Whether any was."""
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
            if not again:  # What an event leads to is sent before the next sleep.
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
        """Have the core say good-bye, and send that."""
        now = self._clock.monotonic()
        self._settle(now)  # A reply that was given just now goes out before the good-bye.
        self.core.leave(now)
        self._settle(now)

    def close(self) -> None:
        """Release the sockets; only after `run` has ended."""
        if self.ended:
            return
        self.ended = True
        self._redials.close()
        for opened in self._open.values():
            opened.sock.close(LINGER_MS)
        self._open.clear()
        self._by_source.clear()
        self._by_watch.clear()
        if self._entrance is not None:
            self._entrance.close()
        if self._own_context:
            self._context.term()
        self._wakeup.close()


def _bound(context: zmq.Context[Any], port: Port, curve: CurveServer | None) -> tuple[Socket, str]:
    """The socket of a port that listens, and its address."""
    if port.kind is PortKind.PUBLISHER:
        return open_publisher(context, port.address, curve=curve)
    return open_router(context, port.address, curve=curve, identity=port.identity)


def _call(function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
    """Call what a redial has to tell; whether it did not raise."""
    function(*arguments)
    return True


def _listens(port: Port) -> bool:
    """Whether a port can be reached from outside this process, so that a key locks it."""
    return port.kind is not PortKind.SUBSCRIBER and not port.address.startswith("inproc://")


def log_event(event: Event, now: float) -> None:
    """Write down what an operator may want to know."""
    text = getattr(event, "text", "")
    if text:
        _log.log(logging.WARNING if getattr(event, "warning", False) else logging.INFO, "%s", text)
