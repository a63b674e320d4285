"""Compaction: of each key the last record stays, and what went is known to be no loss.

The rules are those of docs/explanation/compaction.md, KL1, KL2, KL3, KL4, KL5, KL6, KL7, KL8 and KL10.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from pubsub.protocol import Outcome, Records
from pubsub.protocol.headers import encode_headers
from pubsub.protocol.names import EARLIEST
from pubsub.protocol.time_to_live import TTL, ttl_value
from pubsub.protocol.topic_settings import LATEST, NONE
from pubsub.server.offline.check import check
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.offline.found import Verdict
from pubsub.server.storage.store import Store
from pubsub.server.topic.compacted import Thinned, add, count_left, outside, removed, trimmed
from pubsub.server.topic.delivery import collect
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep import stretches
from tests.server.moving import Pair
from tests.server.stage import Stage
from tests.server.test_settings import configure

Shown = list[tuple[str, str]]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stage]:
    """A server that lets a record go after some seconds."""
    stage = Stage(tmp_path, retention_hold_seconds=8.0, skew_seconds=0.0)
    yield stage
    stage.close()


def put(stage: Stage, counter: int, *records: tuple[str, str], topic: str = "t") -> int:
    """Put one batch of records, each a key and a body; return the counter of the next."""
    keys, bodies = zip(*((key.encode(), body.encode()) for key, body in records), strict=True)
    assert stage.put(topic, counter, bodies, keys=keys).outcome is Outcome.SUCCESS
    return counter + len(records)


def shown(stage: Stage, topic: str = "t") -> Shown:
    """Key and body of each record that a new reader of the topic's begin receives."""
    state = stage.core.state
    held = state.topics[topic]
    cursor = cursor_at(held, EARLIEST, 0, 0, state.reader)
    assert cursor is not None
    found: Shown = []
    spans = cursor.backlog
    while True:
        answer = collect(held, spans, state.reader, state.publishers.names, 3, 100_000)
        assert answer.outcome is not Outcome.LOST, (answer.first, answer.last)
        if answer.outcome is Outcome.EMPTY:
            if answer.rest is None or answer.rest == spans:
                return found
            spans = answer.rest
            continue
        records = Records(answer.body)
        keys = [key.decode() for run in records.runs for key in run.keys or [b""] * len(run.ends)]
        found += zip(keys, (body.decode() for body in records.bodies()), strict=True)
        rest = held.reading(type(cursor)(0, cursor.acknowledged, spans), answer.last)
        assert rest is not None
        spans = rest


def intact(stage: Stage) -> None:
    """Close the store; a check finds no damage. Open it again."""
    before = shown(stage)
    stage.close()
    found = check(stage.settings.directory)
    stage.open()
    assert found.verdict is Verdict.INTACT, found.sentences()
    assert shown(stage) == before


def test_of_each_key_the_last_record_stays_and_a_record_without_a_key(small: Stage) -> None:
    configure(small, keep="latest")
    counter = put(small, 1, ("x", "1"), ("a", "1"), ("b", "1"), ("", "no key"), ("a", "2"), ("c", "1"))
    counter = put(small, counter, ("b", "2"))
    put(small, counter, ("z", "last"))
    small.sleep(5)
    assert len(shown(small)) == 8  # They are too young.
    small.sleep(200)
    expected = [("x", "1"), ("", "no key"), ("a", "2"), ("c", "1"), ("b", "2"), ("z", "last")]
    assert shown(small) == expected
    topic = small.core.state.topics["t"]
    assert topic.compacted == {topic.open.id: (Thinned(2, 4, 0, topic.compacted[topic.open.id][0].freed),)}
    intact(small)
    assert small.put("t", counter + 1).outcome is Outcome.SUCCESS
    assert small.put("t", 1, [b"1"]).outcome is Outcome.DUPLICATE


def test_the_front_of_a_log_that_keeps_nothing_goes(small: Stage) -> None:
    configure(small, keep="latest")
    for counter in range(1, 6):
        put(small, counter, ("a", str(counter)))
    small.sleep(200)
    topic = small.core.state.topics["t"]
    assert shown(small) == [("a", "5")]
    assert (topic.open.low, topic.open.end, topic.compacted) == (5, 6, {})
    assert topic.removal.let_go
    intact(small)


def test_a_subscriber_holds_the_records_that_it_has_not_acknowledged(small: Stage) -> None:
    configure(small, keep="latest")
    small.subscribe("bob", "t", 5)
    for counter in range(1, 6):
        put(small, counter, ("a", str(counter)))
    small.sleep(200)
    topic = small.core.state.topics["t"]
    assert len(shown(small)) == 5
    assert topic.not_let_go == "subscriber bob"
    assert topic.superseded_since
    answer = small.get("bob", "t", None, 5)
    assert answer.records == 5
    small.core.state.topics["t"].acknowledge("bob", (topic.open.id, 4))
    small.sleep(4_000)
    assert shown(small) == [("a", "5")]
    assert (topic.not_let_go, topic.superseded_since) == ("", 0)


