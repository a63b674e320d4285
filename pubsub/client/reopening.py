"""Let a client continue after an exception of a signal handler interrupted one of its steps: it opens itself again.

Its memory may then be ahead of its disk or behind it. So the session is closed, and a new one is loaded from the disk,
as after a kill. This runs on a thread of its own. Python runs signal handlers on the main thread only, so none of their
exceptions can interrupt it.

The rule is docs/explanation/client-session.md, D10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock, Thread
from typing import Any, Final, Protocol, runtime_checkable

from pubsub.base.threads import start_thread
from pubsub.client import leaving
from pubsub.client.core.chain import UNFINISHED, Row
from pubsub.client.flows.calls import Calls
from pubsub.client.repair import settle
from pubsub.client.session import Session
from pubsub.errors import Interrupted


class Make(Protocol):
    """Opens a session: appends it to `opened` first, and uses the `known` rows in place of the store's."""

    def __call__(self, *, opened: list[Session], known: Mapping[int, Row]) -> Session:
        """Open the session."""


@runtime_checkable
class Movable(Protocol):
    """A timer that continues when the client opens itself again."""

    def move(self, calls: Calls) -> None:
        """Continue in the session of these calls."""


def suspend(session: Session) -> dict[int, Row]:
    """Prepare a session with an interrupted step for its release; its client opens another one from the disk.

    Returns:
        By counter, the unfinished rows, which callers still hold.

    Raises:
        StorageError: the disk refused; nothing has happened.
    """
    with session.lock:
        session.enter_alone()
        settle(session)
        chains = session.core.outbox.chains.values()
        known = {row.counter: row for chain in chains for row in chain.rows if row.state == UNFINISHED}
        session.reopens = True
    return known


class Reopening:
    """The open session of a client, and the next one after an interrupted step.

    Args:
        make: opens a session.
        ready: builds the objects that only this kind of client adds to the calls of a session, and returns `beside`. It
            must not refer to the client, which could then not be garbage-collected by itself.
        opened: gets the first session before any part of it is open; the caller gives it up after an exception.

    Attributes:
        calls: the calls of the present or last session.
        beside: the object that this kind of client has for each session.
    """

    def __init__(self, make: Make, ready: Callable[[Calls], Any], opened: list[Session]) -> None:
        self._make: Final = make
        self._ready: Final = ready
        self._lock: Final = Lock()
        """Held only on threads that no signal handler interrupts."""
        self._known: dict[int, Row] = {}
        self._timers: list[Movable] = []
        self.metadata: Any = None
        self.calls = self._open(opened)

    def current(self) -> Calls:
        """Return the calls of a working session, and open a new one after an interrupted step.

        Raises:
            PubsubError: as `Client`: the session cannot be opened again; the next call tries once more.
        """
        session = self.calls.session
        if (session.unusable or session.in_step) and session.found_cut_off():
            self._reopened()
        return self.calls

    def last(self) -> Calls:
        """Return the calls of the session to close. Raises as `current`."""
        if self.calls.session.reopens:
            self._reopened()
        return self.calls

    def _reopened(self) -> None:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                with self._lock:
                    self._reopen()
            except BaseException as error:  # noqa: BLE001 - it is raised on the thread that waits.
                failed.append(error)

        name = self.calls.session.name
        thread = Thread(target=work, name=f"reopen {name}", daemon=True)
        if not start_thread(thread):  # The next call tries again.
            raise Interrupted(f"client {name}")
        thread.join()
        if failed:
            raise failed[0]

    def _reopen(self) -> None:
        session = self.calls.session
        if session.closed and not session.reopens:
            return  # Another thread closed the client.
        if not session.reopens:
            if not session.unusable:
                return  # Another thread opened it again.
            self._known = suspend(session)
            self._timers = [timer for timer in tuple(session.timers) if isinstance(timer, Movable)]
            session.release()
        opened: list[Session] = []
        try:
            calls = self._open(opened)
        except BaseException:
            for made in opened:
                made.give_up()
            raise
        for timer in self._timers:
            timer.move(calls)
        self._known, self._timers, self.calls = {}, [], calls

    def _open(self, opened: list[Session]) -> Calls:
        calls = Calls(self._make(opened=opened, known=self._known))
        self.metadata = self._ready(calls)
        leaving.opened(calls)
        return calls
