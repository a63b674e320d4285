"""The Messenger: a core, its sockets and the thread that drives them when no caller does.

Everything that touches a socket happens between taking the turn (`driving.py`) and giving it back. `send` puts a
message in the queue and, where nobody is at the sockets, moves the queue into them at once; where the driver sleeps it
is woken.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Sequence
from threading import Lock, RLock, Thread, get_ident
from typing import Any, Final, NoReturn, Protocol

import zmq
from zmq.backend import zmq_poll

from pubsub import forks
from pubsub.clock import Clock, SystemClock
from pubsub.errors import AfterFork, CallerError, Interrupted, TooLarge
from pubsub.messenger.core import AnswerCallback, Counters, MessengerCore, ServerLoop
from pubsub.messenger.driving import Driving
from pubsub.messenger.framing import Callback
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.peer import Link, Peer, Request
from pubsub.messenger.pending import Buffer
from pubsub.messenger.seen import INSTANCE_BITS
from pubsub.messenger.sockets import Redial, Wakeup, open_redialed, open_router, receive_frames, send_frames

_LOG: Final = logging.getLogger(__name__)
_SLEEP_SECONDS_MAX: Final = 60.0
_TICKER_REST_SECONDS: Final = 0.1  # A ticker that raises is due still; it must not be called again and again at once.
_POLLIN: Final = int(zmq.POLLIN)
_FOREVER: Final = float("inf")


def _parts(contents: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """The contents as a sequence of at least one buffer; refused here, where the caller sees it, if they are not."""
    if isinstance(contents, bytes | memoryview):
        return (contents,)
    if isinstance(contents, str) or not all(isinstance(part, bytes | memoryview) for part in contents):
        raise CallerError("the contents of a message are bytes or memoryview, one or several")
    return contents or (b"",)


class Ticker(Protocol):
    """Timers of the application that the driving thread looks after."""

    def deadline(self) -> float | None:
        """When `tick` is to be called next, on the monotonic clock in seconds; None: not now."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def struck(self) -> None:
        """The Messenger was interrupted in the midst of something: it sends and receives nothing any more."""


