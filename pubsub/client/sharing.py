"""Writes groups: what callers put at the same time to the same topic, in one commit (`pubsub.client.core.groups`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.client.core.changes import Change
from pubsub.client.core.core import ClientCore
from pubsub.client.core.groups import Share, batches
from pubsub.client.core.outbox import Draft
from pubsub.client.steps import Step
from pubsub.config.settings import ClientSettings
from pubsub.errors import AfterFork, CallerError, PubsubError
from pubsub.protocol import batch_size
from pubsub.protocol.batch import END_BYTES

if TYPE_CHECKING:
    from pubsub.client.storage.recorder import Recorder

_TABLES: Final = 3
"""Of ends in a batch with keys and headers."""


class Writing(Protocol):
    """What a session does for those who write groups."""

    core: ClientCore
    settings: ClientSettings
    recorder: Recorder | None

    def entered(self) -> Step:
        """Hold the lock for a call: a `with` block."""

    def commit(self, changes: Sequence[Change]) -> bool:
        """Commit changes. The lock is held."""

    def follow(self) -> None:
        """A turn, in which groups that are due are written. The lock is held."""

    def tell_waiting(self) -> None:
        """Have threads and coroutines that wait look whether another one did what they wait for."""


def enter_outbox(session: Writing, draft: Draft) -> None:
    """Commit what is drafted to the outbox. The lock is held.

    Raises:
        StorageError: nothing was written.
    """
    session.commit(draft.changes())
    session.core.outbox.accept(draft)
    if session.recorder is not None:
        session.recorder.begun(draft.rows)


class Sharing:
    """Writes the groups of one session. It is a timer of it: a group that was held for long enough is due."""

    topic = ""

    def __init__(self, session: Writing) -> None:
        self._session, settings = session, session.settings
        self._records = min(settings.publisher_records, BATCH_RECORDS_MAX)
        tables = batch_size(self._records, 0) + (_TABLES - 1) * END_BYTES * self._records
        self._bytes = min(settings.publisher_bytes, BATCH_BYTES_MAX - tables)

    def close(self, topic: str) -> None:
        """Write what waits on a topic, and send it: something else is put there. The lock is held."""
        if self._session.core.groups.is_open(topic) and self._write(topic):
            self._session.follow()

    def close_all(self) -> None:
        """Write and send what waits on any topic: nobody knows where a transaction will put. The lock is held."""
        for topic in self._session.core.groups.topics:
            self.close(topic)

    def write_due(self, now: float) -> None:
        """Write the groups that are due, in a turn that sends them. The lock is held."""
        for topic in self._session.core.groups.due(now):
            self._write(topic)

    def _write(self, topic: str) -> bool:
        """Commit what waits on a topic to the outbox; whether anything did.

        What cannot be written together is written one by one, so that each caller has an answer of his own.
        """
        shares = self._session.core.groups.take(topic)
        if not shares:
            return False
        try:
            self._put(topic, shares)
        except PubsubError as error:
            if len(shares) == 1:
                shares[0].error = error
            else:
                self._put_one_by_one(topic, shares)
            self._session.tell_waiting()
        return True

    def _put_one_by_one(self, topic: str, shares: Sequence[Share]) -> None:
        for share in shares:
            try:
                self._put(topic, [share])
            except PubsubError as error:
                share.error = error

    def _put(self, topic: str, shares: Sequence[Share]) -> None:
        session, core = self._session, self._session.core
        if core.copied is not None:
            raise core.copied
        draft = Draft(core.outbox)
        parts = []
        for contents, its in batches(shares, self._records, self._bytes):
            draft.add(topic, *contents)
            parts.append(its)
        enter_outbox(session, draft)
        for row, its in zip(draft.rows, parts, strict=True):
            for index, share in enumerate(its):
                share.index, share.row = index, row  # In this order: its caller looks at the row without a lock.
        core.finish(topic, max([share.until for share in shares]))

    # As a timer

    def deadline(self) -> float:
        """When the next group is to be written."""
        return self._session.core.groups.deadline()

    def tick(self, now: float) -> None:
        """Write what is due. Called by the thread that drives the sockets."""
        try:
            with self._session.entered():
                self._session.follow()
        except CallerError:
            pass  # The client was closed meanwhile.

    def finish(self) -> int:
        """The client is about to be closed: write all groups, so that what their callers wait for is kept."""
        if self._session.core.groups.topics:
            with self._session.entered():
                self.close_all()
        return 0

    def give_back(self) -> None:
        """It holds no lock."""

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that made it, whose callers are not here."""
