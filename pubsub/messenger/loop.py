"""The loop that drives a Messenger's sockets: flush, sleep, drain, tick.

Whoever has the turn (`driving.py`) goes round in it: the I/O thread, or a caller inside `Messenger.wait`. Everything
that touches a socket happens here, between taking the turn and giving it back. What other threads want done there they
put in the queue. Where nobody is at the sockets they move the queue into them at once; a driver who sleeps is woken.
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
from pubsub.messenger.doorkeeper import Doorkeeper
from pubsub.messenger.driving import Driving
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.peer import Link
from pubsub.messenger.redial import Redial
from pubsub.messenger.redials import Redials
from pubsub.messenger.sockets import receive_frames, send_frames
from pubsub.messenger.wakeup import Wakeup

_LOG: Final = logging.getLogger(__name__)
_SLEEP_SECONDS_MAX: Final = 60.0
_TICKER_REST_SECONDS: Final = 0.1  # A ticker that raises is due still; it must not be called again and again at once.
_POLLIN: Final = int(zmq.POLLIN)
FOREVER: Final = float("inf")

Action = Callable[[float], None]
"""Something to do at the sockets; it is given the monotonic time in seconds."""


class Ticker(Protocol):
    """Timers of the application that the driving thread looks after.

    An application with a ticker has its callbacks raise nothing but PubsubErrors. Another exception is one that a
    signal's handler raises, or a bug: it leaves the `wait` or the `look` of the caller that drives.
    """

    def deadline(self) -> float | None:
        """When `tick` is to be called next, on the monotonic clock in seconds; None: not now."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def struck(self) -> None:
        """The loop was interrupted in the midst of something: it sends and receives nothing any more."""


