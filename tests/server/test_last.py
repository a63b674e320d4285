"""The place of the last N records, against a count of single records in a real store."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from pubsub.server.storage.reader import Reader
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic import shown
from pubsub.server.topic.compacted import add
from pubsub.server.topic.last import Place, last
from pubsub.server.topic.shown import times
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.topic import Log, Topic

A, B = "a" * 16, "b" * 16


class Record(NamedTuple):
    """A stored record; `stamp` and `begin` are those of its batch."""

    span: int
    offset: int
    begin: int
    stamp: int


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def filled(store: Store, number: int, log: Log, chance: random.Random, publishers: int) -> list[c.BatchAppended]:
    """Fill a log with batches of one to four records by several publishers."""
    counters = dict.fromkeys(range(1, publishers + 1), 1)
    rows: list[c.BatchAppended] = []
    for _ in range(chance.randrange(1, 60)):
        count, publisher, size = chance.randrange(1, 5), chance.randrange(1, publishers + 1), chance.randrange(1, 9)
        counter, stamp = counters[publisher], 10 * (len(rows) + 1)
        rows.append(c.BatchAppended(number, log.end, count, publisher, counter, stamp, 0, log.total, bytes(size)))
        counters[publisher] += count
        log.end, log.total = log.end + count, log.total + size
    store.apply(rows)
    return rows


def thin(store: Store, topic: Topic, log: Log, rows: list[c.BatchAppended], chance: random.Random) -> None:
    """Remove some batches, as compaction does."""
    parts = topic.compacted.get(log.id, ())
    for row in [row for row in rows if chance.random() < 0.4]:
        parts = add(parts, row.offset, row.offset + row.count, len(row.body or b""))
        store.db.execute("delete from batch where key = ?", (log.number << 40 | row.offset,))
        rows.remove(row)
    if parts:
        topic.compacted = {log.id: parts}


def stored(topic: Topic, spans: Sequence[Span], rows: dict[str, list[c.BatchAppended]]) -> list[Record]:
    """Look at each record by itself."""
    out = []
    for index, span in enumerate(spans):
        counters = topic.watermarks.get(span.watermark, {})
        for row in rows[span.log]:
            for number in range(row.count):
                offset = row.offset + number
                seen = row.counter + number > counters.get(row.publisher, 0) and row.stamp > span.since
                if seen and span.holds(offset):
                    out.append(Record(index, offset, row.offset, row.stamp))
    return out


def history(store: Store, chance: random.Random) -> tuple[Topic, tuple[Span, ...], list[Record]]:
    closed, log = Log(1, A), Log(2, B)
    topic = Topic(1, "t", log, {A: closed, B: log})
    rows = {A: filled(store, 1, closed, chance, 3), B: filled(store, 2, log, chance, 2)}
    if chance.random() < 0.5:
        thin(store, topic, log, rows[B], chance)
    topic.watermarks = {7: {publisher: chance.randrange(40) for publisher in (1, 2)}}
    low, high = sorted(chance.randrange(1, closed.end + 1) for _ in range(2))
    since = chance.choice((0, 0, chance.randrange(300)))
    spans = (
        Span(A, low, high, chance.choice((0, 7)), since),
        Span(B, chance.randrange(1, log.end + 1), since=chance.choice((0, 55))),
    )
    return topic, spans, stored(topic, spans, rows)


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("rows", [4, shown.ROWS])
def test_the_last_records_are_those_that_a_look_at_each_finds(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int, rows: int
) -> None:
    monkeypatch.setattr(shown, "ROWS", rows)
    chance = random.Random(seed)
    topic, spans, records = history(store, chance)
    for wanted in (1, 2, 5, 17, 60, 1_000):
        place = last(topic, spans, store.reader, wanted)
        if not records:
            assert place is None
            continue
        assert place is not None
        first = records[max(0, len(records) - wanted)]
        begins = [one for one in records if (one.span, one.offset) >= place[:2]]
        assert begins[0] == first, wanted
        assert place.stamp == first.stamp


@pytest.mark.parametrize("seed", range(100))
def test_a_span_with_a_watermark_counts_what_a_look_at_each_finds(store: Store, seed: int) -> None:
    topic, spans, _ = history(store, random.Random(seed))
    span = Span(A, spans[0].low, spans[0].high, 7, spans[0].since)
    rows = [
        c.BatchAppended(1, key & (1 << 40) - 1, *rest, None)
        for key, *rest in store.db.execute(
            "select key, count, publisher, counter, stamp, checksum, total from batch where key < ? order by key",
            (2 << 40,),
        )
    ]
    records = stored(topic, [span], {A: rows})
    found = times(topic, [span], store.reader)
    assert found.exact
    assert found.records == len(records)
    assert (found.oldest, found.newest) == (
        (min(one.stamp for one in records), max(one.stamp for one in records)) if records else (None, None)
    )
    ends = {row.offset: following.total for row, following in pairwise(rows)}
    sizes = {row.offset: ends.get(row.offset, topic.logs[A].total) - row.total for row in rows}
    assert found.bytes == sum(sizes[begin] for begin in {one.begin for one in records})


def test_few_rows_are_read_for_many_records(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(1, A, end=2_001, total=2_000)
    topic = Topic(1, "t", log, {A: log})
    store.apply([c.BatchAppended(1, at, 1, 1, at, at, 0, at - 1, b"x") for at in range(1, 2_001)])
    read: list[int] = []
    original = Reader._rows

    def counted(self: Reader, statement: str, bind: tuple[object, ...]) -> list[object]:
        read.append(len(found := original(self, statement, bind)))
        return found

    monkeypatch.setattr(Reader, "_rows", counted)
    assert last(topic, [Span(A, 1)], store.reader, 1_500) == Place(0, 501, 501)
    assert sum(read) < 10
    read.clear()
    topic.watermarks = {7: {1: 100}}
    closed = [Span(A, 1, 2_001, 7)]
    assert last(topic, closed, store.reader, 1_500) == Place(0, 501, 501)
    assert last(topic, closed, store.reader, 5_000) == Place(0, 101, 101)
    assert max(read) <= shown.ROWS


def test_the_rows_of_spans_with_watermarks_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown.Budget.__init__, "__defaults__", (50,))
    log = Log(1, A, end=201, total=200)
    topic = Topic(1, "t", log, {A: log}, watermarks={7: {1: 1}})
    store.apply([c.BatchAppended(1, at, 1, 1, at, at, 0, at - 1, b"x") for at in range(1, 201)])
    place = last(topic, [Span(A, 1, 201, 7)], store.reader, 100)
    assert place is not None
    assert place.offset == 151, "fewer than wanted"
    assert not times(topic, [Span(A, 1, 201, 7)], store.reader).exact


@pytest.mark.parametrize(("rows", "short"), [(50, True), (500, False)])
def test_a_start_that_reads_the_most_rows_tells_that_there_may_be_fewer_records(
    store: Store, monkeypatch: pytest.MonkeyPatch, rows: int, short: bool
) -> None:
    monkeypatch.setattr(shown.Budget.__init__, "__defaults__", (rows,))
    log, closed = Log(1, A, end=201, total=200), Span(A, 1, 201, 7)
    other = Log(2, B)
    topic = Topic(1, "t", other, {A: log, B: other}, history=(closed, Span(B, 1)), watermarks={7: {1: 150}})
    store.apply([c.BatchAppended(1, at, 1, 1, at, at, 0, at - 1, b"x") for at in range(1, 201)])
    cursor = cursor_at(topic, "last:100", 1_000, 0, store.reader)
    assert cursor is not None
    assert cursor.short is short
    left_out = cursor_at(topic, "last:10", 1_000, 0, store.reader)
    assert left_out is not None
    assert not left_out.short


def test_the_rows_without_bytes_at_the_begin_of_a_log_are_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply([c.BatchAppended(1, at, 1, 1, at, at, 0, at - 1, b"x" if at > 40 else None) for at in range(1, 101)])
    begins: list[int] = []
    original = Reader._row

    def noted(self: Reader, statement: str, bind: tuple[int, ...]) -> object:
        begins.append(bind[0] & (1 << 40) - 1)
        return original(self, statement, bind)

    monkeypatch.setattr(Reader, "_row", noted)
    reader = store.reader
    assert [reader.first_with_body(1, low, 101) for low in (1, 1, 20, 41, 60, 1)] == [41, 41, 41, 41, 60, 41]
    assert begins == [1, 41, 41, 41, 60, 41]
    reader.damaged.add(1 << 40 | 30)
    reader.begin()
    reader.damaged.add(1 << 40 | 30)
    assert [reader.first_with_body(1, low, 101) for low in (1, 1, 31)] == [30, 30, 41], "told as lost"
    reader.damaged.clear()
    store.db.execute("update batch set body = x'00' where key = ?", (1 << 40 | 30,))
    assert reader.first_with_body(1, 1, 101) == 30, "repaired"
