"""Carries the changes of Titanic's core to its store: they are durable before anything is sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from pubsub.base.clock import Clock
from pubsub.errors import StoreFull
from pubsub.services.core.titanic.requests import Accepted, Change
from pubsub.services.core.titanic.titanic import Titanic
from pubsub.services.titanic.store import Store

_log: Final = logging.getLogger("pubsub.services")


class Disk:
    """Stores the changes of a core.

    Attributes:
        full: whether the last request was refused for lack of room.
    """

    def __init__(self, core: Titanic, store: Store, clock: Clock) -> None:
        self._core, self._store, self._clock = core, store, clock
        self.full = False

    def commit(self) -> None:
        """Store all changes, in one transaction if possible, and read the wanted bodies.

        Raises:
            StorageError: the disk cannot be written or read.
        """
        core = self._core
        while changes := core.take_changes():
            if any(isinstance(change, Accepted) for change in changes):
                self._note_full(not self._store.accepts())
                if self.full:
                    refused = [change for change in changes if isinstance(change, Accepted)]
                    changes = [change for change in changes if not isinstance(change, Accepted)]
                    self._tell(refused, done=False)
            if changes:
                self._make(changes)
        for load in core.take_loads():
            core.loaded(load, self._store.body(load.entry), self._clock.monotonic())

    def _make(self, changes: Sequence[Change]) -> None:
        now = self._clock.monotonic()
        try:
            self._store.write(changes, self._core.age(now))
        except StoreFull:
            if len(changes) > 1:  # A large change must not prevent the others.
                for change in changes:
                    self._make([change])
            elif isinstance(changes[0], Accepted) or not self._store.release_reserve():
                self._note_full(full=True)
                self._tell(changes, done=False)
            else:
                self._make(changes)
        else:
            self._tell(changes, done=True)

    def _tell(self, changes: Sequence[Change], *, done: bool) -> None:
        tell = self._core.written if done else self._core.not_written
        for change in changes:
            tell(change, self._clock.monotonic())

    def _note_full(self, full: bool) -> None:
        if full and not self.full:
            _log.warning(
                "%s: no room for more requests: each is answered with 500; make room on the disk or raise --bytes-max",
                self._store.path,
            )
        elif self.full and not full:
            _log.warning("%s: there is room for requests again, and they are accepted", self._store.path)
        self.full = full