class Loop:
    """The sockets of a Messenger, and what is done at them by whoever has the turn.

    Args:
        core: what each message does.
        clock: where the time comes from.
        limits: of the Messenger.
        context: to be ended with the sockets; None: it is not ours.
        doorkeeper: answers ZeroMQ's questions about newcomers; None: nobody asks.

    Attributes:
        turn: whose turn it is to drive.
        gate: held while the queue is changed or exchanged.
        queued_messages, queued_bytes: what the queue holds of messages, and what is being moved out of it.
        ticker: timers of the application that are looked after.
        driver: the thread that drives; 0: none.
        thread: the I/O thread, which does where nobody else does; 0: it has not begun.
        closed: it is to end, or has ended.
        torn: an exception was found to have ended it while messages were moved: nothing is sent or received any more.
        cleaned: the sockets are closed.
    """

    def __init__(
        self,
        core: MessengerCore,
        clock: Clock,
        limits: MessengerLimits,
        context: zmq.Context[Any] | None,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        refuse_patched("a Messenger")
        check_files()
        self._core, self._clock, self._limits, self._context = core, clock, limits, context
        self.turn = Driving(clock, limits.grace_seconds, self.wake)
        self.gate = RLock()
        self.queued_messages = self.queued_bytes = 0
        self.ticker: Ticker | None = None
        self.driver = self.thread = 0
        self.closed = self.cleaned = self.torn = False
        self._midway = False
        """Whether messages are being moved."""
        self._queue: list[tuple[Action, int | None]] = []
        self._wakeup = Wakeup()
        self._sockets: dict[Link, zmq.Socket[bytes]] = {}
        self._links: dict[zmq.Socket[bytes], Link] = {}
        self._redials = Redials(core.counters, self._tell, self.enqueue)
        self._pollset: list[tuple[Any, int]] = [(self._wakeup.fileno(), _POLLIN)]
        self._doorkeeper = doorkeeper
        if doorkeeper is not None:
            self._pollset.append((doorkeeper.sock, _POLLIN))
        self._ticker_rests_until = 0.0
        self._sleeping = False

    # From any thread

    def enqueue(self, action: Action, size: int | None = None) -> None:
        """Have something done at the sockets. `size`: the bytes of the message that it sends; None: it sends none."""
        with self.gate:
            self._queue.append((action, size))
            if size is not None:
                self.queued_messages += 1
                self.queued_bytes += size
        # Whoever drives looks at the queue once more after it gave back its turn, so one of us two sees it.
        self.flush_if_free()
        if self._queue:
            self.wake()

    def wake(self) -> None:
        """Have the driver look at everything again, where it sleeps."""
        if self._sleeping:
            self._sleeping = False
            self._wakeup.set()

    def adopt(self, link: Link, sock: zmq.Socket[bytes], redial: Redial | None = None) -> None:
        """Drive a socket from now on, and connect it anew by `redial` where ZeroMQ does not."""

        def adopt(now: float) -> None:
            self._sockets[link] = sock
            self._links[sock] = link
            self._pollset.append((sock, _POLLIN))
            if redial is not None:
                self._redials.add(redial)
                self._pollset.append((redial.sock, _POLLIN))

        self.enqueue(adopt)

    def drop(self, link: Link) -> None:
        """Close a link's socket; what is pending on it is abandoned."""

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
        """Have everybody leave who drives, or waits to."""
        self._wakeup.set()
        self.turn.stop()

    def over(self) -> bool:
        """Whether nobody is to drive any more."""
        return self.closed or self.torn

    def recover(self) -> None:
        """An exception left a call of this thread, wherever it struck: give back what the thread still holds."""
        release_all(self.gate)
        if self.driver == get_ident():
            self.driver = 0
        # Once more with the turn: it may have been another thread that was in the midst of it, and has ended it since.
        if self._midway and (self.turn.is_mine() or self.turn.try_take()) and self._midway:
            self._tear()
        self.turn.recover()

    # With the turn

    def _begin(self) -> bool:
        """This thread has the turn, and is about to move messages; whether nobody was interrupted in that."""
        if self._midway:
            self._tear()
        if not self.torn:
            self._midway = True
        return self._midway

    def _tear(self) -> None:
        """The turn is this thread's, and a thread that had it was cut off: what is in the sockets is not known."""
        self.torn, self._midway = True, False
        self.turn.stop()
        if self.ticker is not None:
            self.ticker.struck()

    def run(self) -> None:
        """Drive as the I/O thread, until it is closed."""
        self.thread = get_ident()
        while self.turn.thread_takes(self.over):
            try:
                self.drive(lambda: self.over() or self.turn.callers > 0, FOREVER, yields=True)
            finally:
                self.turn.thread_gives()
            self.flush_if_free()

    def flush_if_free(self) -> None:
        """What was queued, or asked for by `close`, while this thread was about to leave must not wait."""
        while ((self._queue and not self.torn) or self.closed) and not self.cleaned and not self.turn.is_mine():
            try:
                if not self.turn.try_take():
                    return
                if self.closed:
                    self.clean()
                elif self._begin():
                    self._flush()
                    self._midway = False
            finally:
                self.turn.give_up()

    def drive(self, done: Callable[[], bool], deadline: float, *, yields: bool = False) -> None:
        """Flush, sleep, drain, tick; until `done()` or the deadline. This thread has the turn.

        `yields`: the sleep ends when a caller wants the turn.
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
                    elif self._doorkeeper is not None and source is self._doorkeeper.sock:
                        self._doorkeeper.take()
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
            self._midway = False
        except zmq.ZMQError as error:
            if error.errno not in {zmq.ETERM, zmq.ENOTSOCK}:
                raise
            self.closed = True  # The context that we share was ended by its owner.
        finally:
            self.driver = 0

    def look(self) -> None:
        """As a caller that drives and waits for nothing, where nobody else drives."""
        try:
            if self.turn.try_take():
                self.drive(self.over, float("-inf"))
                self.turn.caller_gives()
                self.flush_if_free()
        except BaseException:
            self.recover()
            raise

    def _sleep(self, now: float, deadline: float, *, yields: bool) -> list[tuple[Any, int]]:
        """Poll until something comes, something is due or somebody wakes us."""
        # First asleep, then a look: who queues or calls after the look sees us asleep and wakes us.
        self._sleeping = True
        try:
            pause = 0
            if not self._queue and not (yields and self.turn.callers):
                pause = int(min(max(self._until(deadline) - now, 0.0), _SLEEP_SECONDS_MAX) * 1000 + 0.999)
            self._midway = False  # An exception that strikes while we sleep cuts nothing off.
            ready = zmq_poll(self._pollset, pause)
            self._midway = True
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
        """Call the application; whether it did not raise. `ends_here`: nobody else gets it (see `Ticker`)."""
        self._midway = False  # What a callback does is its own: we are between two messages.
        try:
            function(*arguments)
            self._midway = True
        except Exception as error:  # What an application's callback raises is logged and counted, and ends there.
            foreign = self.ticker is not None and not isinstance(error, PubsubError)
            if foreign and not ends_here and get_ident() != self.thread:
                raise
            self._core.counters.callback_errors += 1
            self._midway = True
            _LOG.exception("callback %r raised", function)
            return False
        return True

    def _tell(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """As `_call`, also from within a `flush_if_free`: who is told may close then too, and may not wait.

        What is raised ends here: behind it in the queue there may be messages.
        """
        before, self.driver = self.driver, get_ident()
        try:
            return self._call(function, arguments, ends_here=True)
        finally:
            self.driver = before

    def _flush(self) -> None:
        """Move the queue through the core into the sockets. Nobody is called here, but told why he is refused."""
        core = self._core
        if self._queue:
            with self.gate:
                queue, self._queue = self._queue, []
            now = self._clock.monotonic()
            for action, size in queue:
                if size is None:
                    action(now)
                    continue
                with self.gate:  # Who counts meanwhile finds the message in the queue or pending, and never in both.
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
        """Connect a link again at once where it is refused; `anew`: in any case."""

        def hurry(now: float) -> None:
            if (sock := self._sockets.get(link)) is not None:
                self._redials.hurry(sock, anew=anew)

        self.enqueue(hurry)

    def clean(self) -> None:
        """Send what is queued as far as that goes without waiting, and close the sockets. This thread has the turn."""
        if self.cleaned:
            return
        if not self.torn and self._begin():
            self._flush()
            self._midway = False
        self._redials.close()
        for sock in self._links:
            sock.close(0)
        self._links.clear()
        self._sockets.clear()
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        self.cleaned = True
        self._wakeup.close()
        if self._context is not None:
            self._context.destroy(0)
