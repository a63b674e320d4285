"""The records that one pass of compaction may remove: among those that the history shows, and none that is needed.

The rules are those of docs/explanation/compaction.md, KL2, KL3, KL4, KL5 and KL6.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol import Outcome, Put, Read, Records, encode_batch
from pubsub.protocol.names import EARLIEST
from pubsub.protocol.records import Run
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.compacted import Thinned
from pubsub.server.topic.consumers import pattern_key
from pubsub.server.topic.delivery import collect
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import cursor_at
from pubsub.server.upkeep import stretches
from tests.server.stage import STORE, Stage
from tests.server.test_compaction import intact, put, shown
from tests.server.test_patterns import row, tell
from tests.server.test_report import ask
from tests.server.test_settings import configure


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stage]:
    """A server that lets a record go after some seconds."""
    stage = Stage(tmp_path, retention_hold_seconds=8.0, skew_seconds=0.0)
    yield stage
    stage.close()


def test_a_record_that_the_history_does_not_show_supersedes_none(small: Stage) -> None:
    configure(small, keep="latest")
    put(small, 1, ("a", "shown"))
    assert small.put("t", 1, [b"hidden"], keys=[b"a"], sender="carol").outcome is Outcome.SUCCESS
    put(small, 2, ("z", "end"))
    state = small.core.state
    topic = state.topics["t"]
    carol = next(number for number, name in enumerate(state.publishers.names) if name.startswith("carol/"))
    number = state.new_watermark()
    topic.watermarks = {number: {carol: 1}}
    topic.history = (Span(topic.open.id, 1, None, watermark=number),)
    small.sleep(200)
    assert state.counters["compactions"]
    assert shown(small) == [("a", "shown"), ("z", "end")]


def test_a_tombstone_stays_while_an_earlier_record_of_its_key_stays(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    small.subscribe("bob", "t", 5)
    put(small, 1, ("a", "1"))
    put(small, 2, ("a", ""))
    put(small, 3, ("z", "end"))
    topic = small.core.state.topics["t"]
    cursor = topic.subscriptions["bob"].cursor
    cursor.backlog = (Span(topic.open.id, 1, 2),)  # It is to receive the value alone.
    small.sleep(9_000)
    assert shown(small) == [("a", "1"), ("a", ""), ("z", "end")]
    assert topic.not_let_go == "subscriber bob"
    cursor.backlog = ()
    small.sleep(9_000)
    assert shown(small) == [("z", "end")]


def test_a_subscriber_to_a_pattern_receives_what_was_put_since(small: Stage) -> None:
    configure(small, "orders.eu", keep="latest")
    tell(small, row(small))
    for counter in range(1, 4):
        put(small, counter, ("a", str(counter)), topic="orders.eu")
    small.sleep(200)
    topic = small.core.state.topics["orders.eu"]
    assert topic.subscriptions[pattern_key("billing", "orders.>")].on
    assert len(shown(small, "orders.eu")) == 3
    assert topic.not_let_go.startswith("subscriber ")


def test_without_the_patterns_of_enough_proxies_nothing_goes(small: Stage) -> None:
    configure(small, keep="latest")
    small.patterns = "f" * 16
    for counter in range(1, 4):
        put(small, counter, ("a", str(counter)))
    small.sleep(200)
    assert len(shown(small)) == 3


@pytest.mark.parametrize("records", [1, 10_000])
def test_parts_join_over_records_that_are_there(small: Stage, records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCH_RECORDS", records)
    topic = _two_parts(small, lost=False)
    (part,) = topic.compacted[topic.open.id]
    assert part == Thinned(2, 5, 1, part.freed)
    intact(small)


@pytest.mark.parametrize("records", [1, 10_000])
def test_parts_do_not_join_over_a_row_that_was_lost(
    small: Stage, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH_RECORDS", records)
    topic = _two_parts(small, lost=True)
    assert [(one.low, one.high, one.kept) for one in topic.compacted[topic.open.id]] == [(2, 3, 0), (4, 5, 0)]
    cursor = cursor_at(topic, EARLIEST, 0, 0, small.core.state.reader)
    assert cursor is not None
    spans, lost = cursor.backlog, []
    for _ in range(9):
        answer = collect(topic, spans, small.core.state.reader, small.core.state.publishers.names, 1, 100_000)
        if answer.outcome is Outcome.LOST:
            lost.append((answer.first[1], answer.last[1]))
        rest = topic.reading(type(cursor)(0, cursor.acknowledged, spans), answer.last)
        if answer.outcome is Outcome.EMPTY or rest is None:
            break
        spans = rest
    assert lost == [(3, 3)]


def _two_parts(stage: Stage, *, lost: bool):  # type: ignore[no-untyped-def]
    """Offsets 2 and 4 go; offset 3 stays, or its row has been lost."""
    configure(stage, keep="latest")
    for counter, (key, body) in enumerate([("x", ""), ("a", "1"), ("b", "1"), ("c", "1"), ("c", "2"), ("a", "2")], 1):
        put(stage, counter, (key, body or "1"))
    put(stage, 7, ("z", "end"))
    if lost:
        log = stage.core.state.topics["t"].open.number
        stage.store.db.execute("delete from batch where key = ?", (log << 40 | 3,))
        stage.restart()
    stage.sleep(200)
    return stage.core.state.topics["t"]


def test_the_report_counts_what_is_left_and_says_how_long_a_subscriber_holds_the_rest(small: Stage) -> None:
    configure(small, keep="latest")
    counter = put(small, 1, ("x", "1"))
    for number in range(3):
        counter = put(small, counter, ("a", f"{number}" * 1_000))
    put(small, counter, ("z", "end"))
    small.subscribe("bob", "t", 5)
    small.sleep(200)
    found = ask(small)["topics"]["t"]
    assert (found["records"], found["superseded_seconds"], found["not_let_go"]) == (3, None, "")
    assert 1_000 < found["kept_bytes"] < 1_300
    assert len(shown(small)) == 3
    times = json.loads(bytes(small.ask(Read("ops", "t", after=None, start="earliest", times=True)).body))
    assert (times["records"], times["bytes"]) == (3, found["kept_bytes"])
    put(small, counter + 1, ("x", "2"))
    put(small, counter + 2, ("x", "3"))
    put(small, counter + 3, ("z", "end"))
    small.sleep(4_000)
    found = ask(small)["topics"]["t"]
    assert found["not_let_go"] == "subscriber bob"
    assert 3_900 < found["superseded_seconds"] <= 4_010


def test_what_stays_of_a_delayed_batch_names_its_publisher_and_counters(small: Stage) -> None:
    configure(small, keep="latest")
    put(small, 1, ("x", "1"))
    due = small.core.state.stamps.clock(small.now) + 3 * MICROSECONDS
    body = encode_batch([b"1", b"2", b"3"], [b"a", b"b", b"c"], due=due)
    assert small.ask(Put("alice", "t", 2, STORE, 3, 1, crc32(body), body=body)).outcome is Outcome.SUCCESS
    small.sleep(5)
    put(small, 5, ("b", "new"))
    put(small, 6, ("z", "end"))
    small.sleep(200)
    assert shown(small) == [("x", "1"), ("a", "1"), ("c", "3"), ("b", "new"), ("z", "end")]
    topic = small.core.state.topics["t"]
    cursor = cursor_at(topic, EARLIEST, 0, 0, small.core.state.reader)
    assert cursor is not None
    names = small.core.state.publishers.names
    answer = collect(topic, cursor.backlog, small.core.state.reader, names, 99, 100_000)
    runs: list[Run] = Records(answer.body).runs
    assert [(run.put_by, run.put_as, len(run.ends)) for run in runs if run.put_by] == [
        (f"alice/{STORE}", 2, 1),
        (f"alice/{STORE}", 4, 1),
    ]
    intact(small)


# A store with a damaged row of its own


LOG = 3


def _rows(store: Store) -> list[tuple[int, int, int, bytes | None]]:
    found = store.reader.batches(LOG, 1, 100)
    return [(one.offset, one.count, one.counter, None if one.body is None else bytes(one.body)) for one in found]


@pytest.mark.parametrize("kept", [True, False])
def test_a_standby_with_a_damaged_batch_of_its_own_ends_with_the_same_records(tmp_path: Path, *, kept: bool) -> None:
    one, two = encode_batch([b"a"], [b"k"]), encode_batch([b"b", b"c"], [b"k", b"l"])
    batches: list[c.Change] = [
        c.BatchAppended(LOG, 1, 1, 1, 1, 9, crc32(one), 0, one),
        c.BatchAppended(LOG, 2, 2, 1, 2, 9, crc32(two), len(one), two),
        c.BatchAppended(LOG, 4, 1, 1, 4, 9, crc32(one), len(one) + len(two), one),
    ]
    stays: list[c.Change] = [c.BatchKept(LOG, 2, 1, 1, 2, 9, crc32(one), len(one), one)] if kept else []
    gone = c.LogCompacted(LOG, (2,), (Thinned(3 if kept else 2, 4, 0, 5),))
    seen = []
    for name in ("primary", "standby"):
        store = Store(tmp_path / name)
        with store.guarded():
            store.apply([c.LogOpened(LOG, "a" * 16, 1), *batches])
        if name == "standby":
            with store.guarded():
                store.apply([c.BatchQuarantined(LOG, 2)])
        with store.guarded():
            store.apply([gone, *stays])
        seen.append(_rows(store))
        store.close()
        again = Store(tmp_path / name)
        assert _rows(again) == seen[-1]
        again.close()
    assert seen[0] == seen[1]
    assert [row[:2] for row in seen[0]] == ([(1, 1), (2, 1), (4, 1)] if kept else [(1, 1), (4, 1)])
