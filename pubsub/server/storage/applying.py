"""Applies each change to the store's tables, within the transaction of a loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import apsw
from msgspec import structs

from pubsub.base.limits import OFFSET_BITS, OFFSET_MAX
from pubsub.server.storage import delayed, groups, repaired, staged
from pubsub.server.storage.barred import SINGLY_MAX, Barred, InTheWay
from pubsub.server.storage.disorder import Disorder
from pubsub.server.storage.reader import Reader
from pubsub.server.storage.schema import RESTORED, write_parts, write_removal, write_settings, write_spans
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import Batch
from pubsub.server.topic.purges import NOWHERE


def _deletion(low: int, high: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The statements that delete the batches with keys in [low, high), except the damaged ones."""
    return (*staged.deletion(low, high), (f"delete from batch where {staged.NOT_QUARANTINED}", (low, high)))  # noqa: S608


def _baring(low: int, high: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The statements that drop the bodies of the same batches. Published batches have their bodies in `staged`."""
    update = f"update batch set body = null where body is not null and {staged.NOT_QUARANTINED}"  # noqa: S608
    return (*staged.deletion(low, high), (update, (low, high)))


def _on_database(apply: Callable[[apsw.Connection, Any], object]) -> Callable[[Applying, Any], object]:
    return lambda applying, change: apply(applying.db, change)


class Applying:
    """Applies changes.

    Args:
        db: the writing connection.
        reader: kept up to date with the changes.

    Attributes:
        failed: the change that met a damaged page.
        fresh: keys of batches that this transaction changes. The reader may have cached them in their new state.
        damaged: keys of batches that the reader knows as damaged, in advance of the commit.
    """

    def __init__(self, db: apsw.Connection, reader: Reader) -> None:
        self.db, self.reader = db, reader
        self.failed: c.Change | None = None
        self.fresh: list[int] = []
        self.damaged: set[int] = set()
        self._barred = Barred(db)
        self._left_out: set[Hashable] = set()
        self._uncompacted: set[int] = set()
        """Logs of which a damaged page prevents the compaction in this transaction."""
        self._disorder = Disorder(db)

    def apply(self, changes: Sequence[c.Change]) -> None:
        """Apply changes within the open transaction, in order.

        Raises:
            apsw.CorruptError, apsw.ConstraintError: a damaged page was met; `failed` is the change that needed it.
        """
        try:
            for change in changes:
                self.APPLY[type(change)](self, change)
        except (apsw.CorruptError, apsw.ConstraintError):  # No intact page shows the conflicting row.
            self.failed = change
            raise

    def prepare(self, changes: Sequence[c.Change]) -> None:
        """Find the pages that the transaction of these changes must not write. Called before the transaction begins."""
        for low, high in self._disorder.find(changes):
            self._barred.bar(low, high)

    def avoid(self, met: InTheWay, failures: int) -> None:
        """Leave out the failed statement at the next try of the transaction.

        Args:
            met: the failure.
            failures: number of failures of this transaction so far.
        """
        self.failed = None
        if not isinstance(met.what, range):
            self._left_out.add(met.what)
        elif failures < SINGLY_MAX:
            self._barred.look(met.what.start, met.what.stop)
        else:
            self._barred.bar(met.what.start, met.high)

    def committed(self) -> None:
        """Record that the transaction is durable."""
        self.fresh.clear()
        self.damaged.clear()
        self._barred.committed()

    def _spared(self, what: Hashable, *statements: tuple[str, tuple[Any, ...]], high: int = 0) -> None:
        """Execute statements that may be left out.

        If a damaged page prevents one of them, the transaction is tried again without them.

        Args:
            what: identifies the statements.
            statements: each with its parameters.
            high: for a range, as in `InTheWay`.
        """
        if what in self._left_out:
            return
        try:
            for statement, bind in statements:
                self.db.execute(statement, bind)
        except apsw.CorruptError:
            raise InTheWay(what, high) from None

    def _each(
        self, low: int, high: int, statements: Callable[[int, int], tuple[tuple[str, tuple[Any, ...]], ...]]
    ) -> None:
        """Change the batches with keys in [low, high), except those that a damaged page makes unreachable.

        Batches that were found damaged stay as they are: their rows may lead to pages that belong to another row.
        """
        if self.reader.damaged:
            repaired.drop(self.db, low, high)
        for start, stop in self._barred.pieces(low, high):
            self._spared(range(start, stop), *statements(start, stop), high=high)

    def _see_order(self, log: int) -> None:
        if log in self._disorder.logs:
            raise apsw.CorruptError("rows are out of order at the place of the write")

    def _append(self, change: c.BatchAppended) -> None:
        self._see_order(change.log)
        key = change.log << OFFSET_BITS | change.offset
        self.db.execute(
            "insert into batch values (?,?,?,?,?,?,?,?)",
            (
                key,
                change.count,
                change.publisher,
                change.counter,
                change.stamp,
                change.checksum,
                change.total,
                change.body,
            ),
        )
        self.fresh.append(key)
        self.reader.remember(key, Batch(*structs.astuple(change)[1:]))

    def _publish(self, change: c.BatchPublished) -> None:
        self._see_order(change.log)
        key = change.log << OFFSET_BITS | change.offset
        staged.publish(self.db, key, change)
        self.fresh.append(key)  # The batch may be read, and so cached, before the commit.

    def _trim(self, change: c.LogTrimmed) -> None:
        first = change.log << OFFSET_BITS
        self.db.execute(
            "update log set low = ?, end = ?, total = ? where id = ?",
            (change.low, change.end, change.total, change.log),
        )
        self._each(first, first | change.low, _deletion)

    def _compact(self, change: c.LogCompacted) -> None:
        """Remove rows and note the parts from which records are missing, all of it or nothing."""
        first, what = change.log << OFFSET_BITS, ("compaction", change.log, change.gone[:1])
        low, high = first | min(change.gone, default=0), (first | max(change.gone, default=0)) + 1
        if what in self._left_out or (change.gone and list(self._barred.pieces(low, high)) != [(low, high)]):
            self._uncompacted.add(change.log)
            return
        self._uncompacted.discard(change.log)
        for offset in change.gone:
            key = first | offset
            if key in self.reader.damaged:  # Damaged in this store alone; the row stays, and counts as passed over.
                repaired.pass_over(self.db, key)
            else:
                self._spared(what, *_deletion(key, key + 1))
            self.reader.drop(key)
            self.fresh.append(key)
        self.db.execute("delete from compacted where log = ?", (change.log,))
        if change.parts:
            self.db.execute("insert into compacted values (?,?)", (change.log, write_parts(change.parts)))

    def _keep(self, change: c.BatchKept) -> None:
        if change.log in self._uncompacted:
            return
        key = change.log << OFFSET_BITS | change.offset
        facts = structs.astuple(change)[2:]
        if key in self.reader.damaged:
            repaired.keep(self.db, key, change)
        else:
            self.db.execute("insert into batch values (?,?,?,?,?,?,?,?)", (key, *facts))
        self.fresh.append(key)

    def _drop_bodies(self, change: c.BodiesDropped) -> None:
        first = change.log << OFFSET_BITS
        self._each(first | change.low, first | change.high, _baring)
        self.reader.drop_range(first | change.low, first | change.high)

    def _discard(self, change: c.BatchesDiscarded) -> None:
        first = change.log << OFFSET_BITS
        self._each(first, first | change.low, _deletion)
        if change.last:
            self.db.execute("delete from log where id = ? and state = ?", (change.log, c.LogState.INCOMING.stored))

    def _replaced(self, change: c.LogReplaced) -> None:
        self.db.execute(
            "delete from compacted where log in (select id from log where topic = ? and name = ?)",
            (change.topic, change.log),
        )
        self.db.execute(
            "update log set state = ?, topic = 0, end = 1, receiver = '' where topic = ? and name = ? and state = ?",
            (c.LogState.INCOMING.stored, change.topic, change.log, c.LogState.HELD.stored),
        )
        # A log that was only known has no stored batches to delete later.
        self.db.execute("delete from log where topic = ? and name = ?", (change.topic, change.log))

    def _given(self, change: c.TopicGiven) -> None:
        self.db.execute("delete from compacted where log in (select id from log where topic = ?)", (change.topic,))
        self.db.execute(
            "update log set state = ?, receiver = ?, topic = 0 where topic = ?",
            (c.LogState.GIVEN.stored, change.receiver, change.topic),
        )
        tables = ("last", "topic_settings", "removal", "topic_order", "purge", "subscription", "rival", "shelf")
        for table, column in (("topic", "id"), *((table, "topic") for table in tables)):
            self.db.execute(f"delete from {table} where {column} = ?", (change.topic,))  # noqa: S608 - our own names
        groups.drop(self.db, change.topic)

    def _quarantine(self, change: c.BatchQuarantined) -> None:
        key = change.log << OFFSET_BITS | change.offset
        # The row stays. If its page number is damaged, deleting the row would free pages of another row.
        self._spared(("staged copy", key), staged.keep(key))
        self._spared(
            ("copy", key),
            (
                "insert or ignore into quarantine select key, checksum, body from batch where key = ?1"
                " and body is not null",
                (key,),
            ),
        )
        self.damaged |= {key} - self.reader.damaged
        self.reader.damaged.add(key)
        self.reader.drop(key)
        self.fresh.append(key)  # A read before the commit may cache it, repaired or without its bytes.

    def _repair(self, change: c.BatchRepaired) -> None:
        self._quarantine(c.BatchQuarantined(change.log, change.offset))
        repaired.keep(self.db, change.log << OFFSET_BITS | change.offset, change)

    def _topic(self, change: c.TopicChanged) -> None:
        self.db.execute(
            "insert or replace into topic values (?,?,?,?,?)",
            (change.topic, change.name, change.open_log, write_spans(change.history), change.frozen),
        )

    def _settings(self, change: c.SettingsChanged) -> None:
        self.db.execute(
            "insert or replace into topic_settings values (?,?)", (change.topic, write_settings(change.settings))
        )

    def _purged(self, change: c.TopicPurged) -> None:
        if change.purged == NOWHERE:
            self.db.execute("delete from purge where topic = ? and log = ?", (change.topic, change.log))
            return
        row = change.topic, change.log, change.purged.kept, change.purged.unread
        self.db.execute("insert or replace into purge values (?,?,?,?)", row)

    def _subscription(self, change: c.SubscriptionChanged) -> None:
        log, acknowledged = change.acknowledged
        self.db.execute(
            "insert or replace into subscription values (?,?,?,?,?,?,?,?,?)",
            (
                change.topic,
                change.subscriber,
                change.number,
                change.epoch,
                int(change.on),
                change.since,
                log,
                acknowledged,
                write_spans(change.backlog),
            ),
        )

    def _set_aside(self, change: c.TopicSetAside) -> None:
        self.db.execute(
            "insert into quarantined_topic select id, name, open_log, history, ?, ? from topic where id = ?",
            (change.reason, change.stamp, change.topic),
        )
        self.db.execute("delete from topic where id = ?", (change.topic,))
        self.db.execute("delete from rival where topic = ?", (change.topic,))
        self.db.execute(
            "update log set receiver = state, state = ? where topic = ?", (c.LogState.QUARANTINED.stored, change.topic)
        )

    def _stage(self, change: c.PieceStaged) -> None:
        if None in self._disorder.stages:
            raise apsw.CorruptError("staged rows are out of order at the place of the write")
        staged.stage(self.db, change)

    def _delete_staged(self, change: c.StagedDeleted) -> None:
        if change.stage not in self._disorder.stages:
            self._spared(("stage", change.stage), staged.dropping(change))
        if change.last:
            self.db.execute("delete from stage where id = ?", (change.stage,))

    def _discard_shelf(self, change: c.ShelfDiscarded) -> None:
        what = "shelf", change.shelf
        if what in self._left_out:
            self.reader.stuck.add(change.shelf)
        self._spared(what, delayed.discarding(change))

    def _note(self, change: c.NoteKept) -> None:
        if change.value is None:
            self.db.execute("delete from meta where name = ?", (f"note {change.name}",))
        else:
            self.db.execute("insert or replace into meta values (?,?)", (f"note {change.name}", change.value))

    def _counted(self, change: c.ChangeCounted) -> None:
        self.db.executemany(
            "insert or replace into meta values (?,?)", (("change", change.change), ("stamp", change.stamp))
        )

    APPLY: Final[dict[type[Any], Callable[[Applying, Any], object]]] = {
        c.BatchAppended: _append,
        c.PublisherSeen: lambda self, x: self.db.execute("insert into publisher values (?,?)", (x.publisher, x.name)),
        c.LastMoved: lambda self, x: self.db.execute(
            "insert or replace into last values (?,?,?)", (x.topic, x.publisher, x.last)
        ),
        c.LogOpened: lambda self, x: self.db.execute(
            "insert into log values (?,?,?,?,1,1,0,'')", (x.log, x.id, x.topic, x.state.stored)
        ),
        c.LogMerged: lambda self, x: self.db.execute(
            "update log set topic = ?, state = ?, low = ?, end = ?, total = ? where id = ?",
            (x.topic, c.LogState.HELD.stored, x.low, x.end, x.total, x.log),
        ),
        c.LogCompacted: _compact,
        c.BatchKept: _keep,
        c.LogUsedUp: lambda self, x: self.db.execute(
            "update log set state = ? where id = ?", (c.LogState.MERGED.stored, x.log)
        ),
        c.BatchesDiscarded: _discard,
        c.TopicGiven: _given,
        c.WatermarkStored: lambda self, x: self.db.executemany(
            "insert into watermark values (?,?,?)", [(x.watermark, *item) for item in x.counters.items()]
        ),
        c.WatermarkDropped: lambda self, x: self.db.execute("delete from watermark where id = ?", (x.watermark,)),
        c.LogTrimmed: _trim,
        c.BodiesDropped: _drop_bodies,
        c.TopicChanged: _topic,
        c.SettingsChanged: _settings,
        c.RemovalChanged: lambda self, x: self.db.execute(
            "insert or replace into removal values (?,?)", (x.topic, write_removal(x.removal))
        ),
        c.OrderChanged: lambda self, x: self.db.execute(
            "insert or replace into topic_order values (?,?)", (x.topic, x.order)
        ),
        c.TopicPurged: _purged,
        c.SubscriptionChanged: _subscription,
        c.BatchQuarantined: _quarantine,
        c.BatchRepaired: _repair,
        c.LogEnded: lambda self, x: self.db.execute(
            "update log set end = ?, receiver = ? where id = ?", (OFFSET_MAX, RESTORED if x.here else "", x.log)
        ),
        c.LogReplaced: _replaced,
        c.TopicSetAside: _set_aside,
        c.TopicContested: lambda self, x: self.db.execute(
            "insert or replace into rival values (?,?,?)", (x.topic, x.log, x.server)
        ),
        c.TopicSettled: lambda self, x: self.db.execute(
            "delete from rival where topic = ? and log = ?", (x.topic, x.log)
        ),
        c.NoteKept: _note,
        c.ChangeCounted: _counted,
        c.BatchPublished: _publish,
        c.StagedDeleted: _delete_staged,
        c.PieceStaged: _stage,
        c.ShelfDiscarded: _discard_shelf,
        **{
            kind: _on_database(apply)
            for kind, apply in (*staged.APPLY.items(), *delayed.APPLY.items(), *groups.APPLY.items())
        },
    }
