"""The public side of the Messenger: links, messages, and waiting for answers.

`core.py` has the effect of each message, and `loop.py` the work at the sockets. This module has the thread that drives
the sockets when no caller does.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import struct
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock, RLock, Thread, get_ident
from typing import Any, Final, NoReturn

import zmq

from pubsub.base import forks
from pubsub.base.clock import Clock, SystemClock
from pubsub.base.loopback import reaches_out
from pubsub.errors import AfterFork, CallerError, ConfigurationError, Interrupted, TooLarge
from pubsub.messenger.core import AnswerCallback, Counters, MessengerCore, ServerLoop
from pubsub.messenger.curve import CurveClient, CurveServer
from pubsub.messenger.framing import FIRST_CALLBACK, Callback
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.loop import FOREVER, Loop, Ticker
from pubsub.messenger.peer import Buffer, Link, Peer, Request
from pubsub.messenger.redial import Redial, Told, open_redialed
from pubsub.messenger.seen import INSTANCE_BITS
from pubsub.messenger.sockets import open_router
from pubsub.messenger.zap_handler import ZapHandler

_LOG: Final = logging.getLogger(__name__)


def _parts(contents: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """Return the contents as a sequence of at least one buffer. It raises CallerError early, on the caller's thread."""
    if isinstance(contents, bytes | memoryview):
        return (contents,)
    if isinstance(contents, str) or not all(isinstance(part, bytes | memoryview) for part in contents):
        raise CallerError("the contents of a message must be bytes or memoryview, or a sequence of these")
    return contents or (b"",)


_IDS_FETCHED: Final = 512


class _CallbackIds:
    """Random IDs of new callbacks from the operating system, so that known IDs do not reveal the next.

    IDs are fetched in bulk: a system call releases the interpreter's lock, and that costs a put more than the ID
    itself. Any thread may call it.
    """

    def __init__(self) -> None:
        self._fetched: deque[int] = deque()

    def __call__(self) -> int:
        while True:
            try:
                return self._fetched.popleft()
            except IndexError:
                numbers = struct.unpack(f"={_IDS_FETCHED}Q", os.urandom(8 * _IDS_FETCHED))
                self._fetched.extend((number >> 3 << 1) + FIRST_CALLBACK for number in numbers)


Zap = Callable[[Sequence[bytes]], list[bytes]]
"""Returns the reply frames for the frames of a question about a new connection."""


def _careful(zap: Zap, counters: Counters) -> Zap:
    """Wrap a ZAP function: log and count an exception, and reject the connection."""

    def answer(question: Sequence[bytes]) -> list[bytes]:
        try:
            return zap(question)
        except Exception:  # noqa: BLE001 - as with a callback.
            counters.callback_errors += 1
            _LOG.exception("zap %r raised", zap)
            return []

    return answer


def _check_near(endpoint: str) -> None:
    """Check that an endpoint without keys can be reached from this host only.

    Raises:
        ConfigurationError: other hosts can reach it.
    """
    if reaches_out(endpoint):
        raise ConfigurationError(
            f"{endpoint} has no keys and can be reached by other hosts: "
            "give keys with curve=…, or allow it with insecure=True"
        )