def test_without_sole_ownership_nothing_goes(small: Stage) -> None:
    configure(small, keep="latest")
    small.sole_owner = False
    for counter in range(1, 6):
        put(small, counter, ("a", str(counter)))
    small.sleep(200)
    assert len(shown(small)) == 5
    assert small.core.state.topics["t"].not_let_go == "not sole owner"
    small.sole_owner = True
    small.sleep(200)
    assert shown(small) == [("a", "5")]


def test_a_tombstone_goes_when_it_is_old_and_nothing_of_its_key_is_left_before_it(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    counter = put(small, 1, ("a", "1"), ("b", "1"))
    put(small, counter, ("a", ""))
    put(small, counter + 1, ("c", "1"))
    small.sleep(600)
    assert shown(small) == [("b", "1"), ("a", ""), ("c", "1")]
    small.sleep(8_000)
    assert shown(small) == [("b", "1"), ("c", "1")]
    removal = small.core.state.topics["t"].removal
    assert (removal.tombstones, [(one.number, one.offset) for one in removal.rounds]) == (1, [(1, 3)])
    intact(small)
    assert small.core.state.topics["t"].removal == removal


def test_a_tombstone_stays_while_a_subscriber_holds_a_value_of_its_key(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    small.subscribe("bob", "t", 5)
    put(small, 1, ("a", "1"))
    topic = small.core.state.topics["t"]
    small.unsubscribe("bob", "t", 6)
    small.subscribe("bob", "t", 7)
    put(small, 2, ("a", ""))
    put(small, 3, ("c", "1"))
    topic.acknowledge("bob", (topic.open.id, 3))
    small.sleep(9_000)
    assert shown(small) == [("c", "1")]


def put_for(stage: Stage, counter: int, key: str, body: str, seconds: float) -> None:
    block = encode_headers({TTL: ttl_value(seconds)})
    assert stage.put("t", counter, [body.encode()], keys=[key.encode()], headers=[block]).outcome is Outcome.SUCCESS


def test_a_message_goes_when_its_time_to_live_has_ended_and_no_earlier_value_comes_back(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    put(small, 1, ("a", "1"), ("b", "1"))
    put_for(small, 3, "a", "2", 7_200)
    put(small, 4, ("c", "1"))
    small.sleep(7_100)
    assert shown(small) == [("b", "1"), ("a", "2"), ("c", "1")]
    small.sleep(200)  # The pass begins when the time ends, although nothing was put.
    assert shown(small) == [("b", "1"), ("c", "1")]
    assert small.core.state.topics["t"].removal.tombstones == 1
    intact(small)


def test_a_message_stays_as_long_as_a_tombstone_although_its_time_to_live_has_ended(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    put_for(small, 1, "a", "1", 1)
    put(small, 2, ("c", "1"))
    small.sleep(3_000)
    assert shown(small) == [("a", "1"), ("c", "1")]
    small.sleep(8_000)
    assert shown(small) == [("c", "1")]


def test_a_conflict_of_settings_lets_nothing_go(small: Stage) -> None:
    configure(small, keep="latest")
    topic = small.core.state.topics["t"]
    for counter in range(1, 4):
        put(small, counter, ("a", str(counter)))
    topic.settings = replace(topic.settings, keep=(LATEST, NONE))
    small.sleep(300)
    assert len(shown(small)) == 3


@pytest.mark.parametrize("seed", range(12))
def test_any_log_keeps_the_last_record_of_each_key_with_small_limits(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of several publishers, restarts and limits of keys, records and bytes do not change what is shown."""
    random = Random(seed)
    monkeypatch.setattr(stretches, "STRETCH_RECORDS", random.choice((1, 5, 10_000)))
    monkeypatch.setattr(stretches, "COMPACT_KEYS_MAX", random.choice((1, 3, 1_000)))
    stage = Stage(tmp_path, retention_hold_seconds=8.0, skew_seconds=0.0)
    configure(stage, keep="latest", tombstones="1h")
    counters = {"alice": 1, "carol": 1}
    latest: dict[str, str] = {}
    for number in range(40):
        sender = random.choice(("alice", "carol"))
        records = [
            (random.choice("abcde"), random.choice(("", "v")) and f"{number}.{index}")
            for index in range(random.randrange(1, 5))
        ]
        keys, bodies = zip(*((key.encode(), body.encode()) for key, body in records), strict=True)
        answer = stage.put("t", counters[sender], bodies, keys=keys, sender=sender, previous=counters[sender] - 1)
        assert answer.outcome is Outcome.SUCCESS
        counters[sender] += len(records)
        latest.update(records)
        stage.sleep(random.choice((0.5, 20, 400)))
        if random.random() < 0.1:
            stage.restart()
        assert _fold(shown(stage)) == {key: body for key, body in latest.items() if body}
    put(stage, 1_000_000, ("z", "end"))
    for _ in range(7):
        stage.sleep(3_000)
    found = shown(stage)
    assert _fold(found) == {key: body for key, body in {**latest, "z": "end"}.items() if body}
    assert all(body for _, body in found)
    assert len({key for key, _ in found}) == len(found)
    assert stage.core.state.counters["compactions"]
    intact(stage)
    stage.close()


def _fold(found: Shown) -> dict[str, str]:
    table: dict[str, str] = {}
    for key, body in found:
        table[key] = body
        if not body:
            del table[key]
    return table


def test_a_compacted_topic_moves_and_comes_back_from_an_export(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", retention_hold_seconds=8.0)
    giver = pair["s2"]
    configure(giver, keep="latest")
    counter = put(giver, 1, ("x", "1"), ("a", "1"), ("b", "1"))
    put(giver, counter, ("a", "2"))
    put(giver, counter + 1, ("z", "end"))
    giver.sleep(200)
    expected = [("x", "1"), ("b", "1"), ("a", "2"), ("z", "end")]
    assert shown(giver) == expected
    parts = giver.core.state.topics["t"].compacted
    pair.merge("s2", "s1")
    pair.turns()
    receiver = pair["s1"]
    assert shown(receiver) == expected
    topic = receiver.core.state.topics["t"]
    assert topic.compacted == parts
    assert topic.removal.let_go
    intact(receiver)
    assert receiver.core.state.topics["t"].compacted == parts
    receiver.close()
    export_tree(receiver.settings.directory, tmp_path / "tree")
    import_tree(tmp_path / "again", tmp_path / "tree")
    order = (next((tmp_path / "tree").glob("server_*")) / "t" / "order").read_text()
    assert "lost" not in order
    with_store = Store(tmp_path / "again")
    (again,) = with_store.topics()
    with_store.close()
    assert again.removal.let_go
    receiver.open()
    pair.close()


def test_a_failed_commit_leaves_a_round_not_begun(small: Stage) -> None:
    configure(small, keep="latest")
    for counter in range(1, 6):
        put(small, counter, ("a", str(counter)))
    small.fail_commit = True
    small.sleep(100)
    assert len(shown(small)) == 5
    small.fail_commit = False
    small.sleep(100)
    assert shown(small) == [("a", "5")]
    intact(small)


def test_a_row_that_is_missing_elsewhere_or_a_count_that_does_not_fit_is_damage(small: Stage) -> None:
    configure(small, keep="latest")
    counter = put(small, 1, ("x", "1"), ("a", "1"), ("b", "1"), ("a", "2"))
    put(small, counter, ("z", "1"))
    put(small, counter + 1, ("y", "1"))
    small.sleep(200)
    assert len(shown(small)) == 5
    log = small.core.state.topics["t"].open.number
    small.close()
    small.open()
    small.store.db.execute("delete from batch where key = ?", (log << 40 | counter,))
    small.close()
    found = check(small.settings.directory)
    assert found.verdict is Verdict.DAMAGED
    assert found.topics[0].lost == 1
    small.open()


def test_a_batch_found_damaged_is_left_alone_and_keeps_tombstones(small: Stage) -> None:
    configure(small, keep="latest", tombstones="1h")
    put(small, 1, ("a", "1"))
    put(small, 2, ("b", "1"))
    put(small, 3, ("a", ""))
    put(small, 4, ("z", "1"))
    log = small.core.state.topics["t"].open.number
    small.store.db.execute("update batch set body = zeroblob(length(body)) where key = ?", (log << 40 | 1,))
    small.restart()
    small.sleep(9_000)
    topic: Topic = small.core.state.topics["t"]
    assert topic.removal.tombstones == 0
    keys = [offset for (offset,) in small.store.db.execute("select key & 0xffffffffff from batch order by key")]
    assert keys == [1, 2, 3, 4]


# The parts


def test_parts_count_what_is_left_and_join_while_little_is_left() -> None:
    parts = add((), 10, 12, 7)
    assert parts == (Thinned(10, 12, 0, 7),)
    parts = add(parts, 20, 21, 1)
    assert parts == (Thinned(10, 21, 8, 8),)
    parts = add(parts, 15, 16)
    assert parts == (Thinned(10, 21, 7, 8),)
    assert removed(parts) == 4
    far = add(parts, 50_000, 50_001)
    assert len(far) == 2
    assert list(outside(far, 5, 30)) == [(5, 10), (21, 30)]
    assert list(outside(far, 12, 20)) == []
    assert trimmed(far, 21) == far[1:]
    assert trimmed(parts, 12) == (Thinned(12, 21, None),)
    left = [0, 0]
    count_left(far, left, 5, 10)
    count_left(far, left, 49_999, 3)
    assert left == [5, 1]


@pytest.mark.parametrize("seed", range(20))
def test_parts_agree_with_the_set_of_offsets_that_are_left(seed: int) -> None:
    random = Random(seed)
    left, parts = set(range(1, 60)), ()
    for _ in range(25):
        low = random.choice(sorted(left))
        high = low
        while high in left and high - low < random.randrange(1, 5):
            high += 1
        high = max(high, low + 1)
        left -= set(range(low, high))
        parts = add(parts, low, high)
        for one in parts:
            assert one.kept == len([offset for offset in left if one.low <= offset < one.high])
        missing = set(range(1, 60)) - left
        covered = {offset for one in parts for offset in range(one.low, one.high)}
        assert missing <= covered
        if len(left) < 5:
            return
