"""The Messenger as its users see it: links, messages, and waiting for their answers.

What each message does is in `core.py`, what is done at the sockets in `loop.py`. Here is the thread that drives the
sockets when no caller does.
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
from pubsub.messenger.doorkeeper import Doorkeeper
from pubsub.messenger.framing import FIRST_CALLBACK, Callback
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.loop import FOREVER, Loop, Ticker
from pubsub.messenger.peer import Buffer, Link, Peer, Request
from pubsub.messenger.redial import Redial, Told, open_redialed
from pubsub.messenger.seen import INSTANCE_BITS
from pubsub.messenger.sockets import open_router

_LOG: Final = logging.getLogger(__name__)


def _parts(contents: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """The contents as a sequence of at least one buffer; refused here, where the caller sees it, if they are not."""
    if isinstance(contents, bytes | memoryview):
        return (contents,)
    if isinstance(contents, str) or not all(isinstance(part, bytes | memoryview) for part in contents):
        raise CallerError("the contents of a message are bytes or memoryview, one or several")
    return contents or (b"",)


_IDS_FETCHED: Final = 512


class _CallbackIds:
    """IDs of new callbacks, by chance from the operating system: nobody who saw others guesses the next.

    They are fetched many at a time: a question to the operating system hands the interpreter's lock to another thread,
    which costs a put more than the answer is worth. Any thread may call it.
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
"""From the frames of a question about a newcomer it makes those of the reply."""


def _careful(zap: Zap, counters: Counters) -> Zap:
    """The same, where it may raise: that is logged and counted, and nobody is let in."""

    def answer(question: Sequence[bytes]) -> list[bytes]:
        try:
            return zap(question)
        except Exception:  # noqa: BLE001 - as with a callback.
            counters.callback_errors += 1
            _LOG.exception("zap %r raised", zap)
            return []

    return answer


def _check_near(endpoint: str) -> None:
    """See that nobody but this host reaches an endpoint that asks for no keys.

    Raises:
        ConfigurationError: others do.
    """
    if reaches_out(endpoint):
        raise ConfigurationError(
            f"{endpoint} would be open without keys to anyone who reaches it: "
            "give it keys (curve=…), or say insecure=True"
        )