class Messenger:
    """Messages with callbacks between processes and threads, over `tcp://`, `ipc://` and `inproc://`.

    A callback or a server loop runs on the thread that drives the sockets: the Messenger's own thread, or a caller
    inside `wait`. It must not block. If it raises, the exception is logged and counted (see `Ticker`). In a forked
    child all calls raise AfterFork.

    If a signal handler's exception (Ctrl-C) strikes while the caller's thread moves messages, one may be partly sent.
    Then the Messenger sends and receives nothing more, and every call except `close` raises Interrupted.

    Args:
        context: a ZeroMQ context to share, which `inproc://` needs; None makes an own context.
        clock: source of the time; None is the system clock.
        limits: limits and times.
        chance: random numbers for the jitter of retries; None takes a seed from the system.
        zap: the ZAP handler (RFC 27), required for endpoints with keys. It returns the reply frames for the frames of
            ZeroMQ's question about a new connection. It is called like a callback and must not raise.

    Raises:
        ConfigurationError: the shared context already has a ZAP handler.
    """

    def __init__(
        self,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        limits: MessengerLimits | None = None,
        chance: random.Random | None = None,
        zap: Zap | None = None,
    ) -> None:
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self.clock: Clock = clock or SystemClock()
        self.limits = limits or MessengerLimits()
        self._core = MessengerCore(
            secrets.randbits(INSTANCE_BITS), chance or random.Random(), self._answer, self.limits, _CallbackIds()
        )
        self._owns_context = context is None
        self._zap_handler = None if zap is None else ZapHandler(self._context, _careful(zap, self._core.counters))
        self._loop = Loop(
            self._core, self.clock, self.limits, self._context if context is None else None, self._zap_handler
        )
        self._connections: dict[str, Peer] = {}
        self._connecting = Lock()
        self._thread: Thread | None = None
        self._inherited: AfterFork | None = None
        forks.watch(self)

    # Links

    def listen(
        self,
        endpoint: str,
        server_loop: ServerLoop,
        *,
        idempotent: bool = False,
        curve: CurveServer | None = None,
        insecure: bool = False,
    ) -> str:
        """Open an endpoint with its own server loop.

        Args:
            endpoint: `tcp://HOST:PORT` (port 0 takes a free one), `ipc://PATH` or `inproc://NAME`.
            server_loop: called with each `Request` that names no callback of ours.
            idempotent: also pass repeats to the server loop, and neither keep nor acknowledge the answers.
            curve: require clients to prove their identity with a key that `zap` accepts. None accepts any client.
            insecure: allow an endpoint without keys that other hosts can reach.

        Returns:
            The endpoint to connect to, with its port.

        Raises:
            ConfigurationError: the address is in use or not valid, other hosts can reach it without keys, or `zap` is
                missing.
        """
        self._check_open()
        if curve is None and not insecure:
            _check_near(endpoint)
        if curve is not None and self._zap_handler is None and self._owns_context:
            raise ConfigurationError(f"{endpoint} requires keys, but no ZAP handler accepts any: give Messenger(zap=…)")
        sock, bound = open_router(self._context, endpoint, curve=curve)
        self._adopt(self._core.opened(bound, server_loop, idempotent=idempotent), sock)
        return bound

    def connect(
        self,
        endpoint: str,
        server_loop: ServerLoop | None = None,
        *,
        idempotent: bool = False,
        curve: CurveClient | None = None,
        told: Told | None = None,
    ) -> Peer:
        """Connect to an endpoint, now or when it is opened, and again whenever the connection breaks.

        Args:
            endpoint: address of another Messenger.
            server_loop: called with messages of the other side that name no callback of ours.
            idempotent: as in `listen`.
            curve: prove our identity, and speak only with a peer that has an expected key. None does neither.
            told: called like a callback with a `Refusal` when the other side refuses our key or has an
                unexpected one, and with None when the connection is no longer refused.

        Returns:
            The peer to send to. Each call makes a new connection.

        Raises:
            ConfigurationError: `endpoint` is not an address.
        """
        self._check_open()
        heartbeat = self.limits.heartbeat_seconds
        sock, redial = open_redialed(self._context, endpoint, heartbeat_seconds=heartbeat, curve=curve, told=told)
        link = self._core.connected(endpoint, server_loop, idempotent=idempotent)
        self._adopt(link, sock, redial)
        assert link.peer is not None
        return link.peer

    def hurry(self, peer: Peer, *, anew: bool = False) -> None:
        """Connect to a peer at once if it refuses us; otherwise that happens every 1 to 30 s. Any thread may call it.

        With `anew` it reconnects in any case: messages on the way are lost, and kept messages are sent again.
        """
        self._check_own()
        self._loop.hurry(peer.link, anew=anew)

    def disconnect(self, peer: Peer) -> None:
        """Close the connection to a peer; its pending messages are abandoned."""
        self._check_own()
        with self._connecting:
            self._connections = {e: p for e, p in self._connections.items() if p is not peer}
        self._loop.drop(peer.link)

    def _adopt(self, link: Link, sock: zmq.Socket[bytes], redial: Redial | None = None) -> None:
        with self._loop.queue_lock:
            if self._thread is None:
                self._thread = Thread(target=self._loop.run, name="messenger", daemon=True)
                self._thread.start()
        self._loop.adopt(link, sock, redial)

    def forked(self, parent: int) -> None:
        """Called in a forked child: from then on every call raises AfterFork, and no socket is touched."""
        self._inherited = AfterFork("the Messenger", parent)
        self._loop.closed = self._loop.cleaned = True
        self._loop.queue_lock, self._connecting = RLock(), Lock()

    def __reduce__(self) -> NoReturn:
        forks.no_pickling("a Messenger")

    @property
    def ticker(self) -> Ticker | None:
        """Timers of the application that the driving thread serves; set it before the first send."""
        return self._loop.ticker

    @ticker.setter
    def ticker(self, ticker: Ticker | None) -> None:
        self._loop.ticker = ticker

    @property
    def driven_here(self) -> bool:
        """True if this thread drives the sockets, or is the Messenger's own thread."""
        here, loop = get_ident(), self._loop
        return here in (loop.driver, loop.thread) or loop.turn.is_mine()

    def _check_own(self) -> None:
        if self._inherited is not None:
            raise self._inherited

    def _check_open(self) -> None:
        self._check_own()
        if self._loop.closed:
            raise CallerError("the Messenger is closed")
        if self._loop.unusable:
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
        """Queue a message. Any thread may call it, also from a callback.

        Args:
            destination: a peer, or an endpoint, which is connected on first use.
            contents: the message. Further parts of a sequence are further frames; large ones are not copied.
            callback: called once, with (peer, contents of the answer's first frame, its further frames).
            dest_callback: callback at the receiver: NOOP is the server loop, ECHO returns the contents.
            retry: send again until answered, or acknowledged if there is no callback. With False the caller makes each
                try itself by another `send`; the callback stays valid until it is called or removed by `forget`.

        Returns:
            A token for `forget`; 0 without a callback.

        Raises:
            TooLarge: a limit is reached; nothing was queued.
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

        self._loop.enqueue(send, size)
        return token

    def _answer(self, request: Request, contents: Buffer | Sequence[Buffer]) -> None:
        self._check_own()
        parts = _parts(contents)
        size = self._check_room(parts)
        self._loop.enqueue(lambda now: self._core.answer(request, parts, now), size)

    def forget(self, token: int) -> None:
        """Remove a callback; a later answer is dropped. Any thread may call it."""
        self._core.forget(token)

    def _connection(self, endpoint: str) -> Peer:
        with self._connecting:
            peer = self._connections.get(endpoint)
            if peer is None:
                peer = self._connections[endpoint] = self.connect(endpoint)
            return peer

    def _check_room(self, parts: Sequence[Buffer]) -> int:
        limits, pending, queue = self.limits, self._core.pending, self._loop
        size = sum(map(len, parts))
        if size > limits.message_bytes_max:
            raise TooLarge("message", size, limits.message_bytes_max, "message_bytes_max")
        with queue.queue_lock:
            count, total = pending.count + queue.queued_messages + 1, pending.size + queue.queued_bytes + size
        if count > limits.messages_max:
            raise TooLarge("number of unanswered messages", count, limits.messages_max, "messages_max")
        if total > limits.bytes_max:
            raise TooLarge("size of unanswered messages", total, limits.bytes_max, "bytes_max")
        return size

    def wake(self) -> None:
        """Make the driving thread check the ticker's deadline again. Any thread may call it."""
        self._loop.wake()

    # Driving

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Drive the sockets on this thread until `done()` returns True, or sleep while another thread drives them.

        Do not call it from a callback, or while holding a lock that a callback or `done` takes.

        Args:
            done: returns True when a callback has brought the expected result.
            deadline: on the monotonic clock, in seconds.

        Returns:
            The final result of `done()`. With a deadline in the past it checks once and does not sleep.

        Raises:
            CallerError: it was called from a callback.
        """
        loop = self._loop
        if loop.driver == get_ident():
            raise CallerError("wait() was called from a callback; the thread that drives the sockets cannot wait")
        try:
            while not done() and not loop.over():
                try:
                    if loop.turn.caller_takes(lambda: loop.over() or done(), deadline):
                        loop.drive(lambda: loop.over() or done(), deadline)
                finally:
                    loop.turn.caller_gives()
                loop.flush_if_free()
                if self.clock.monotonic() >= deadline:
                    break
        except BaseException:
            self.recover()
            raise
        self._check_own()
        if loop.unusable and not loop.closed:
            raise Interrupted("the Messenger")
        return done()

    def look(self) -> None:
        """Handle the messages that have arrived and run the ticker, if no other thread drives; never wait."""
        self._loop.look()

    def recover(self) -> None:
        """Release everything that this thread holds, after an exception left one of its calls."""
        self._loop.recover()

    def announce(self) -> None:
        """Make the callers in `wait` check `done()`: sleeping callers and the driving one."""
        self._loop.turn.announce()
        if self._loop.driver not in {0, self._loop.thread}:
            self._loop.wake()

    # State

    @property
    def counters(self) -> Counters:
        """Counts of events so far."""
        return self._core.counters

    @property
    def pending(self) -> int:
        """Number of messages that wait for their answer or acknowledgement, including queued ones."""
        with self._loop.queue_lock:
            return self._core.pending.count + self._loop.queued_messages

    @property
    def callbacks(self) -> int:
        """Number of registered callbacks."""
        return self._core.callbacks

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._loop.closed

    def close(self) -> None:
        """Close the sockets and end the thread. Pending messages are abandoned, and callers in `wait` return.

        With an own context the addresses are free when it returns; with a shared context ZeroMQ frees them a moment
        later. If a callback calls it, the Messenger closes after the callback returns.
        """
        loop = self._loop
        with loop.queue_lock:
            loop.closed = True
        if loop.cleaned:
            return
        loop.stop()
        if loop.driver == get_ident():
            return  # Called from a callback: this thread closes the sockets when its turn ends.
        if self._thread is not None and self._thread.ident is not None:  # An interrupt may have prevented its start.
            self._thread.join()
        try:
            if loop.turn.caller_takes(lambda: loop.cleaned, FOREVER):
                loop.clean()
        finally:
            loop.turn.caller_gives()

    def __enter__(self) -> Messenger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
