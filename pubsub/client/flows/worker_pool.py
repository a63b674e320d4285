"""Run several handlers side by side: threads of a `Client`, tasks of an `AsyncClient`.

A call with `concurrency` above 1 is led by the caller's own thread or task, which takes no message itself. It starts
workers while messages are here. Each worker takes messages one after the other, until none is here, and then ends. So
a busy worker needs no hand-over between threads. The call returns when all workers have ended and enough was taken, or
nothing is here any more.

An exception of one handler lets no further message begin. The call waits for the other handlers, then raises it.

The rules are docs/explanation/client-session.md, D11 and D12.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from threading import Lock, Thread
from typing import Any, Final, Generic, Protocol, TypeVar

from pubsub.base.threads import start_thread
from pubsub.client.arguments import check_count
from pubsub.client.flows.apart import apart
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.handlers import AsyncHandler, Handler, check_handler
from pubsub.client.session import Session
from pubsub.errors import CallerError, StorageError

CONCURRENCY_MAX: Final = 256
"""Most handlers that one call runs side by side."""

Found = TypeVar("Found")

_log: Final = logging.getLogger("pubsub.client")


def check_concurrency(concurrency: object) -> None:
    """Check the argument `concurrency` of `process`.

    Raises:
        CallerError: it is not allowed.
    """
    allowed = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not allowed or not 1 <= concurrency <= CONCURRENCY_MAX:  # type: ignore[operator]
        raise CallerError(f"concurrency is a number from 1 to {CONCURRENCY_MAX}, not {concurrency!r}"[:200])


class Source(Protocol[Found]):
    """The messages of a call."""

    def wait(self, started: float, until: float) -> Flow[bool]:
        """Wait until a message is here, and return True; False if none came until `until`."""

    def hold(self) -> None:
        """Keep other calls off the messages, and go on asking for messages while handlers run."""

    def release(self) -> None:
        """Undo `hold`, after all handlers have ended."""

    def ready(self) -> bool:
        """Return True if a message can begin now. Takes no lock and changes nothing."""

    def begin(self, *, first: bool) -> Found | int | None:
        """Begin a message. The lock is held.

        Args:
            first: no message was taken yet and none is in hand, so an error may be raised.

        Returns:
            The message, or the number of messages taken without a handler; None if there is none.
        """

    async def attempt(self, found: Found, handler: AsyncHandler, *, awaits: bool) -> int:
        """Run the handler and commit; return the number of messages taken."""

    def abandon(self, found: Found) -> None:
        """Undo the beginning of a message with an attempt that an exception from anywhere ended."""

    def between(self) -> None:
        """Do the due work between two messages. The lock is held."""


class WorkerPool(Generic[Found]):
    """The workers of one call.

    Args:
        session: the session.
        source: the messages.
        handler: a plain function, or one with a result to await.
        most: most messages to take.
        concurrency: most handlers at a time.
        awaits: True if the workers are tasks, and may await the handler's result.

    Attributes:
        taken: messages taken so far.
        running: workers that have not ended.
        failure: the first exception that ended a handler; no further message begins.
    """

    def __init__(
        self,
        session: Session,
        source: Source[Found],
        handler: AsyncHandler,
        most: int,
        concurrency: int,
        *,
        awaits: bool,
    ) -> None:
        self.session, self.source, self.handler, self.awaits = session, source, handler, awaits
        self.most, self.concurrency = most, concurrency
        self.taken = self.running = self.in_hand = 0
        self.failure: BaseException | None = None
        self.stopping = False
        self._lock: Final = Lock()
        """Guards the counts, which workers change while another thread has the session's lock."""

    @property
    def may_start(self) -> bool:
        """True if another worker would find a message. Takes no lock."""
        return (
            not self.stopping
            and self.running < self.concurrency
            and self.taken + self.in_hand < self.most
            and self.source.ready()
        )

    @property
    def is_over(self) -> bool:
        """True if all workers have ended and no further one may start. Takes no lock."""
        return not self.running and not self.may_start

    def lead(self, start: Callable[[], object]) -> Flow[int]:
        """Start workers as messages come, until nothing is here; return the number taken.

        Args:
            start: starts one worker, which calls `work`.

        Raises:
            BaseException: the first one that ended a handler.
        """
        session = self.session
        while not self.is_over and not session.over:
            while self.may_start:
                self._count(running=1)
                start()
            yield Wait(lambda: self.may_start or not self.running or session.over, session.now + 3600.0)
        if self.failure is not None:
            if self.taken and session.store.life_ended and isinstance(self.failure, StorageError):
                return self.taken  # The next call goes on in a new life.
            raise self.failure
        session.check_usable()
        session.check_open()
        return self.taken

    async def work(self, breathe: Callable[[], Awaitable[None]]) -> None:
        """Handle messages until none is here. `breathe` is awaited between two of them."""
        hand: list[Found | int | None] = [None]
        try:
            while True:
                await apart(self.session, partial(self._next, hand))
                (found,) = hand
                if found is None:
                    return
                if not isinstance(found, int):
                    taken = await self.source.attempt(found, self.handler, awaits=self.awaits)
                    hand[0] = None
                    self._count(taken=taken, in_hand=-1)
                if self.awaits:
                    await breathe()
        except BaseException as error:
            self.session.recover(handled=True)
            (found,) = hand
            if found is not None and not isinstance(found, int):
                self._count(in_hand=-1)
                await apart(self.session, partial(self.source.abandon, found))
            self._failed(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._count(running=-1)
            self.session.tell_waiting()

    def _next(self, hand: list[Found | int | None]) -> None:
        """Begin the next message; `hand` has it when the step ends, since an exception may come behind."""
        with self.session.entered():
            self.source.between()
            hand[0] = self._begin()

    def _begin(self) -> Found | int | None:
        """Begin a message, and count it. The lock is held."""
        if self.stopping or self.taken + self.in_hand >= self.most:
            return None
        found = self.source.begin(first=not self.taken and not self.in_hand)
        if isinstance(found, int):
            self._count(taken=found)
        elif found is not None:
            self._count(in_hand=1)
        elif self.source.ready():  # An error is in front of the next message. The next call raises it.
            self.stopping = True
        return found

    def _count(self, taken: int = 0, in_hand: int = 0, running: int = 0) -> None:
        with self._lock:
            self.taken, self.in_hand, self.running = (
                self.taken + taken, self.in_hand + in_hand, self.running + running,
            )  # fmt: skip

    def not_started(self) -> None:
        """Take back a start that failed."""
        self._count(running=-1)

    def _failed(self, error: BaseException) -> None:
        """Keep the first exception, and let no further message begin."""
        self.stopping = True
        if self.failure is None:
            self.failure = error
        elif isinstance(error, Exception) and not isinstance(error, CallerError):
            _log.warning("client %s: a further handler failed meanwhile: %s", self.session.name, error)


class Threads:
    """The worker threads of one call."""

    def __init__(self, pool: WorkerPool[Any]) -> None:
        self._pool = pool
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start a worker.

        Raises:
            CallerError: the system refuses another thread.
        """
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = Thread(target=self._run, name=f"handler of {self._pool.session.name}", daemon=True)
        self._threads.append(thread)
        if not start_thread(thread):
            self._threads.remove(thread)
            self._pool.not_started()
            raise CallerError("the system refuses another thread for a handler; lower concurrency")

    def work_here(self) -> None:
        """Let this thread be the only worker, until nothing is here."""
        try:
            self._pool.work(_no_breath).send(None)
        except StopIteration:
            return

    def _run(self) -> None:
        try:
            self.work_here()
        except BaseException as error:  # noqa: BLE001 - the call raises it.
            _log.debug("client %s: a worker ended", self._pool.session.name, exc_info=error)

    def join(self) -> None:
        """Let no further message begin, and wait for the handlers that run."""
        self._pool.stopping = True
        for thread in self._threads:
            thread.join()


def on_threads(
    session: Session, source: Source[Found], handler: Handler, timeout: float | None, most: int, concurrency: int
) -> Flow[int]:
    """Handle messages side by side on threads; return the number taken."""
    check_handler(handler, awaits=False)
    check_count("max", most)
    until = session.until(timeout, started := session.now)
    while True:
        ready = yield from source.wait(started, until)
        pool = WorkerPool(session, source, handler, most, concurrency, awaits=False)
        threads = Threads(pool)
        try:
            source.hold()
            taken = yield from pool.lead(threads.start if concurrency > 1 else threads.work_here)
        finally:
            threads.join()
            source.release()
        if taken or not ready:
            return taken


async def _no_breath() -> None:
    """Do nothing: unlike coroutines, other threads run anyway."""