class Messenger:
    """Messages with callbacks between processes and threads, over `tcp://`, `ipc://` and `inproc://`.

    A callback or a server loop runs on whichever thread drives the sockets: the I/O thread, or a caller inside `wait`.
    It must not block. One that raises is logged and counted. In the child of a fork every call raises AfterFork.

    An exception that a signal raises (Ctrl-C) while the caller's thread moves messages may leave one sent in part. Then
    nothing is sent or received any more, and every call but `close` raises Interrupted. It does not while he waits.

    Args:
        context: a ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        clock: where the time comes from.
        limits: what is held at most.
        chance: where the jitter of retries comes from; None: seeded by the system.
    """

    def __init__(
        self,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        limits: MessengerLimits | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._own_context = context is None
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self.clock: Clock = clock or SystemClock()
        self.limits = limits or MessengerLimits()
        self.ticker: Ticker | None = None
        self._core = MessengerCore(
            secrets.randbits(INSTANCE_BITS), chance or random.Random(), self._answer, self.limits
        )
        self._wakeup = Wakeup()
        self._gate = RLock()
        self._queue: list[Callable[[float], None]] = []
        self._queued_messages = 0
        self._queued_bytes = 0
        self._sockets: dict[Link, zmq.Socket[bytes]] = {}
        self._links: dict[zmq.Socket[bytes], Link] = {}
        self._redials: dict[zmq.Socket[bytes], Redial] = {}
        self._redial_at = _FOREVER
        self._pollset: list[tuple[Any, int]] = [(self._wakeup.fileno(), _POLLIN)]
        self._connections: dict[str, Peer] = {}
        self._connecting = Lock()
        self._ticker_rests_until = 0.0
        self._sleeping = False
        self._driver = 0
        self._midway = self._torn = False
        """Whether messages are being moved, and whether an exception was found to have ended that."""
        self._closed = False
        self._cleaned = False
        self._driving = Driving(self.clock, self.limits.grace_seconds, self._wake_sleeper)
        self._thread: Thread | None = None
        self._inherited: AfterFork | None = None
        forks.watch(self)

    # Links

    def listen(self, endpoint: str, server_loop: ServerLoop, *, idempotent: bool = False) -> str:
        """Open an endpoint with a server loop of its own.

        Args:
            endpoint: `tcp://HOST:PORT` (port 0: a free one), `ipc://PATH` or `inproc://NAME`.
            server_loop: called with each `Request` that names no callback of ours.
            idempotent: hand repeats on too, and neither keep nor acknowledge the answers.

        Returns:
            The endpoint that others can connect to, with its port.

        Raises:
            ConfigurationError: the address is in use or is not one.
        """
        self._check_open()
        sock, bound = open_router(self._context, endpoint)
        self._adopt(self._core.opened(bound, server_loop, idempotent=idempotent), sock)
        return bound

    def connect(self, endpoint: str, server_loop: ServerLoop | None = None, *, idempotent: bool = False) -> Peer:
        """Connect to an endpoint, now or as soon as somebody opens it, and again whenever the connection breaks.

        Args:
            endpoint: of another Messenger.
            server_loop: for messages of the other side that name no callback of ours.
            idempotent: as in `listen`.

        Returns:
            The other side, to send to. Each call makes a connection of its own.

        Raises:
            ConfigurationError: `endpoint` is not an address.
        """
        self._check_open()
        sock, redial = open_redialed(self._context, endpoint, heartbeat_seconds=self.limits.heartbeat_seconds)
        link = self._core.connected(endpoint, server_loop, idempotent=idempotent)
        self._adopt(link, sock, redial)
        assert link.peer is not None
        return link.peer

    def disconnect(self, peer: Peer) -> None:
        """Close the connection to a peer; what is pending to it is abandoned."""
        if self._inherited is not None:
            raise self._inherited

        def close(now: float) -> None:
            sock = self._sockets.pop(peer.link, None)
            if sock is not None:
                self._core.closed(peer.link)
                del self._links[sock]
                self._pollset.remove((sock, _POLLIN))
                self._stop_redialing(sock)
                sock.close(0)

        with self._connecting:
            self._connections = {e: p for e, p in self._connections.items() if p is not peer}
        self._enqueue(close)

    def _adopt(self, link: Link, sock: zmq.Socket[bytes], redial: Redial | None = None) -> None:
        def adopt(now: float) -> None:
            self._sockets[link] = sock
            self._links[sock] = link
            self._pollset.append((sock, _POLLIN))
            if redial is not None:
                self._redials[redial.sock] = redial
                self._pollset.append((redial.sock, _POLLIN))

        with self._gate:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="messenger", daemon=True)
                self._thread.start()
        self._enqueue(adopt)

    def _stop_redialing(self, sock: zmq.Socket[bytes]) -> None:
        for watch, redial in tuple(self._redials.items()):
            if redial.watches(sock):
                del self._redials[watch]
                self._pollset.remove((watch, _POLLIN))
                redial.close()

    def _redial(self, now: float) -> None:
        """Connect anew what ZeroMQ gave up, where that is due, and note when it is due next."""
        for redial in self._redials.values():
            if redial.due <= now:
                redial.redial()
                self._core.counters.redialed += 1
        self._redial_at = min([redial.due for redial in self._redials.values()], default=_FOREVER)

    def forked(self, parent: int) -> None:
        """This is a child of the process that opened it: whatever is called raises, and nothing is touched."""
        self._inherited = AfterFork("the Messenger", parent)
        self._closed = self._cleaned = True
        self._gate, self._connecting = RLock(), Lock()

    def __reduce__(self) -> NoReturn:
        forks.no_pickling("a Messenger")

    @property
    def driven_here(self) -> bool:
        """Whether this thread drives the sockets, or is the one that does where nobody else does."""
        return self._driver == get_ident() or (self._thread is not None and self._thread.ident == get_ident())

    def _check_open(self) -> None:
        if self._inherited is not None:
            raise self._inherited
        if self._closed:
            raise CallerError("the Messenger is closed")
        if self._torn:
            raise Interrupted("the Messenger")

    # Sending

    def send(
        self,
        destination: str | Peer,
        contents: Buffer | Sequence[Buffer],
        callback: AnswerCallback | None = None,
        dest_callback: int = Callback.NOOP,
        *,
        retry: bool = True,
    ) -> int:
        """Queue a message; from any thread, a callback too.

        Args:
            destination: a peer, or an endpoint, which is connected to when it is first named.
            contents: what follows the prefix; of several parts the first does, and the others are further frames,
                which are not copied where they are large.
            callback: called once, with (peer, contents of the answer's first frame, its further frames).
            dest_callback: the callback there that gets it: NOOP is the server loop, ECHO sends the contents back.
            retry: send it again until it is answered (or, without a callback, acknowledged). Without, the caller makes
                each try itself, by another `send`; the callback stays valid until it was called, or until `forget`.

        Returns:
            A token for `forget`; 0 without a callback.

        Raises:
            TooLarge: a named limit is reached; nothing was queued.
            CallerError: the contents are not bytes, or the Messenger is closed.
            ConfigurationError: `destination` is not an address.
        """
        self._check_open()
        peer = self._connection(destination) if isinstance(destination, str) else destination
        parts = _parts(contents)
        size = self._check_room(parts)
        token = self._core.register(peer, callback, retry=retry) if callback is not None else 0

        def send(now: float) -> None:
            self._core.send(peer, parts, now, token=token, destination=dest_callback, retry=retry)

        self._enqueue(send, size)
        return token

    def _answer(self, request: Request, contents: Buffer | Sequence[Buffer]) -> None:
        parts = _parts(contents)
        size = self._check_room(parts)
        self._enqueue(lambda now: self._core.answer(request, parts, now), size)

    def forget(self, token: int) -> None:
        """A callback is not wanted any more: its answer, should it come, is dropped. From any thread."""
        self._core.forget(token)

    def _connection(self, endpoint: str) -> Peer:
        with self._connecting:
            peer = self._connections.get(endpoint)
            if peer is None:
                peer = self._connections[endpoint] = self.connect(endpoint)
            return peer

    def _check_room(self, parts: Sequence[Buffer]) -> int:
        limits, pending = self.limits, self._core.pending
        size = sum(map(len, parts))
        if size > limits.message_bytes_max:
            raise TooLarge("message", size, limits.message_bytes_max, "message_bytes_max")
        if pending.count + self._queued_messages >= limits.messages_max:
            raise TooLarge(
                "number of unanswered messages",
                pending.count + self._queued_messages + 1,
                limits.messages_max,
                "messages_max",
            )
        total = pending.size + self._queued_bytes + size
        if total > limits.bytes_max:
            raise TooLarge("size of unanswered messages", total, limits.bytes_max, "bytes_max")
        return size

    def _enqueue(self, action: Callable[[float], None], size: int = 0) -> None:
        with self._gate:
            self._queue.append(action)
            self._queued_messages += 1
            self._queued_bytes += size
        # Whoever drives looks at the queue once more after it gave back its turn, so one of us two sees it.
        self._flush_if_free()
        if self._queue:
            self._wake_sleeper()

    def wake(self) -> None:
        """Make the driving thread look at the ticker's deadline again. From any thread."""
        self._wake_sleeper()

    def _wake_sleeper(self) -> None:
        if self._sleeping:
            self._sleeping = False
            self._wakeup.set()

    # Driving

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Drive the sockets on this thread until something is done, or sleep while another thread drives them.

        Not to be called from a callback, nor with a lock held that a callback or `done` takes.

        Args:
            done: whether that for which the caller waits has happened; made true by a callback.
            deadline: on the monotonic clock, in seconds.

        Returns:
            What `done()` says at the end. With a deadline that is past it looks once and does not sleep.

        Raises:
            CallerError: it was called from a callback.
        """
        if self._driver == get_ident():
            raise CallerError("wait() was called from a callback; the thread that drives the sockets cannot wait")
        try:
            while not done() and not self._over():
                try:
                    if self._driving.caller_takes(lambda: self._over() or done(), deadline):
                        self._drive(lambda: self._over() or done(), deadline)
                finally:
                    self._driving.caller_gives()
                self._flush_if_free()
                if self.clock.monotonic() >= deadline:
                    break
        except BaseException:
            self.recover()
            raise
        if self._inherited is not None:
            raise self._inherited
        if self._torn and not self._closed:
            raise Interrupted("the Messenger")
        return done()

    def _over(self) -> bool:
        return self._closed or self._torn

    def recover(self) -> None:
        """An exception left a call of this thread, wherever it struck: give back what the thread still holds."""
        while self._gate._is_owned():  # type: ignore[attr-defined]
            self._gate.release()
        if self._driver == get_ident():
            self._driver = 0
        if self._midway and (self._driving.is_mine() or self._driving.try_take()):
            self._tear()
        self._driving.recover()

    def announce(self) -> None:
        """Let callers who sleep in `wait` look at what they wait for."""
        self._driving.announce()

    def _begin(self) -> bool:
        """This thread has the turn, and is about to move messages; whether nobody was interrupted in that."""
        if self._midway:
            self._tear()
        if not self._torn:
            self._midway = True
        return self._midway

    def _tear(self) -> None:
        """The turn is this thread's, and a thread that had it was cut off: what is in the sockets is not known."""
        self._torn, self._midway = True, False
        self._driving.stop()
        if self.ticker is not None:
            self.ticker.struck()

    def _run(self) -> None:
        while self._driving.thread_takes(self._over):
            try:
                self._drive(lambda: self._over() or self._driving.callers > 0, _FOREVER, yields=True)
            finally:
                self._driving.thread_gives()
            self._flush_if_free()

    def _flush_if_free(self) -> None:
        """What was queued, or asked for by `close`, while this thread was about to leave must not wait."""
        while ((self._queue and not self._torn) or self._closed) and not self._cleaned and not self._driving.is_mine():
            try:
                if not self._driving.try_take():
                    return
                if self._closed:
                    self._clean()
                elif self._begin():
                    self._flush()
                    self._midway = False
            finally:
                self._driving.give_up()

    def _drive(self, done: Callable[[], bool], deadline: float, *, yields: bool = False) -> None:
        """Flush, sleep, drain, tick; until `done()` or the deadline. This thread has the turn.

        `yields`: the sleep ends when a caller wants the turn.
        """
        core, clock = self._core, self.clock
        if not self._begin():
            return
        self._driver = get_ident()
        try:
            while True:
                self._flush()
                if done():
                    break
                begun = clock.monotonic()
                for source, _ in self._sleep(begun, deadline, yields=yields):
                    link = self._links.get(source)
                    if link is not None:
                        self._drain(link, source)
                    elif source in self._redials:
                        self._redials[source].take(clock.monotonic())
                        self._redial_at = 0.0  # `_redial` finds out when it is.
                    else:
                        self._wakeup.clear()
                now = clock.monotonic()
                if self._redial_at <= now:
                    self._redial(now)
                due = core.deadline()
                if due is not None and due <= now:
                    core.tick(now)
                self._tick(now)
                if self._driving.callers and not yields:
                    self._driving.announce()
                if begun >= deadline:
                    break
            self._midway = False
        except zmq.ZMQError as error:
            if error.errno not in {zmq.ETERM, zmq.ENOTSOCK}:
                raise
            self._closed = True  # The context that we share was ended by its owner.
        finally:
            self._driver = 0

    def _sleep(self, now: float, deadline: float, *, yields: bool) -> list[tuple[Any, int]]:
        """Poll until something comes, something is due or somebody wakes us."""
        # First asleep, then a look: who queues or calls after the look sees us asleep and wakes us.
        self._sleeping = True
        try:
            pause = 0
            if not self._queue and not (yields and self._driving.callers):
                pause = int(min(max(self._until(deadline) - now, 0.0), _SLEEP_SECONDS_MAX) * 1000 + 0.999)
            self._midway = False  # An exception that strikes while we sleep cuts nothing off.
            ready = zmq_poll(self._pollset, pause)
            self._midway = True
            return ready
        finally:
            self._sleeping = False

    def _until(self, deadline: float) -> float:
        deadline = min(deadline, self._redial_at)
        due = self._core.deadline()
        if due is not None and due < deadline:
            deadline = due
        due = self._ticker_deadline()
        if due is not None and due < deadline:
            deadline = due
        return deadline

    def _tick(self, now: float) -> None:
        due = self._ticker_deadline()
        ticker = self.ticker
        if ticker is not None and due is not None and due <= now and not self._call(ticker.tick, (now,)):
            self._ticker_rests_until = now + _TICKER_REST_SECONDS

    def _ticker_deadline(self) -> float | None:
        due = self.ticker.deadline() if self.ticker is not None else None
        return due if due is None else max(due, self._ticker_rests_until)

    def _drain(self, link: Link, sock: zmq.Socket[bytes]) -> None:
        core = self._core
        now = self.clock.monotonic()
        opened = link.peer is None
        for index in range(self.limits.drain_messages):
            frames = receive_frames(sock, known=not index)
            if frames is None:
                return
            if len(frames) <= opened:
                core.counters.undecodable += 1
                continue
            if opened:
                call = core.receive(link, bytes(frames[0]), frames[1], frames[2:], now)
            else:
                call = core.receive(link, b"", frames[0], frames[1:], now)
            if call is not None:
                self._call(*call)

    def _call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """Call the application; whether it did not raise."""
        self._midway = False  # What a callback does is its own: we are between two messages.
        try:
            function(*arguments)
            self._midway = True
        except Exception:  # noqa: BLE001 - what an application's callback raises is logged and counted, and ends there.
            self._core.counters.callback_errors += 1
            self._midway = True
            _LOG.exception("callback %r raised", function)
            return False
        return True

    def _flush(self) -> None:
        """Move the queue through the core into the sockets. No callback is called here."""
        core = self._core
        if self._queue:
            with self._gate:
                queue, self._queue = self._queue, []
                self._queued_messages = self._queued_bytes = 0
            now = self.clock.monotonic()
            for action in queue:
                action(now)
        for peer, head, parts in core.take():
            sock = self._sockets.get(peer.link)
            if sock is not None and send_frames(sock, peer.routing, head, parts):
                core.counters.sent += 1
            else:
                core.counters.unsent += 1

    # State

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        return self._core.counters

    @property
    def pending(self) -> int:
        """Messages that wait for their answer or acknowledgement, and those still queued."""
        return self._core.pending.count + self._queued_messages

    @property
    def callbacks(self) -> int:
        """Callbacks that are registered."""
        return self._core.callbacks

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Close the sockets and end the thread; what is pending is abandoned, and callers in `wait` return.

        With a context of its own the addresses are free when this returns; in a shared one ZeroMQ frees them a moment
        later. Called from a callback it closes when that returns.
        """
        with self._gate:
            self._closed = True
        if self._cleaned:
            return
        self._wakeup.set()
        self._driving.stop()
        if self._driver == get_ident():
            return  # Called from a callback: this thread cleans up when its turn ends.
        if self._thread is not None and self._thread.ident is not None:  # An interrupt may have kept it from starting.
            self._thread.join()
        try:
            if self._driving.caller_takes(lambda: self._cleaned, _FOREVER):
                self._clean()
        finally:
            self._driving.caller_gives()

    def _clean(self) -> None:
        """Send what is queued as far as that goes without waiting, and close the sockets. This thread has the turn."""
        if self._cleaned:
            return
        if not self._torn and self._begin():
            self._flush()
            self._midway = False
        for redial in self._redials.values():
            redial.close()
        self._redials.clear()
        for sock in self._links:
            sock.close(0)
        self._links.clear()
        self._sockets.clear()
        self._cleaned = True
        self._wakeup.close()
        if self._own_context:
            self._context.destroy(0)

    def __enter__(self) -> Messenger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
