"""Run the steps of a session, and detect a step that an exception interrupted at any point.

A signal handler that raises (Ctrl-C is one) does so between any two instructions of the main thread. This may be after
a commit but before memory knows of it, or between taking a lock and the `try` that releases it. So a step records its
beginning and, last, its end. Only an orderly end clears the record: its last line, one of our own errors, or an error
of the caller's own block after its rollback. A thread that later finds a begun step with no thread inside knows that an
exception interrupted it, and refuses. The disk then counts, and the client opens itself again from the disk.

The rules are those of docs/explanation/client-session.md, D8 and D9.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, TypeVar

from pubsub.base.locks import holds, release_all
from pubsub.client.explaining import name_options
from pubsub.client.guards import guards, within_call, within_guard
from pubsub.client.storage.transaction import Transaction
from pubsub.config.settings import ClientSettings
from pubsub.errors import AfterFork, CallerError, Interrupted, PubsubError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

_NOTHING: Final = BaseException()


def guarded(
    session: Steps,
    function: Callable[Parameters, Returned],
    /,
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Returned:
    """Call a function that takes the session's lock, and release the lock if an exception leaves the function."""
    held = session.held_here
    try:
        return function(*arguments, **named)
    except BaseException as error:
        if not (held and within_call()):
            session.recover()
            name_options(session.settings, error)
        raise


guards(guarded)


class Timer(Protocol):
    """An object with a deadline, such as a publisher with an open batch.

    Attributes:
        topic: the publisher's topic.
    """

    topic: str

    def deadline(self) -> float:
        """Return the time of the next `tick` on the monotonic clock; infinity: none."""

    def tick(self, now: float) -> None:
        """Do the due work. The session's lock is not held, and the call must not wait for another thread."""

    def finish(self) -> int:
        """Put all held messages before the client closes, hold no more, and return their number."""

    def return_taken(self) -> None:
        """Release all locks of this thread, after an exception that may come from anywhere."""

    def forked(self, error: AfterFork) -> None:
        """Become useless in a child process."""


class Step:
    """A step as a `with` block: one object for each session, since it holds no state of its own."""

    __slots__ = ("_session",)

    def __init__(self, session: Steps) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        self._session.leave(error)


