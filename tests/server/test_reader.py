"""Reading stored batches, from memory and from the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.server.storage import reader as reader_module
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c

SPANS = [(1, 3), (4, 1), (5, 5), (10, 2)]
"""Offset and count of the batches of log 1."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    with store.guarded():
        store.apply([row(offset, count) for offset, count in SPANS])
        store.apply([row(1, 1, log=2), row(1, 1, log=3)])
    yield store
    store.close()


def row(offset: int, count: int, log: int = 1, size: int = 10) -> c.BatchAppended:
    return c.BatchAppended(log, offset, count, 1, offset, 100 + offset, 0, 10 * offset, b"%d" % (offset % 10) * size)


def forget(store: Store) -> None:
    """As after a start: nothing is in memory."""
    for key in list(store.reader._cache):
        store.reader.drop(key)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(1, 12, [1, 4, 5, 10]), (3, 4, [1]), (3, 5, [1, 4]), (7, 10, [5]), (9, 11, [5, 10]), (12, 99, []), (4, 4, [])],
)
def test_the_batches_that_hold_a_range_come_in_order(
    store: Store, low: int, high: int, found: list[int], warm: bool
) -> None:
    if not warm:
        forget(store)
    for _ in range(2):
        assert [batch.offset for batch in store.reader.batches(1, low, high)] == found


def test_a_range_partly_in_memory_is_read_to_its_end(store: Store) -> None:
    for kept in range(len(SPANS)):
        forget(store)
        list(store.reader.batches(1, SPANS[kept][0], SPANS[kept][0] + 1))
        assert [batch.offset for batch in store.reader.batches(1, 1, 12)] == [1, 4, 5, 10]
        held = store.reader._cache.values()
        assert store.reader._cache_bytes == sum(300 + len(batch.body or b"") for batch in held), "each counts once"


def test_memory_holds_a_bounded_number_of_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "CACHE_BYTES_MAX", 5_000)
    with store.guarded():
        store.apply([row(offset, 1, log=9) for offset in range(1, 100)])
    assert store.reader._cache_bytes <= 5_000
    assert store.reader._cache_bytes == sum(300 + len(batch.body or b"") for batch in store.reader._cache.values())
    assert len(list(store.reader.batches(9, 1, 100))) == 99
    assert store.reader._cache_bytes <= 5_000
    with store.guarded():
        store.apply([row(200, 1, log=9, size=50_000)])
    assert store.reader._cache_bytes == 0
    forget(store)
    assert store.reader._cache_bytes == 0


def test_reading_large_batches_does_not_read_far_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "PIECE_BYTES_MAX", 1_000)
    with store.guarded():
        store.apply([row(offset, 1, log=9, size=600) for offset in range(1, 40)])
    forget(store)
    batches = store.reader.batches(9, 1, 40)
    next(batches)
    assert len(store.reader._cache) == 2
    assert len(store.reader._piece(9 << 40, 10 << 40, 100)) == 2
    assert [batch.offset for batch in batches] == list(range(2, 40))


def test_batches_read_ahead_are_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.guarded():
        store.apply([row(offset, 1, log=9, size=600) for offset in range(1, 13)])
    forget(store)
    reader, pieces = store.reader, []
    piece = reader._piece
    monkeypatch.setattr(reader, "_piece", lambda *range_: pieces.append(range_) or piece(*range_))
    for offset in range(1, 13):
        assert next(reader.batches(9, offset, 13)).offset == offset
    assert len(pieces) == 1


def test_a_walk_that_is_left_in_the_middle_keeps_no_cursor_open(store: Store) -> None:
    forget(store)
    for _ in store.reader.batches(1, 1, 12):
        break
    with store.guarded():
        store.apply([c.LogTrimmed(1, 12, 12, 0)])
    assert store.db.wal_checkpoint() is not None


def test_the_newest_batch_at_or_below_an_offset_is_found(store: Store) -> None:
    newest = store.reader.newest
    assert [batch[0] if (batch := newest(1, 1, offset)) else None for offset in (1, 3, 4, 9, 10, 99)] == [
        *(1, 1, 4, 5, 10, 10),
    ]
    assert newest(1, 2, 3) is None
    assert newest(7, 1, 99) is None
    assert newest(1, 1, 6) == (5, 5, 105, 50)


def test_stamps_and_totals_are_read(store: Store) -> None:
    assert store.reader.stamps(1, 4, 2) == [(4, 1, 104, 40), (5, 5, 105, 50)]
    for _ in range(2):
        assert [store.reader.total_before(1, offset) for offset in (1, 2, 9, 11, 12)] == [10, 10, 50, 100, None]
        forget(store)


def test_ranges_of_logs_do_not_overlap(store: Store) -> None:
    assert [batch.offset for batch in store.reader.batches(1, 1, 1 << 40)] == [1, 4, 5, 10]
    assert len(store.reader.stamps(1, 1, 100)) == 4


def test_the_first_batch_with_bytes_is_found_behind_those_at_the_begin_and_before_gaps(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.guarded():
        store.apply([c.LogOpened(1, "a" * 16, 1), c.PublisherSeen(1, f"alice/{'b' * 16}")])
        store.apply([c.BatchAppended(1, n, 1, 1, n, 9, 5, n * 8, b"x" * 8) for n in range(1, 11)])
        store.apply([c.BodiesDropped(1, 1, 4), c.BodiesDropped(1, 6, 9), c.BatchQuarantined(1, 2)])
    reader = store.reader
    found = [reader.first_with_body(1, low, 11) for low in (1, 3, 4, 6, 9, 11)]
    assert found == [2, 4, 4, 9, 9, 11]
    assert reader.first_with_body(1, 6, 8) == 8
    assert reader.first_with_body(2, 1, 5) == 5
    store.close()