class Messenger:
    """Messages with callbacks between processes and threads, over `tcp://`, `ipc://` and `inproc://`.

    A callback or a server loop runs on whichever thread drives the sockets: the I/O thread, or a caller inside `wait`.
    It must not block; one that raises is logged and counted (see `Ticker`). In a forked child calls raise AfterFork.

    An exception that a signal raises (Ctrl-C) while the caller's thread moves messages may leave one sent in part. Then
    nothing is sent or received any more, and every call but `close` raises Interrupted. It does not while he waits.

    Args:
        context: a ZeroMQ context to share, which `inproc://` needs; None: one of its own.
        clock: where the time comes from.
        limits: what is held at most.
        chance: where the jitter of retries comes from; None: seeded by the system.
        zap: answers ZeroMQ's questions about who may enter where keys are asked for (ZAP, RFC 27): from the frames of
            a question it makes those of the reply. Called as callbacks are; it must not raise. None: nobody asks.

    Raises:
        ConfigurationError: somebody else answers those questions in the shared context.
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
        self._doorkeeper = None if zap is None else Doorkeeper(self._context, _careful(zap, self._core.counters))
        self._loop = Loop(
            self._core, self.clock, self.limits, self._context if context is None else None, self._doorkeeper
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
        """Open an endpoint with a server loop of its own.

        Args:
            endpoint: `tcp://HOST:PORT` (port 0: a free one), `ipc://PATH` or `inproc://NAME`.
            server_loop: called with each `Request` that names no callback of ours.
            idempotent: hand repeats on too, and neither keep nor acknowledge the answers.
            curve: who connects must prove who it is, and be let in by the Messenger's `zap`. None: anybody is let in.
            insecure: anybody may be let in where others than this host reach the endpoint, too.

        Returns:
            The endpoint that others can connect to, with its port.

        Raises:
            ConfigurationError: the address is in use or is not one; or it would be open to others than this host, or
                ask for keys with nobody to say whose are let in.
        """
        self._check_open()
        if curve is None and not insecure:
            _check_near(endpoint)
        if curve is not None and self._doorkeeper is None and self._owns_context:
            raise ConfigurationError(f"{endpoint} asks for keys, and nothing says whose are let in: Messenger(zap=…)")
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
        """Connect to an endpoint, now or as soon as somebody opens it, and again whenever the connection breaks.

        Args:
            endpoint: of another Messenger.
            server_loop: for messages of the other side that name no callback of ours.
            idempotent: as in `listen`.
            curve: prove who we are, and speak only with whom has one of the expected keys. None: neither.
            told: called, as callbacks are, with the `Refusal` where the other side does not let us in, or is not the
                one that is expected, each time that it is tried; with None when nothing stands against it any more.

        Returns:
            The other side, to send to. Each call makes a connection of its own.

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
        """Connect to a peer again at once where it refuses us, which is else tried every 1 to 30 s. From any thread.

        With `anew` also where it does not; what is on its way there is lost, and sent again where it is kept.
        """
        self._check_own()
        self._loop.hurry(peer.link, anew=anew)

    def disconnect(self, peer: Peer) -> None:
        """Close the connection to a peer; what is pending to it is abandoned."""
        self._check_own()
        with self._connecting:
            self._connections = {e: p for e, p in self._connections.items() if p is not peer}
        self._loop.drop(peer.link)

    def _adopt(self, link: Link, sock: zmq.Socket[bytes], redial: Redial | None = None) -> None:
        with self._loop.gate:
            if self._thread is None:
                self._thread = Thread(target=self._loop.run, name="messenger", daemon=True)
                self._thread.start()
        self._loop.adopt(link, sock, redial)

    def forked(self, parent: int) -> None:
        """This is a child of the process that opened it: whatever is called raises, and nothing is touched."""
        self._inherited = AfterFork("the Messenger", parent)
        self._loop.closed = self._loop.cleaned = True
        self._loop.gate, self._connecting = RLock(), Lock()

    def __reduce__(self) -> NoReturn:
        forks.no_pickling("a Messenger")

    @property
    def ticker(self) -> Ticker | None:
        """Timers of the application that the driving thread looks after; to be set before anything is sent."""
        return self._loop.ticker

    @ticker.setter
    def ticker(self, ticker: Ticker | None) -> None:
        self._loop.ticker = ticker

    @property
    def driven_here(self) -> bool:
        """Whether this thread drives the sockets, or is the one that does where nobody else does."""
        here, loop = get_ident(), self._loop
        return here in (loop.driver, loop.thread) or loop.turn.is_mine()

    def _check_own(self) -> None:
        if self._inherited is not None:
            raise self._inherited

    def _check_open(self) -> None:
        self._check_own()
        if self._loop.closed:
            raise CallerError("the Messenger is closed")
        if self._loop.torn:
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

        self._loop.enqueue(send, size)
        return token

    def _answer(self, request: Request, contents: Buffer | Sequence[Buffer]) -> None:
        self._check_own()
        parts = _parts(contents)
        size = self._check_room(parts)
        self._loop.enqueue(lambda now: self._core.answer(request, parts, now), size)

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
        limits, pending, queue = self.limits, self._core.pending, self._loop
        size = sum(map(len, parts))
        if size > limits.message_bytes_max:
            raise TooLarge("message", size, limits.message_bytes_max, "message_bytes_max")
        with queue.gate:
            count, total = pending.count + queue.queued_messages + 1, pending.size + queue.queued_bytes + size
        if count > limits.messages_max:
            raise TooLarge("number of unanswered messages", count, limits.messages_max, "messages_max")
        if total > limits.bytes_max:
            raise TooLarge("size of unanswered messages", total, limits.bytes_max, "bytes_max")
        return size

    def wake(self) -> None:
        """Make the driving thread look at the ticker's deadline again. From any thread."""
        self._loop.wake()

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
        if loop.torn and not loop.closed:
            raise Interrupted("the Messenger")
        return done()

    def look(self) -> None:
        """Take what has arrived, and have the ticker act on it, where nobody drives; waits for nothing."""
        self._loop.look()

    def recover(self) -> None:
        """An exception left a call of this thread, wherever it struck: give back what the thread still holds."""
        self._loop.recover()

    def announce(self) -> None:
        """Let callers in `wait` look at what they wait for: those who sleep, and the one who drives."""
        self._loop.turn.announce()
        if self._loop.driver not in {0, self._loop.thread}:
            self._loop.wake()

    # State

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        return self._core.counters

    @property
    def pending(self) -> int:
        """Messages that wait for their answer or acknowledgement, and those still queued."""
        with self._loop.gate:
            return self._core.pending.count + self._loop.queued_messages

    @property
    def callbacks(self) -> int:
        """Callbacks that are registered."""
        return self._core.callbacks

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.closed

    def close(self) -> None:
        """Close the sockets and end the thread; what is pending is abandoned, and callers in `wait` return.

        With a context of its own the addresses are free when this returns; in a shared one ZeroMQ frees them a moment
        later. Called from a callback it closes when that returns.
        """
        loop = self._loop
        with loop.gate:
            loop.closed = True
        if loop.cleaned:
            return
        loop.stop()
        if loop.driver == get_ident():
            return  # Called from a callback: this thread cleans up when its turn ends.
        if self._thread is not None and self._thread.ident is not None:  # An interrupt may have kept it from starting.
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