class Steps:
    """The one lock of a session, and the steps under it.

    Args:
        name: the client ID.

    Attributes:
        lock: orders all work of the session.
        owner: the thread inside a transaction.
        transaction: this transaction.
        handlers: threads in a plain handler with a transaction that has not begun.
        midway: the thread with a step that has begun and not ended; 0: none. If that thread does not hold the lock, an
            exception interrupted the step.
        torn: an interrupted step, or an interrupted Messenger, was detected. Every call except `close` raises
            Interrupted, and the client opens itself again (`pubsub.client.reopening`).
        closed: every call raises.
        inherited: the error of every call, in a child of the process that opened the client.
        reopens: closed because its client opens itself again.
        block: mark of the caller's `with` block with an open transaction; None: no such block.
        timers: objects with deadlines.
        watchers: called whenever a condition that a coroutine waits for may be met.
        settings: the client's settings.
    """

    settings: ClientSettings

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.owner: int | None = None
        self.handlers: set[int] = set()
        self.transaction: Transaction | None = None
        self.in_step = 0
        self.unusable = self.closed = self.reopens = False
        self.block: object = None
        self.inherited: AfterFork | None = None
        self.timers: list[Timer] = []
        self.watchers: list[Callable[[], None]] = []
        self._passing, self._nested, self._mender = _NOTHING, _NOTHING, 0
        self._step = Step(self)

    def release_driver(self) -> None:
        """Stop driving the sockets on this thread, and wake waiting callers if a step was interrupted."""

    @property
    def held_here(self) -> bool:
        """True if this thread has the lock. A call that begins then, in a signal handler, must not release it."""
        return holds(self.lock)

    @property
    def drives(self) -> bool:
        return False

    @property
    def busy_here(self) -> bool:
        """True if this thread is inside a call of this client."""
        return self.held_here or self.drives

    def check_may_wait(self) -> None:
        """Check that this thread may wait: not in a signal handler that interrupted a waiting call.

        Raises:
            CallerError: it may not wait.
        """
        if self.drives:
            raise CallerError(f"this thread is already inside another call of client {self.name}")

    def entered(self) -> Step:
        """Hold the lock for a call, in a `with` block. Raises as `enter`."""
        return self._step

    def enter(self) -> None:
        """Take the lock for a step of a call; `leave` ends the step.

        A step that a signal's exception interrupts leaves `midway` set. Memory may then be ahead of the disk or behind
        it, so no further step may begin.

        Raises:
            CallerError: the client is closed, or this thread is inside a transaction.
            Interrupted: a step was interrupted.
        """
        self.lock.acquire()
        if self.in_step or self.unusable or self.closed or self.handlers:
            self._refuse()
        self.in_step = threading.get_ident()

    def enter_if_free(self) -> bool:
        """Enter as `enter` if no other thread has the lock; return True in this case."""
        if not self.lock.acquire(blocking=False):
            return False
        if self.in_step or self.unusable or self.closed or self.handlers:
            self._refuse()
        self.in_step = threading.get_ident()
        return True

    def _refuse(self) -> None:
        if self._mender == threading.get_ident() and not self.closed:
            return
        if not (self.in_step or self.unusable or self.closed or threading.get_ident() in self.handlers):
            return
        self.lock.release()
        self.check_outside()
        self.check_open()
        if holds(self.lock):  # A signal handler made this call. If it raises this error, the outer step is interrupted.
            self._nested = CallerError(f"this thread is already inside another call of client {self.name}")
            raise self._nested
        self.unusable = True
        self.check_usable()

    def leave(self, error: BaseException | None = None) -> None:
        """End a step. An `error` of ours, or one that was let pass, is an orderly end."""
        if error is None or error is self._passing or (isinstance(error, PubsubError) and error is not self._nested):
            self.in_step, self._passing, self._nested = 0, _NOTHING, _NOTHING
        self.lock.release()

    def let_pass(self, error: BaseException) -> None:
        """Mark an error of the caller's own code, after its rollback, as an orderly end of the step."""
        self._passing = error

    def passes(self, error: BaseException) -> bool:
        """Return True if the error was let pass."""
        return error is self._passing

    def recover(self, *, block: bool = False, handled: bool = False) -> None:
        """Release everything that this thread still holds, because an exception from anywhere leaves the client.

        Args:
            block: the exception leaves the block of a transaction; otherwise a transaction of this thread keeps the
                lock.
            handled: the exception leaves the call that ran the handlers, so no code will end a handler's transaction
                any more: only the transaction of a caller's own block keeps the lock.
        """
        if not block:
            if within_guard():
                return
            inside = self.owner == threading.get_ident() and self.held_here
            if inside and (self.block is not None or not handled):
                return
        self.return_taken()
        self.release_driver()
        if self.unusable:
            self.look()

    def return_taken(self) -> None:
        """Release the locks of this thread, and detect if its step was interrupted."""
        for timer in tuple(self.timers):
            timer.return_taken()
        # A thread in a step holds the lock. If the lock is free, the thread that began this step was interrupted.
        here = holds(self.lock) or self.in_step == threading.get_ident()
        if not here and not (self.in_step and self.lock.acquire(blocking=False)):
            return
        self.unusable = self.unusable or self.in_step != 0
        self.transaction, self.owner, self.block = None, None, None
        release_all(self.lock)

    def enter_alone(self) -> None:
        """Let only this thread continue after an interrupted step. The lock is held."""
        self.unusable, self._mender = True, threading.get_ident()
        self.in_step, self.owner, self.transaction = 0, None, None

    def look(self) -> None:
        """Let waiting coroutines check their conditions."""
        for watcher in tuple(self.watchers):
            watcher()

    def was_interrupted(self) -> None:
        """Handle an interruption of the Messenger, which drives the sockets: nothing is sent any more."""
        self.unusable = True
        self.look()

    @property
    def over(self) -> bool:
        """True if the client is closed, or a step was interrupted."""
        return self.closed or self.unusable

    @property
    def is_cut_off(self) -> bool:
        """True if closed, or a step was interrupted, detected or not. For use between steps, under the lock."""
        return self.over or self.in_step != 0

    def check_free(self) -> None:
        """Check that a call may begin that takes no lock now and waits later. Raises as `enter`."""
        if self.closed or self.unusable or self.handlers or self.held_here:
            self.enter()
            self.leave()
        self.check_may_wait()

    def check_usable(self) -> None:
        """Check that no step was interrupted.

        Raises:
            Interrupted: a step was.
        """
        if self.unusable:
            raise Interrupted(f"client {self.name}")

    def check_outside(self) -> None:
        """Check that this thread is not inside a transaction, where only puts by the transaction are allowed.

        Raises:
            CallerError: it is.
        """
        here = threading.get_ident()
        if here in self.handlers or (self.owner == here and self.held_here):
            raise CallerError(
                "this thread is inside a transaction or a handler of the same client; "
                "only put(…, transaction=…) is possible there, and the commit sends it"
            )

    def check_open(self) -> None:
        """Check that the client is open.

        Raises:
            CallerError: it is closed.
            AfterFork: the parent process opened it.
        """
        if self.closed:
            if self.reopens and self.inherited is None:
                raise Interrupted(f"client {self.name}")
            raise self.inherited or CallerError(f"client {self.name} is closed")

    def cut_off(self) -> bool:
        """Release the locks of this thread, and return True if a step was interrupted, detected before or now."""
        self.return_taken()
        return self.unusable

    def found_cut_off(self) -> bool:
        """Return True if a step was interrupted and this thread is in none: then the client can be opened again."""
        if self.inherited is not None or (self.closed and not self.reopens):
            return False
        return not self.held_here and self.cut_off()
