"""The loop that drives a Messenger's sockets: flush, sleep, drain, tick.

The thread that has the turn (`driving.py`) runs this loop: the I/O thread, or a caller inside `Messenger.wait`.
Sockets are touched only here, between taking the turn and giving it back. Other threads put their actions into the
queue. If no thread has the turn, they move the queue into the sockets at once; if the driver sleeps, they wake it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock, get_ident
from typing import Any, Final, Protocol

import zmq
from zmq.backend import zmq_poll

from pubsub.base.clock import Clock
from pubsub.base.locks import release_all
from pubsub.base.open_files import check_files
from pubsub.base.patched import refuse_patched
from pubsub.errors import PubsubError
from pubsub.messenger.core import MessengerCore
from pubsub.messenger.driving import Driving
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.peer import Link
from pubsub.messenger.redial import Redial
from pubsub.messenger.redials import Redials
from pubsub.messenger.sockets import receive_frames, send_frames
from pubsub.messenger.wakeup import Wakeup
from pubsub.messenger.zap_handler import ZapHandler

_LOG: Final = logging.getLogger(__name__)
_SLEEP_SECONDS_MAX: Final = 60.0
_TICKER_REST_SECONDS: Final = (
    0.1  # A ticker that raised is still due; this pause keeps it from being called in a busy loop.
)
_POLLIN: Final = int(zmq.POLLIN)
FOREVER: Final = float("inf")

Action = Callable[[float], None]
"""Work at the sockets; it gets the monotonic time in seconds."""


class Ticker(Protocol):
    """Timers of the application that the driving thread serves.

    In an application with a ticker, callbacks may raise only PubsubErrors. Any other exception comes from a signal
    handler or a bug. It leaves the `wait` or the `look` of the driving caller.
    """

    def deadline(self) -> float | None:
        """Return when `tick` is due, on the monotonic clock in seconds; None means not now."""

    def tick(self, now: float) -> None:
        """Do the work that is due."""

    def was_interrupted(self) -> None:
        """An exception cut the loop off while it moved messages: it sends and receives nothing any more."""


class Loop:
    """The sockets of a Messenger, and the work of the thread that has the turn.

    Args:
        context: ended together with the sockets; None if another owner ends it.
        doorkeeper: answers ZeroMQ's questions about new connections; None if no endpoint requires keys.

    Attributes:
        turn: the right to drive.
        queue_lock: held while the queue is changed or exchanged.
        queued_messages, queued_bytes: messages in the queue, including those being moved out of it.
        ticker: timers of the application.
        driver: the driving thread; 0 if there is none.
        thread: the I/O thread, which drives when no caller does; 0 before its start.
        closed: the loop is ending or has ended.
        torn: an exception cut a driver off while it moved messages; nothing is sent or received any more.
        cleaned: the sockets are closed.
    """

    def __init__(
        self,
        core: MessengerCore,
        clock: Clock,
        limits: MessengerLimits,
        context: zmq.Context[Any] | None,
        zap_handler: ZapHandler | None = None,
    ) -> None:
        refuse_patched("a Messenger")
        check_files()
        self._core, self._clock, self._limits, self._context = core, clock, limits, context
        self.turn = Driving(clock, limits.grace_seconds, self.wake)
        self.queue_lock = RLock()
        self.queued_messages = self.queued_bytes = 0
        self.ticker: Ticker | None = None
        self.driver = self.thread = 0
        self.closed = self.cleaned = self.unusable = False
        self._in_step = False
        """True while messages are being moved."""
        self._queue: list[tuple[Action, int | None]] = []
        self._wakeup = Wakeup()
        self._sockets: dict[Link, zmq.Socket[bytes]] = {}
        self._links: dict[zmq.Socket[bytes], Link] = {}
        self._redials = Redials(core.counters, self._tell, self.enqueue)
        self._pollset: list[tuple[Any, int]] = [(self._wakeup.fileno(), _POLLIN)]
        self._zap_handler = zap_handler
        if zap_handler is not None:
            self._pollset.append((zap_handler.sock, _POLLIN))
        self._ticker_rests_until = 0.0
        self._sleeping = False

    # From any thread

    def enqueue(self, action: Action, size: int | None = None) -> None:
        """Queue an action at the sockets. `size` is the bytes of the message that it sends; None if it sends none."""
        with self.queue_lock:
            self._queue.append((action, size))
            if size is not None:
                self.queued_messages += 1
                self.queued_bytes += size
        # A driver checks the queue again after it gave back its turn, so one of the two threads sees the action.
        self.flush_if_free()
        if self._queue:
            self.wake()

    def wake(self) -> None:
        """Wake a sleeping driver, so that it checks everything again."""
        if self._sleeping:
            self._sleeping = False
            self._wakeup.set()

    def adopt(self, link: Link, sock: zmq.Socket[bytes], redial: Redial | None = None) -> None:
        """Add a socket; `redial` connects it again where ZeroMQ does not."""

        def adopt(now: float) -> None:
            self._sockets[link] = sock
            self._links[sock] = link
            self._pollset.append((sock, _POLLIN))
            if redial is not None:
                self._redials.add(redial)
                self._pollset.append((redial.sock, _POLLIN))

        self.enqueue(adopt)

    def drop(self, link: Link) -> None:
        """Close a link's socket, and abandon its pending messages."""

        def drop(now: float) -> None:
            sock = self._sockets.pop(link, None)
            if sock is not None:
                self._core.closed(link)
                del self._links[sock]
                self._pollset.remove((sock, _POLLIN))
                if (watch := self._redials.drop(sock)) is not None:
                    self._pollset.remove((watch, _POLLIN))
                sock.close(0)

        self.enqueue(drop)

    def stop(self) -> None:
        """Make all driving and waiting threads leave."""
        self._wakeup.set()
        self.turn.stop()

    def over(self) -> bool:
        return self.closed or self.unusable

    def recover(self) -> None:
        """Release everything that this thread holds, after an exception left one of its calls."""
        release_all(self.queue_lock)
        if self.driver == get_ident():
            self.driver = 0
        # Check again with the turn: another thread may have been moving messages, and may have finished since.
        if self._in_step and (self.turn.is_mine() or self.turn.try_take()) and self._in_step:
            self._tear()
        self.turn.recover()

    # With the turn

    def _begin(self) -> bool:
        """Mark the beginning of moving messages; return False if an earlier driver was cut off. This thread has the
        turn.
        """
        if self._in_step:
            self._tear()
        if not self.unusable:
            self._in_step = True
        return self._in_step

    def _tear(self) -> None:
        """Stop the loop, because a driver was cut off and the state of the sockets is unknown. This thread has the
        turn.
        """
        self.unusable, self._in_step = True, False
        self.turn.stop()
        if self.ticker is not None:
            self.ticker.was_interrupted()

    def run(self) -> None:
        """Drive as the I/O thread until the loop closes."""
        self.thread = get_ident()
        while self.turn.thread_takes(self.over):
            try:
                self.drive(lambda: self.over() or self.turn.callers > 0, FOREVER, yields=True)
            finally:
                self.turn.thread_gives()
            self.flush_if_free()

    def flush_if_free(self) -> None:
        """Handle actions or a `close` that arrived while this thread was about to give back the turn."""
        while ((self._queue and not self.unusable) or self.closed) and not self.cleaned and not self.turn.is_mine():
            try:
                if not self.turn.try_take():
                    return
                if self.closed:
                    self.clean()
                elif self._begin():
                    self._flush()
                    self._in_step = False
            finally:
                self.turn.give_up()

    def drive(self, done: Callable[[], bool], deadline: float, *, yields: bool = False) -> None:
        """Flush, sleep, drain and tick until `done()` returns True or the deadline passes. This thread has the turn.

        With `yields`, the sleep ends when a caller wants the turn.
        """
        core, clock = self._core, self._clock
        if not self._begin():
            return
        self.driver = get_ident()
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
                        self._redials.take(source, clock.monotonic())
                    elif self._zap_handler is not None and source is self._zap_handler.sock:
                        self._zap_handler.take()
                    else:
                        self._wakeup.clear()
                now = clock.monotonic()
                if self._redials.due <= now:
                    self._redials.redial(now)
                due = core.deadline()
                if due is not None and due <= now:
                    core.tick(now)
                self._tick(now)
                if self.turn.callers and not yields:
                    self.turn.announce()
                if begun >= deadline:
                    break
            self._in_step = False
        except zmq.ZMQError as error:
            if error.errno not in {zmq.ETERM, zmq.ENOTSOCK}:
                raise
            self.closed = True  # The owner of the shared context ended it.
        finally:
            self.driver = 0

    def look(self) -> None:
        """Drive once without waiting, if no other thread drives."""
        try:
            if self.turn.try_take():
                self.drive(self.over, float("-inf"))
                self.turn.caller_gives()
                self.flush_if_free()
        except BaseException:
            self.recover()
            raise

    def _sleep(self, now: float, deadline: float, *, yields: bool) -> list[tuple[Any, int]]:
        """Poll until a message arrives, work is due, or another thread wakes us."""
        # Set `_sleeping` before checking the queue: a thread that queues after the check then wakes us.
        self._sleeping = True
        try:
            pause = 0
            if not self._queue and not (yields and self.turn.callers):
                pause = int(min(max(self._until(deadline) - now, 0.0), _SLEEP_SECONDS_MAX) * 1000 + 0.999)
            self._in_step = False  # An exception during the sleep cuts nothing off.
            ready = zmq_poll(self._pollset, pause)
            self._in_step = True
            return ready
        finally:
            self._sleeping = False

    def _until(self, deadline: float) -> float:
        deadline = min(deadline, self._redials.due)
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
        now = self._clock.monotonic()
        opened = link.peer is None
        for index in range(self._limits.drain_messages):
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

    def _call(self, function: Callable[..., object], arguments: tuple[Any, ...], *, ends_here: bool = False) -> bool:
        """Call the application; return True if it did not raise. With `ends_here` no caller gets the exception (see
        `Ticker`).
        """
        self._in_step = False  # An exception in a callback cuts nothing off: the loop is between two messages.
        try:
            function(*arguments)
            self._in_step = True
        except Exception as error:  # An exception of the application is logged, counted, and not passed on.
            foreign = self.ticker is not None and not isinstance(error, PubsubError)
            if foreign and not ends_here and get_ident() != self.thread:
                raise
            self._core.counters.callback_errors += 1
            self._in_step = True
            _LOG.exception("callback %r raised", function)
            return False
        return True

    def _tell(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """Call the application as `_call`, also within `flush_if_free`: the function may close the loop, but must not
        wait.

        The exception is never passed on, because messages may follow in the queue.
        """
        before, self.driver = self.driver, get_ident()
        try:
            return self._call(function, arguments, ends_here=True)
        finally:
            self.driver = before

    def _flush(self) -> None:
        """Move the queue through the core into the sockets. No callback runs here, except reports of a refused
        connection.
        """
        core = self._core
        if self._queue:
            with self.queue_lock:
                queue, self._queue = self._queue, []
            now = self._clock.monotonic()
            for action, size in queue:
                if size is None:
                    action(now)
                    continue
                with self.queue_lock:  # A concurrent count finds the message in the queue or pending, never in both.
                    action(now)
                    self.queued_messages -= 1
                    self.queued_bytes -= size
        for peer, head, parts in core.take():
            sock = self._sockets.get(peer.link)
            if sock is not None and send_frames(sock, peer.routing, head, parts):
                core.counters.sent += 1
            else:
                core.counters.unsent += 1

    def hurry(self, link: Link, *, anew: bool) -> None:
        """Connect a refused link again at once; with `anew`, any link."""

        def hurry(now: float) -> None:
            if (sock := self._sockets.get(link)) is not None:
                self._redials.hurry(sock, anew=anew)

        self.enqueue(hurry)

    def clean(self) -> None:
        """Send queued messages as far as possible without waiting, and close the sockets. This thread has the turn."""
        if self.cleaned:
            return
        if not self.unusable and self._begin():
            self._flush()
            self._in_step = False
        self._redials.close()
        for sock in self._links:
            sock.close(0)
        self._links.clear()
        self._sockets.clear()
        if self._zap_handler is not None:
            self._zap_handler.close()
        self.cleaned = True
        self._wakeup.close()
        if self._context is not None:
            self._context.destroy(0)
