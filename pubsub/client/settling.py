"""Look up silent members of groups in the client's own database (docs/explanation/group-databases.md).

A look takes a connection of its own and waits for locks, so it runs on a thread. The session goes on meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any, Final, Protocol

from pubsub.base.threads import start_thread
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_looks import LookedUp, Silent, settling
from pubsub.client.storage.interface import ClientStore
from pubsub.errors import AfterFork, CallerError, Interrupted, PubsubError, StorageError

LOOKS_MAX: Final = 16
"""Most members of one look. The service asks again about the others."""

_log: Final = logging.getLogger("pubsub.client")


class Looking(Protocol):
    """The parts of a session for a look."""

    name: str
    store: ClientStore

    def entered(self) -> AbstractContextManager[Any]:
        """Hold the lock, and refuse a session that is over."""

    def follow(self) -> None:
        """Take a turn."""

    def wake(self) -> None:
        """Let the thread of the sockets look at the timers."""


class Looks:
    """The looks of one session, as a timer of it: a finished look is due at once.

    Args:
        session: the session.
    """

    topic = ""

    def __init__(self, session: Looking) -> None:
        self._session = session
        self._found: deque[tuple[Silent, LookedUp | None]] = deque()
        self._running = False

    def follow(self, core: GroupCore, store: ClientStore) -> None:
        """Begin a look if answers have named members, and tell the findings. The session's lock is held."""
        if core.silent:
            self.begin(core, store)
        self.take(core)

    def begin(self, core: GroupCore, store: ClientStore) -> None:
        """Look up the members that answers have named, unless a look is under way. The session's lock is held.

        After a failure nothing is told, and the service asks again.
        """
        silent, core.silent = core.silent[:LOOKS_MAX], []
        if self._running:
            return
        name = f"look-up of {self._session.name}"[:64]
        self._running = True
        if not start_thread(Thread(target=self._look, args=(store, silent), name=name, daemon=True)):
            self._running = False

    def _look(self, store: ClientStore, silent: Sequence[Silent]) -> None:
        try:
            for one in silent:
                member = one.member
                try:
                    found = store.settle_other(one.client, one.store, member.topic, member.name, one.number)
                except PubsubError as error:
                    _log.warning("client %s: %s", self._session.name, error)
                else:
                    self._found.append((one, found))
        finally:
            self._running = False
            self._session.wake()

    def take(self, core: GroupCore) -> None:
        """Let the core tell the findings. The session's lock is held."""
        while self._found:
            one, found = self._found.popleft()
            member = one.member
            if found is None:
                text = "client %s: member %s of group %s is not in the database"
                _log.warning(text, self._session.name, one.client, member.name)
            elif (work := settling(one, found)) is not None:
                core.settling.append((member, work))  # Its answer tells nothing: the service asks again.

    # As a timer

    def deadline(self) -> float:
        """Return the time of the next `tick`: at once if a look has ended."""
        return float("-inf") if self._found else float("inf")

    def tick(self, now: float) -> None:
        """Tell the findings in a turn, on the thread that drives the sockets."""
        try:
            with self._session.entered():
                self._session.follow()
        except CallerError:
            self._found.clear()  # The client was closed meanwhile. Another member will be asked.

    def finish(self) -> int:
        """Do nothing at the close: the service asks another member."""
        return 0

    def return_taken(self) -> None:
        """Do nothing: it holds no lock."""

    def forked(self, error: AfterFork) -> None:
        """Forget the findings: the parent tells them."""
        self._found.clear()


def ended_by_a_member(session: Looking, error: BaseException) -> bool:
    """Return True if another member of a group has ended the life of this client, so that a call goes on in a new one.

    Args:
        error: the exception that ended the call.
    """
    if not session.store.life_ended or not isinstance(error, Interrupted | StorageError):
        return False
    text = "client %s: another member of a group has taken its unfinished messages; it goes on with others"
    _log.warning(text, session.name)
    return True
