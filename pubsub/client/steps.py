"""Steps of a session, and what becomes of one that an exception cuts off wherever it strikes.

A signal handler that raises (Ctrl-C is one) does so between any two instructions of the main thread: behind a commit
and before the memory has taken note of it, or between taking a lock and the `try` that gives it back. So a step says
that it has begun and, last, that it has ended. Only its orderly end takes that back: by its last line, by one of our
own errors, or by an error of the caller's own block once that is rolled back. Who then finds a step begun and nobody
within knows that one was cut off, and refuses: the disk counts, and the client opens itself again from there.
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
    """Call a function which takes the session's lock, and give back what it holds where an exception leaves it."""
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
    """Something that wants to be looked at when its time has come: a publisher with an open batch.

    Attributes:
        topic: the publisher's.
    """

    topic: str

    def deadline(self) -> float:
        """When, on the monotonic clock; infinity: not at all."""

    def tick(self, now: float) -> None:
        """Do it. Called without the session's lock, and must not wait for another thread."""

    def finish(self) -> int:
        """The client is about to be closed: put what is held, and hold no more. How many messages those were."""

    def give_back(self) -> None:
        """An exception came from anywhere: hold no lock."""

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that made it: be of no use."""


class Step:
    """A step as a `with` block: made once for a session, since it holds nothing of its own."""

    __slots__ = ("_session",)

    def __init__(self, session: Steps) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        self._session.leave(error)


class Steps:
    """The one lock of a session, and the steps that are made under it.

    Args:
        name: the client ID.

    Attributes:
        lock: orders everything.
        owner: the thread that is inside a transaction; transaction: which one.
        handlers: threads that run a plain handler whose transaction has not begun yet.
        midway: the thread whose step has begun and has not ended; 0: none. If that thread does not hold the lock, the
            step was cut off.
        torn: that was found out, of a step or of the Messenger: every call raises Interrupted, but for `close`, and
            the client opens itself again (`pubsub.client.reopening`).
        closed: every call raises; inherited: what, in a child of the process that opened it.
        reopens: it is closed because its client opens itself again.
        block: stands for the caller's `with` block whose transaction is open; None: there is none.
        timers: what wants to be looked at when its time has come.
        watchers: called whenever something may have come about that is waited for.
        settings: the client's.
    """

    settings: ClientSettings

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.owner: int | None = None
        self.handlers: set[int] = set()
        self.transaction: Transaction | None = None
        self.midway = 0
        self.torn = self.closed = self.reopens = False
        self.block: object = None
        self.inherited: AfterFork | None = None
        self.timers: list[Timer] = []
        self.watchers: list[Callable[[], None]] = []
        self._passing, self._nested, self._mender = _NOTHING, _NOTHING, 0
        self._step = Step(self)

    def release_driver(self) -> None:
        """Have what drives the sockets be free of this thread, too, and tell who waits where a step was cut off."""

    @property
    def held_here(self) -> bool:
        """Whether this thread has the lock: a call that begins then, in a signal's handler, is not to give it back."""
        return holds(self.lock)

    @property
    def drives(self) -> bool:
        """Whether this thread drives the sockets."""
        return False

    @property
    def busy_here(self) -> bool:
        """Whether this thread is in the midst of something with this client."""
        return self.held_here or self.drives

    def check_may_wait(self) -> None:
        """See that this thread may wait for an answer: not in a signal's handler that interrupted a call that waits.

        Raises:
            CallerError: it may not.
        """
        if self.drives:
            raise CallerError(f"this thread is in the midst of another call of client {self.name}")

    def entered(self) -> Step:
        """Hold the lock for a call: a `with` block. Raises as `enter`."""
        return self._step

    def enter(self) -> None:
        """Take the lock for a step, as a call does; `leave` ends it.

        A step that does not reach its end, because a signal raised something in it, leaves `midway` behind: then the
        memory may be ahead of the disk or behind it, and nobody gets in any more.

        Raises:
            CallerError: the client is closed, or this thread is inside a transaction; Interrupted: a step was cut off.
        """
        self.lock.acquire()
        if self.midway or self.torn or self.closed or self.handlers:
            self._refuse()
        self.midway = threading.get_ident()

    def enter_if_free(self) -> bool:
        """As `enter`, where no other thread has the lock; whether it has not."""
        if not self.lock.acquire(blocking=False):
            return False
        if self.midway or self.torn or self.closed or self.handlers:
            self._refuse()
        self.midway = threading.get_ident()
        return True

    def _refuse(self) -> None:
        if self._mender == threading.get_ident() and not self.closed:
            return
        if not (self.midway or self.torn or self.closed or threading.get_ident() in self.handlers):
            return
        self.lock.release()
        self.check_outside()
        self.check_open()
        if holds(self.lock):  # A signal handler called: where it lets this error out, the step within it is cut off.
            self._nested = CallerError(f"this thread is in the midst of another call of client {self.name}")
            raise self._nested
        self.torn = True
        self.check_whole()

    def leave(self, error: BaseException | None = None) -> None:
        """End a step, by `error` where that is not None: one of ours, or one that was let pass, leaves all sound."""
        if error is None or error is self._passing or (isinstance(error, PubsubError) and error is not self._nested):
            self.midway, self._passing, self._nested = 0, _NOTHING, _NOTHING
        self.lock.release()

    def let_pass(self, error: BaseException) -> None:
        """The caller's own code raised this, and what it had done is rolled back: the step ends by it in good order."""
        self._passing = error

    def passes(self, error: BaseException) -> bool:
        """Whether it was let pass."""
        return error is self._passing

    def recover(self, *, block: bool = False, handled: bool = False) -> None:
        """An exception leaves the client: give back what this thread still holds, wherever it struck.

        Args:
            block: it leaves the block of a transaction; else a transaction of this thread keeps the lock.
            handled: it leaves the call that ran the handlers, so nobody will end a handler's transaction any more: only
                that of a caller's own block keeps the lock.
        """
        if not block:
            if within_guard():
                return
            inside = self.owner == threading.get_ident() and self.held_here
            if inside and (self.block is not None or not handled):
                return
        self.give_back()
        self.release_driver()
        if self.torn:
            self.look()

    def give_back(self) -> None:
        """Have the locks be free of this thread, and see whether the step within was cut off."""
        for timer in tuple(self.timers):
            timer.give_back()
        # A thread within a step holds the lock. Where the lock is free, the thread that began this step was cut off.
        here = holds(self.lock) or self.midway == threading.get_ident()
        if not here and not (self.midway and self.lock.acquire(blocking=False)):
            return
        self.torn = self.torn or self.midway != 0
        self.transaction, self.owner, self.block = None, None, None
        release_all(self.lock)

    def enter_alone(self) -> None:
        """A step was cut off: let this thread, and no other, go on. The lock is held."""
        self.torn, self._mender = True, threading.get_ident()
        self.midway, self.owner, self.transaction = 0, None, None

    def look(self) -> None:
        """Have coroutines that wait look whether it is over."""
        for watcher in tuple(self.watchers):
            watcher()

    def struck(self) -> None:
        """The Messenger was interrupted in the midst of something (it is our driver): nothing is sent any more."""
        self.torn = True
        self.look()

    @property
    def over(self) -> bool:
        """Whether nothing more will come: it is closed, or a step was cut off."""
        return self.closed or self.torn

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing more will come, or a step was cut off and nobody found out yet. Between steps, lock held."""
        return self.over or self.midway != 0

    def check_free(self) -> None:
        """See that a call may begin which takes no lock now, and waits later.

        Raises:
            As `enter`.
        """
        if self.closed or self.torn or self.handlers or self.held_here:
            self.enter()
            self.leave()
        self.check_may_wait()

    def check_whole(self) -> None:
        """See that no step was cut off.

        Raises:
            Interrupted: one was.
        """
        if self.torn:
            raise Interrupted(f"client {self.name}")

    def check_outside(self) -> None:
        """See that this thread is not inside a transaction, which may put by the transaction only.

        Raises:
            CallerError: it is.
        """
        here = threading.get_ident()
        if here in self.handlers or (self.owner == here and self.held_here):
            raise CallerError(
                "this thread is inside a transaction or a handler of the same client; "
                "there only put(…, transaction=…) is possible, and it goes out with the commit"
            )

    def check_open(self) -> None:
        """See that it is.

        Raises:
            CallerError: it is closed; AfterFork: it is the parent's.
        """
        if self.closed:
            if self.reopens and self.inherited is None:
                raise Interrupted(f"client {self.name}")
            raise self.inherited or CallerError(f"client {self.name} is closed")

    def cut_off(self) -> bool:
        """Whether a step was cut off, found out already or not."""
        self.give_back()
        return self.torn

    def found_cut_off(self) -> bool:
        """Whether a step was cut off, and this thread is in none: then the client can be opened again."""
        if self.inherited is not None or (self.closed and not self.reopens):
            return False
        return not self.held_here and self.cut_off()
