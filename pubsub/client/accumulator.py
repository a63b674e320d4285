"""Writes puts to the outbox: the open batch of a topic, and the put that closes it, in one commit.

Every put comes through here (docs/explanation/batches.md, B4, B6 and B7). Records that wait for others stand in the
open batch (`pubsub.client.core.groups`). A put that waits for none closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import Chain, Row
from pubsub.client.core.changes import Change
from pubsub.client.core.core import ClientCore
from pubsub.client.core.groups import Share, batches
from pubsub.client.steps import Step
from pubsub.config.settings import ClientSettings
from pubsub.errors import AfterFork, CallerError, StorageError, TooLarge
from pubsub.protocol import batch_size
from pubsub.protocol.batch import END_BYTES

if TYPE_CHECKING:
    from pubsub.client.storage.recorder import Recorder

UNWRITTEN: Final = (TooLarge, StorageError)
"""Errors of a write that left nothing on the disk. An exception of a signal handler may also come after the commit."""

_PAST: Final = float("-inf")

_TABLES: Final = 3
"""Number of tables of ends in a batch with keys and headers."""


class Writing(Protocol):
    """The session, as its accumulator uses it."""

    @property
    def core(self) -> ClientCore: ...

    settings: ClientSettings
    recorder: Recorder | None

    @property
    def answered(self) -> bool:
        """True if answers are here that no turn has handled yet."""

    def entered(self) -> Step:
        """Hold the lock for a call, in a `with` block."""

    def commit(self, changes: Sequence[Change]) -> bool:
        """Commit changes. The lock is held."""

    def follow(self, *, only_send: bool = False) -> None:
        """Run a turn, which writes due open batches, or only the sending part of a turn. The lock is held."""

    def tell_waiting(self) -> None:
        """Wake waiting threads and coroutines to check their conditions."""


class Accumulator:
    """Writes the puts of one session. As a timer of the session it writes open batches that waited long enough."""

    topic = ""

    def __init__(self, session: Writing) -> None:
        self._session, settings = session, session.settings
        self._records = min(settings.publisher_records, BATCH_RECORDS_MAX)
        tables = batch_size(self._records, 0) + (_TABLES - 1) * END_BYTES * self._records
        self._bytes = min(settings.publisher_bytes, BATCH_BYTES_MAX - tables)

    def put(
        self, chain: Chain, own: Sequence[BatchContents], until: float, drafted: list[Row] | None = None
    ) -> list[Row]:
        """Write the open batch of a topic, then batches of the caller, and send all. The lock is held.

        Args:
            chain: the topic's chain.
            own: one batch or more, each a row.
            until: deadline of the sending.
            drafted: gets their rows before the commit.

        Returns:
            Their rows.

        Raises:
            TooLarge, StorageError, StateCopied: none of the caller's batches was written. The open batch was, or its
                callers get the error.
        """
        session, groups = self._session, self._session.core.groups
        rows: list[Row] = []
        if groups.is_open(chain.topic) and (shares := groups.take(chain.topic)):
            try:
                rows = self._write(chain, shares, own, until, drafted)
            except UNWRITTEN:
                self._write_shares(chain, shares)
                session.follow()
        if not rows:
            if len(own) == 1:
                rows = self._write_one(chain, own[0], until, drafted)
            else:
                rows = self._write(chain, (), own, until, drafted)
        # A complete turn if there is more to do: answers are here, or refusing proxies must be asked again.
        whole = session.answered or session.core.refusing.called
        if whole or not chain.holds_back(rows[0]):
            session.follow(only_send=not whole)
        return rows[-len(own) :]

    def close(self, topic: str) -> None:
        """Write and send the open batch of a topic before another kind of put. The lock is held."""
        if self._session.core.groups.is_open(topic) and self._close(topic):
            self._session.follow()

    def close_all(self) -> None:
        """Write and send all open batches, since a transaction may put to any topic. The lock is held."""
        for topic in self._session.core.groups.topics:
            self.close(topic)

    def write_due(self, now: float) -> None:
        """Write the open batches that are due, in a turn that sends them. The lock is held."""
        for topic in self._session.core.groups.due(now):
            self._close(topic)

    def _close(self, topic: str) -> bool:
        """Write the open batch of a topic; return True if there was one."""
        core = self._session.core
        shares = core.groups.take(topic)
        if shares:
            self._write_shares(core.outbox.chain(topic), shares)
        return bool(shares)

    def _write_shares(self, chain: Chain, shares: Sequence[Share]) -> None:
        """Write records together. If that fails, write them one by one, so that each caller gets its own result."""
        try:
            self._write(chain, shares)
        except UNWRITTEN as error:
            if len(shares) == 1:
                shares[0].error = error
            else:
                for share in shares:
                    try:
                        self._write(chain, [share])
                    except UNWRITTEN as its:
                        share.error = its
            self._session.tell_waiting()

    def _write(
        self,
        chain: Chain,
        shares: Sequence[Share],
        own: Sequence[BatchContents] = (),
        until: float = _PAST,
        drafted: list[Row] | None = None,
    ) -> list[Row]:
        """Commit records of an open batch, then batches of the caller, to the outbox; return all rows."""
        session, core = self._session, self._session.core
        outbox, parts = core.outbox, []
        if core.copied is not None:
            raise core.copied
        if shares:
            parts = [*batches(shares, self._records, self._bytes)]
            own = [*[contents for contents, _ in parts], *own]
        rows: list[Row] = []
        previous, metadata = chain.previous, 0
        for bodies, keys, headers, due in own:
            row = outbox.row(chain, bodies, keys, headers, previous, metadata, due)
            previous, metadata = row.last, metadata + row.size
            rows.append(row)
        if drafted is not None:
            drafted[:] = rows[len(parts) :]
        session.commit([row.added() for row in rows])
        for row in rows:
            outbox.enter(chain, row)
        if session.recorder is not None:
            session.recorder.begun(rows)
        for row, (_, its) in zip(rows, parts, strict=False):
            for index, share in enumerate(its):
                share.index, share.row = index, row  # In this order: its caller looks at the row without a lock.
                until = max(until, share.until)
        core.finish(chain.topic, until)
        return rows

    def _write_one(self, chain: Chain, own: BatchContents, until: float, drafted: list[Row] | None) -> list[Row]:
        """As `_write` of a single batch, the most frequent put, without the work for several."""
        session, core = self._session, self._session.core
        if core.copied is not None:
            raise core.copied
        row = core.outbox.row(chain, own.bodies, own.keys, own.headers, due=own.due)
        if drafted is not None:
            drafted[:] = [row]
        session.commit((row.added(),))
        core.outbox.enter(chain, row)
        if session.recorder is not None:
            session.recorder.begun((row,))
        core.finish(chain.topic, until)
        return [row]

    # As a timer

    def deadline(self) -> float:
        """Return the due time of the next open batch."""
        return self._session.core.groups.deadline()

    def tick(self, now: float) -> None:
        """Write due open batches. The thread that drives the sockets calls this."""
        try:
            with self._session.entered():
                self._session.follow()
        except CallerError:
            pass  # The client was closed meanwhile.

    def finish(self) -> int:
        """Write all open batches before the client closes, so that their puts are kept."""
        if self._session.core.groups.topics:
            with self._session.entered():
                self.close_all()
        return 0

    def return_taken(self) -> None:
        """Do nothing: the accumulator holds no lock."""

    def forked(self, error: AfterFork) -> None:
        """Do nothing: the callers are threads of the parent process."""
