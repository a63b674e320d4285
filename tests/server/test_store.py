"""One file, one writer, one transaction: opened, refused and kept files, and the reloaded state."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.errors import ConfigurationError, StoreDamaged, StoreFull, StoreInUse, StoreNewer
from pubsub.server.storage.loading import load
from pubsub.server.storage.schema import FILE, FORMAT, read_spans, write_spans
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import SubscriptionRow, subscription_of
from tests.server.stage import Stage

A, B = "a" * 16, "b" * 16
MIB = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def batch(offset: int, count: int = 1, size: int = 8, log: int = 1, **more: Any) -> c.BatchAppended:
    body = offset.to_bytes(8, "big") * (size // 8)
    facts = {"publisher": 1, "counter": offset, "stamp": 1000 + offset, "checksum": 5, "total": (offset - 1) * 8}
    return c.BatchAppended(log, offset, count, body=body, **(facts | more))


TOPIC: list[c.Change] = [
    c.PublisherSeen(1, f"alice/{A}"),
    c.LogOpened(1, A, 1),
    c.TopicChanged(1, "t", 1, (Span(A, 1),), ""),
    c.LastMoved(1, 1, 9),
    c.SubscriptionChanged(1, "bob", 5, 6, True, 7, (A, 2), (Span(A, 3, 9, 2, 8), Span(A, 9))),
]


def apply(store: Store, *changes: c.Change) -> None:
    with store.guarded():
        store.apply(changes)


def test_every_change_is_stored_and_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    apply(store, *TOPIC, batch(1, 4), batch(5, 2))
    apply(store, c.LastMoved(1, 1, 11), c.ChangeCounted(3, 44))
    name = store.store_id
    store.close()
    store = Store(tmp_path)
    assert store.store_id == name
    (topic,) = store.topics()
    assert (topic.number, topic.name, topic.history, topic.last) == (1, "t", (Span(A, 1),), {1: 11})
    assert (topic.open.id, topic.open.low, topic.open.end, topic.open.total) == (A, 1, 7, 40)
    assert topic.subscriptions == {
        "bob": subscription_of("bob", SubscriptionRow(5, 6, True, 7, (A, 2), (Span(A, 3, 9, 2, 8), Span(A, 9))))
    }
    assert store.publishers() == ["", f"alice/{A}"]
    assert store.next_numbers() == (2, 2, 1)
    assert [found.name for found in store.topics("t")] == ["t"]
    assert list(store.topics("u")) == []
    assert store.stamp() == 1005  # the newest batch's, which is above the one that was counted
    store.close()


def test_an_emptied_log_keeps_its_end(store: Store) -> None:
    apply(store, *TOPIC, batch(1, 4), batch(5, 2))
    apply(store, c.LogTrimmed(1, 5, 7, 40))
    (topic,) = store.topics()
    assert (topic.open.low, topic.open.end) == (5, 7)
    apply(store, c.LogTrimmed(1, 7, 7, 40))
    (topic,) = store.topics()
    assert (topic.open.low, topic.open.end, topic.open.total) == (7, 7, 40)


def test_a_failed_transaction_leaves_nothing_behind(store: Store) -> None:
    apply(store, *TOPIC)

    def fails() -> None:
        with store.guarded():
            store.apply([batch(1), c.LastMoved(1, 1, 99)])
            assert len(list(store.reader.batches(1, 1, 9))) == 1  # the open transaction is seen
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(store.reader.batches(1, 1, 9)) == []
    assert not store.db.in_transaction
    (topic,) = store.topics()
    assert (topic.last, topic.open.end) == ({1: 9}, 1)


def test_a_limit_on_the_file_is_a_full_disk(tmp_path: Path) -> None:
    store = Store(tmp_path, bytes_max=4 * MIB)
    apply(store, *TOPIC)

    def fill() -> None:
        for offset in range(1, 100):
            apply(store, batch(offset, size=MIB // 4))

    with pytest.raises(StoreFull):
        fill()
    held = store.db.execute("select count(*) from batch").fetchone()
    assert 5 < held[0] < 16
    assert store.room_bytes() < MIB
    apply(
        store, c.SubscriptionChanged(1, "bob", 5, 6, True, 7, (A, 9), (Span(A, 10),))
    )  # an acknowledgement still goes
    apply(store, c.LogTrimmed(1, 5, 20, 0))
    assert store.room_bytes() >= store.free_bytes() >= MIB - MIB // 8
    apply(store, batch(50, size=MIB // 4))
    assert set(store.sizes()) == {"store", "log"}
    store.close()


def test_a_batch_that_is_set_aside_keeps_its_position(store: Store) -> None:
    apply(store, *TOPIC, batch(1), batch(2))
    for _ in range(2):
        apply(store, c.BatchQuarantined(1, 1))
    first, second = store.reader.batches(1, 1, 3)
    assert first.body is None
    assert second.body is not None
    ((_, checksum, body),) = store.db.execute("select * from quarantine").fetchall()
    assert (checksum, bytes(body)) == (5, (1).to_bytes(8, "big"))


def test_a_given_topic_leaves_tombstones_and_its_batches_are_deleted(store: Store) -> None:
    apply(store, *TOPIC, batch(1), batch(2))
    apply(store, c.TopicGiven(1, "s2 tcp://h:1"))
    assert list(store.topics()) == []
    assert store.reader.log_state(A) == "given"
    assert store.discarded() == [1]
    apply(store, c.BatchesDiscarded(1, 3, True))
    assert store.discarded() == []
    assert store.reader.log_state(A) == "given"


def test_batches_of_a_log_that_is_held_are_never_discarded(store: Store) -> None:
    """The giving was taken back for want of space after its deletion had been queued."""
    apply(store, *TOPIC, batch(1), batch(2))
    apply(store, c.BatchesDiscarded(1, 3, True))
    assert len(list(store.reader.batches(1, 1, 9))) == 2


def test_an_incoming_log_is_invisible_until_it_joins(store: Store) -> None:
    apply(store, *TOPIC, c.LogOpened(2, B, 0, c.LogState.INCOMING), batch(1, 3, log=2, sound=False))
    (topic,) = store.topics()
    assert set(topic.logs) == {A}
    assert store.discarded() == [2]
    apply(
        store,
        c.LogMerged(2, 1, 1, 4, 8),
        c.WatermarkStored(1, {1: 7}),
        c.TopicChanged(1, "t", 1, (Span(B, 1, 4, 1),), ""),
    )
    (topic,) = store.topics()
    assert (set(topic.logs), topic.watermarks) == ({A, B}, {1: {1: 7}, 2: {}})
    apply(store, c.LogUsedUp(2), c.WatermarkDropped(1), c.TopicChanged(1, "t", 1, (), "tcp://h:1"))
    (topic,) = store.topics()
    assert (set(topic.logs), topic.merged, topic.watermarks, topic.frozen) == ({A}, {B}, {2: {}}, "tcp://h:1")


def test_written_spans_are_read_back() -> None:
    spans = (Span(A, 1, 5, 3, 9), Span(B, 2**40))
    assert read_spans(write_spans(spans)) == spans


# What cannot be opened


def test_a_second_process_is_kept_out(store: Store) -> None:
    script = "import sys, pathlib; from pubsub.server.storage.store import Store; Store(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(store.directory)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "StoreInUse" in done.stderr
    with pytest.raises(StoreInUse):
        Store(store.directory)


def test_a_store_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    Store(tmp_path).close()
    db = apsw.Connection(str(tmp_path / FILE))
    db.pragma("user_version", FORMAT + 1)
    db.close()
    before = (tmp_path / FILE).read_bytes()
    for _ in range(2):
        with pytest.raises(StoreNewer) as raised:
            Store(tmp_path)
        assert (raised.value.found, raised.value.known) == (FORMAT + 1, FORMAT)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_file_that_is_no_database_is_damaged_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"x" * 100_000)
    with pytest.raises(StoreDamaged):
        Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"x" * 100_000


@pytest.mark.parametrize("application_id", [0, 7])
def test_a_foreign_database_is_left_unchanged(tmp_path: Path, application_id: int) -> None:
    db = apsw.Connection(str(tmp_path / FILE))
    db.execute("create table theirs (x)")
    db.pragma("application_id", application_id)
    if application_id:
        db.pragma("user_version", FORMAT)
    db.close()
    with pytest.raises(StoreDamaged, match="not a server's store"):
        Store(tmp_path)
    db = apsw.Connection(str(tmp_path / FILE))
    assert [name for (name,) in db.execute("select name from sqlite_schema")] == ["theirs"]
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update topic set open_log = 99",
        "update topic set history = 'x'",
        "update subscription set backlog = '[[1]]'",
        "delete from log",
    ],
)
def test_rows_that_contradict_each_other_are_damage(store: Store, statement: str) -> None:
    apply(store, *TOPIC)
    store.db.execute(statement)
    with pytest.raises(StoreDamaged):
        list(store.topics())


def test_a_truncated_file_is_damage_not_an_empty_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    apply(store, *TOPIC, *[batch(offset, size=MIB // 4) for offset in range(1, 20)])
    store.close()
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate(MIB)

    def read() -> None:
        store = Store(tmp_path)
        try:
            for topic in store.topics():
                list(store.reader.batches(topic.open.number, 1, 20))
        finally:
            store.close()

    with pytest.raises((StoreDamaged, apsw.CorruptError)):
        read()


def test_a_store_killed_on_a_full_disk_opens_on_the_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(apsw.Connection):
        """The file has no room for what the write-ahead log holds."""

        def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
            if mode != apsw.SQLITE_CHECKPOINT_NOOP:
                raise apsw.FullError("database or disk is full")
            return super().wal_checkpoint(dbname, mode)

    store = Store(tmp_path / "a")
    with store.guarded():
        store.apply([c.BatchAppended(1, 1, 1, 1, 1, 9, 5, 0, b"x" * 100_000)])
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    monkeypatch.setattr(apsw, "Connection", Full)
    found = Store(tmp_path / "b")
    (batch,) = found.reader.batches(1, 1, 2)
    assert batch.body == b"x" * 100_000
    found.close()


def test_an_unwritable_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Store(tmp_path / "file")


def test_commits_are_synced_and_the_loop_never_checkpoints(store: Store) -> None:
    pragmas = {
        name: store.db.pragma(name) for name in ("journal_mode", "synchronous", "wal_autocheckpoint", "page_size")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0, "page_size": 16384}


def test_damage_in_a_given_log_does_not_repeat_its_deletion(stage: Stage) -> None:
    stage.put("t", 1)
    stage.put("t", 2, previous=1)
    topic = stage.core.state.topics["t"]
    log = topic.open.number
    with stage.store.guarded():
        stage.store.apply([c.BatchQuarantined(log, 1), c.TopicGiven(topic.number, "s2 tcp://127.0.0.1:1")])
    assert stage.store.discarded() == [log]
    with stage.store.guarded():
        stage.store.apply([c.BatchesDiscarded(log, 3, True)])
    assert stage.store.db.execute("select count(*) from batch").get == 1  # Its pages may be another's: it stays.
    assert stage.store.discarded() == []


def test_a_batch_set_aside_permanently_stays_so_after_an_undone_loop(stage: Stage) -> None:
    stage.put("t", 1)
    log = stage.core.state.topics["t"].open.number
    with stage.store.guarded():
        stage.store.apply([c.BatchQuarantined(log, 1)])
    known = set(stage.store.reader.damaged)
    stage.store.begin()
    stage.store.roll_back()
    assert stage.store.reader.damaged == known != set()


def test_a_loaded_store_forgets_logs_whose_numbers_it_reuses(store: Store) -> None:
    """A standby takes over in the process that wrote the old log, and read it."""
    apply(store, c.LogOpened(1, A, 0, c.LogState.INCOMING), batch(1, 3))
    apply(store, c.BatchesDiscarded(1, 4, True))
    assert load(store).next_log == 1
    apply(store, c.LogOpened(1, B, 0, c.LogState.INCOMING), c.StageOpened(1, 1, 1, 1, "a", 1))
    apply(store, c.PieceStaged(1, 1, 0, 3, 7, 1, b"another"), c.BatchPublished(1, 1, 3, 1, 1, 9, 7, 0, 1))
    (found,) = store.reader.batches(1, 1, 4)
    assert (found.stamp, found.body) == (9, b"another")


def test_a_log_is_not_given_the_number_of_one_that_left_a_damaged_batch(store: Store) -> None:
    apply(store, c.LogOpened(4, A, 0, c.LogState.INCOMING), batch(1, 3, log=4), c.BatchQuarantined(4, 1))
    apply(store, c.BatchesDiscarded(4, 4, True))
    assert store.db.execute("select count(*) from log").get == 0
    assert load(store).next_log == 5
