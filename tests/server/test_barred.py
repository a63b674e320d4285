"""Deletions that a damaged page is in the way of: the rest is deleted, in a transaction that can be committed.

The rules are those of docs/explanation/stores.md, S5 and S7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pubsub.base.limits import OFFSET_BITS
from pubsub.errors import StoreDamaged
from pubsub.server.storage.barred import Barred
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c

PAGE = 16_384
LOG = 7


@pytest.fixture
def rows() -> Iterator[apsw.Connection]:
    """A table of batches with the keys 1 to 9."""
    db = apsw.Connection(":memory:")
    db.execute("create table batch (key integer primary key)")
    db.executemany("insert into batch values (?)", [(key,) for key in range(1, 10)])
    yield db
    db.close()


def test_barred_ranges_are_left_out_of_the_pieces(rows: apsw.Connection) -> None:
    left_out = Barred(rows)
    assert list(left_out.pieces(0, 100)) == [(0, 100)]
    left_out.bar(10, 20)
    left_out.bar(40, 50)
    left_out.bar(15, 30)
    assert list(left_out.pieces(0, 100)) == [(0, 10), (30, 40), (50, 100)]
    assert list(left_out.pieces(12, 45)) == [(30, 40)]
    assert list(left_out.pieces(5, 8)) == [(5, 8)]
    assert list(left_out.pieces(16, 18)) == []


def test_a_range_that_can_be_read_and_not_deleted_is_tried_key_by_key_in_this_transaction(
    rows: apsw.Connection,
) -> None:
    left_out = Barred(rows)
    left_out.look(3, 8)
    assert list(left_out.pieces(1, 9)) == [(1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]
    left_out.look(5, 6)
    assert (5, 6) not in left_out.pieces(1, 9)
    left_out.committed()
    assert list(left_out.pieces(1, 9)) == [(1, 5), (6, 9)]


def test_each_look_at_a_damaged_page_leaves_more_out(rows: apsw.Connection) -> None:
    left_out = Barred(rows)
    tried = 0
    while pieces := list(left_out.pieces(0, 20)):
        left_out.look(*pieces[0])
        tried += 1
    assert tried < 20


def batch(offset: int, log: int = LOG, size: int = 900) -> c.BatchAppended:
    return c.BatchAppended(log, offset, 1, 1, offset, 9, 5, 0, bytes([log]) * size)


def filled(directory: Path) -> list[int]:
    """A store with 100 batches of one log, and the leaves that they lie on, in order."""
    store = Store(directory)
    with store.guarded():
        store.apply([batch(offset) for offset in range(1, 101)] + [batch(1, LOG + 1)])
    store.close()
    db = apsw.Connection(str(directory / FILE))
    try:
        return [
            number
            for number, kind in db.execute("select pageno, pagetype from dbstat where name = 'batch' order by path")
            if kind == "leaf"
        ]
    finally:
        db.close()


def offsets(store: Store, low: int, high: int) -> list[int]:
    base = LOG << OFFSET_BITS
    return [row.offset for row in store.reader._stored(base | low, base | high)]


@pytest.mark.parametrize("singly", [1, 64])
def test_a_trim_over_a_damaged_page_deletes_the_rows_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, singly: int
) -> None:
    monkeypatch.setattr("pubsub.server.storage.applying.SINGLY_MAX", singly)
    leaves = filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((leaves[2] - 1) * PAGE)
        file.write(b"\xff" * 8)
    store = Store(tmp_path)
    store.write([c.LogTrimmed(LOG, 96, 101, 0), batch(2, LOG + 1)])
    store.write([c.LogTrimmed(LOG, 98, 101, 0), batch(3, LOG + 1)])
    left = offsets(store, 60 if singly > 1 else 96, 101)
    assert left[-3:] == [98, 99, 100]
    assert len(left) < 12 or singly == 1
    others = store.db.execute("select key & 255 from batch where key > ?", ((LOG + 1) << OFFSET_BITS,))
    assert [key for (key,) in others] == [1, 2, 3]
    store.close()
    store = Store(tmp_path)
    assert offsets(store, 98, 101) == [98, 99, 100]
    store.close()


def test_pages_of_a_damaged_batch_are_not_copied_and_the_rest_is_committed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.guarded():
        store.apply([batch(1, size=50_000), batch(2)])
    store.close()
    raw = (tmp_path / FILE).read_bytes()
    page = next(at for at in range(0, len(raw), PAGE) if raw[at + 100 : at + 9_000] == bytes([LOG]) * 8_900)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(page)
        file.write(struct.pack(">I", 1 << 30))
    store = Store(tmp_path)
    store.write([c.BatchQuarantined(LOG, 1), batch(3)])
    assert [key & 0xFF for (key,) in store.db.execute("select key from batch")] == [1, 2, 3]
    assert store.reader.damaged == {LOG << OFFSET_BITS | 1}
    store.close()


def test_a_transaction_that_met_a_damaged_page_cannot_be_committed(tmp_path: Path) -> None:
    """Why all this is: where SQLite takes such a COMMIT one day, deletions may use savepoints again."""
    leaves = filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((leaves[2] - 1) * PAGE)
        file.write(b"\xff" * 8)
    store = Store(tmp_path)
    store.begin()
    store.apply([batch(2, LOG + 1)])
    store.db.execute("savepoint tried")
    with pytest.raises(apsw.CorruptError):
        store.db.execute("select count(body) from batch").fetchall()
    store.db.execute("rollback to tried")
    with pytest.raises(apsw.CorruptError):
        store.commit()
    store.roll_back()
    store.close()


def test_damage_is_an_error_without_a_second_try(tmp_path: Path) -> None:
    leaves = filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((leaves[2] - 1) * PAGE)
        file.write(b"\xff" * 8)
    store = Store(tmp_path)
    with pytest.raises(StoreDamaged), store.guarded():
        store.apply([c.LogTrimmed(LOG, 96, 101, 0)])
    store.close()


def swap_keys(directory: Path, page: int) -> None:
    """Have one row of a page say a key that lies before all others: its key's highest byte is gone."""
    with (directory / FILE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        raw = file.read(PAGE)
        pointers = struct.unpack(">3H", raw[8:14])
        at = pointers[2] + 2  # Behind the length of the row, two bytes here; the key has six.
        assert raw[at] & 0x80
        file.seek((page - 1) * PAGE + at)
        file.write(b"\x80")


def test_nothing_is_written_beside_rows_that_are_out_of_order(tmp_path: Path) -> None:
    leaves = filled(tmp_path)
    swap_keys(tmp_path, leaves[2])
    store = Store(tmp_path)
    before = store.db.execute("select count(*) from batch").fetchall()
    store.write([c.LogTrimmed(LOG, 60, 101, 0)])
    assert store.db.execute("select count(*) from batch").fetchall() == before
    store.write([batch(101)])  # Three pages further on.
    assert offsets(store, 100, 102) == [100, 101]
    store.close()


def test_a_log_that_ends_beside_rows_that_are_out_of_order_is_not_appended_to(tmp_path: Path) -> None:
    leaves = filled(tmp_path)
    swap_keys(tmp_path, leaves[-1])
    store = Store(tmp_path)
    with pytest.raises(StoreDamaged):
        store.write([batch(101)])
    assert store.failed() == batch(101)
    store.close()
