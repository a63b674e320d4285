"""Starts beside a position and at the last N, and reads of a topic from a start, up to a time and across merges.

The rules are those of docs/explanation/replay.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pubsub.errors import DecodeError
from pubsub.protocol import Outcome, Position, Read, Records, Status, Subscribe, decode
from pubsub.protocol.names import Start
from pubsub.protocol.topic_settings import Amount
from pubsub.server.requests import replays
from pubsub.server.requests.replays import BEHIND_BYTES, REPLAY_BYTES_MAX, TURN_BYTES_MAX, Replays, is_far_behind
from pubsub.server.topic.settings import DEFAULTS
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.topic import Log, Topic
from tests.server.moving import Pair, put, take
from tests.server.stage import Stage
from tests.server.stage import put as put_message


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def four(stage: Stage) -> list[int]:
    """Put four records, at four times; their stamps."""
    stamps = []
    for number in range(1, 5):
        stage.now += 1
        stage.put("t", number, [b"%d" % number])
        stamps.append(stage.stamp())
    return stamps


def read(stage: Stage, after: Position | None = None, **fields: Any) -> Status:
    return stage.ask(Read("reader", "t", after, **{"records_max": 100} | fields))


def bodies(answer: Status) -> list[bytes]:
    assert answer.outcome in {Outcome.SUCCESS, Outcome.EMPTY}, answer
    return [bytes(body) for body in Records(bytes(answer.body)).bodies()] if answer.body else []


def along(stage: Stage, start: Start, **fields: Any) -> list[bytes]:
    """Read a range one record at a time, as a client does: with the token, and the `since` of each answer."""
    got: list[bytes] = []
    answer = read(stage, start=start, records_max=1, **fields)
    while answer.outcome is Outcome.SUCCESS:
        got += bodies(answer)
        goes_on = {"start": answer.since + 1} if answer.since else {}
        answer = read(stage, answer.message, history=answer.history, records_max=1, **goes_on, **fields)
    assert answer.outcome is Outcome.EMPTY, answer
    return got


def test_a_read_begins_at_each_kind_of_start(stage: Stage) -> None:
    stamps = four(stage)
    log = stage.core.state.topics["t"].open.id
    expected: list[tuple[Start, list[bytes]]] = [
        ("earliest", [b"1", b"2", b"3", b"4"]),
        ("latest", []),
        (0, [b"1", b"2", b"3", b"4"]),
        (stamps[1], [b"2", b"3", b"4"]),
        (stamps[1] + 1, [b"3", b"4"]),
        (stamps[3] + 1, []),
        ((log, 3), [b"3", b"4"]),
        ("last:1", [b"4"]),
        ("last:3", [b"2", b"3", b"4"]),
        ("last:9", [b"1", b"2", b"3", b"4"]),
    ]
    for start, records in expected:
        assert bodies(read(stage, start=start)) == along(stage, start) == records, start


def test_a_read_ends_before_a_time_or_at_a_position(stage: Stage) -> None:
    stamps = four(stage)
    log = stage.core.state.topics["t"].open.id
    assert along(stage, "earliest", before=stamps[2]) == [b"1", b"2"]
    assert along(stage, "earliest", before=stamps[2] + 1) == [b"1", b"2", b"3"]
    assert along(stage, stamps[1], before=stamps[2]) == [b"2"]
    assert along(stage, stamps[1], before=stamps[1]) == []
    assert along(stage, stamps[1], until=(log, 3)) == [b"2", b"3"]
    assert bodies(read(stage, start=(log, 3), until=(log, 2))) == []


def test_a_read_that_contradicts_itself_is_refused(stage: Stage) -> None:
    four(stage)
    log = stage.core.state.topics["t"].open.id
    stage.ask(Subscribe("reader", "t", 9, 9, name="job"))
    for fields in ({"start": 0}, {"before": 5}, {"history": log}, {"times": 1}):
        assert read(stage, name="job", **fields).outcome is Outcome.REFUSED
    for start in ("latest", "last:3", (log, 2)):
        assert read(stage, (log, 1), start=start).outcome is Outcome.REFUSED


@pytest.mark.parametrize("sole_owner", [True, False])
def test_a_read_from_a_position_that_is_not_held_names_the_oldest(stage: Stage, sole_owner: bool) -> None:
    four(stage)
    stage.sole_owner = sole_owner
    callback = stage.say(Read("reader", "t", None, start=("f" * 16, 1), records_max=1))
    stage.sleep(3)
    answer, log = stage.answered(callback), stage.core.state.topics["t"].open.id
    assert answer.outcome is (Outcome.GONE if sole_owner else Outcome.UNKNOWN)
    assert (answer.first, answer.log) == ((log, 1) if sole_owner else None, log)


def test_times_count_what_a_range_shows(stage: Stage) -> None:
    stamps = four(stage)
    log = stage.core.state.topics["t"].open.id
    facts = json.loads(bytes(read(stage, times=1).body))
    total = stage.core.state.topics["t"].open.total
    assert facts == {
        "oldest": stamps[0], "newest": stamps[3], "records": 4, "bytes": total, "exact": True,
        "first": f"{log}.1", "end": f"{log}.5",
    }  # fmt: skip
    facts = json.loads(bytes(read(stage, times=1, start=stamps[1], before=stamps[3]).body))
    assert (facts["oldest"], facts["newest"], facts["records"]) == (stamps[1], stamps[2], 2)
    assert (facts["first"], facts["end"]) == (f"{log}.2", f"{log}.4")
    facts = json.loads(bytes(read(stage, times=1, start="latest").body))
    assert (facts["oldest"], facts["newest"], facts["records"], facts["bytes"]) == (None, None, 0, 0)


def test_a_start_includes_what_was_put_in_the_same_turn(stage: Stage) -> None:
    stage.say(put_message("t", 1, [b"1", b"2"]))
    callback = stage.say(Subscribe("bob", "t", 5, 5, start="last:1"))
    other = stage.say(Subscribe("eve", "t", 5, 5, start="earliest"))
    stage.loop()
    assert {stage.answered(each).outcome for each in (callback, other)} == {Outcome.SUCCESS}
    assert take(stage, "bob", 5) == [b"2"]
    assert take(stage, "eve", 5) == [b"1", b"2"]


# After merges


def overlap(pair: Pair) -> None:
    """Alice's first record is at both, since the answer to it was lost; the others are at one server each."""
    assert put(pair["s1"], "bob", 5, 0, b"b1") == "success"
    for name in ("s1", "s2"):
        assert put(pair[name], "alice", 10, 0, b"a1") == "success"
    assert put(pair["s1"], "alice", 11, 10, b"a2") == "success"
    assert put(pair["s2"], "carl", 20, 0, b"c1") == "success"
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]


def test_the_last_records_are_those_that_the_history_shows(pair: Pair) -> None:
    overlap(pair)
    assert along(pair["s2"], "earliest") == [b"a1", b"c1", b"b1", b"a2"]
    for count, records in ((2, [b"b1", b"a2"]), (3, [b"c1", b"b1", b"a2"]), (4, [b"a1", b"c1", b"b1", b"a2"])):
        assert along(pair["s2"], f"last:{count}") == records
    facts = json.loads(bytes(read(pair["s2"], times=1).body))
    assert (facts["records"], facts["exact"]) == (4, True)


def test_a_start_at_a_position_begins_beside_it_too(pair: Pair) -> None:
    overlap(pair)
    topic = pair["s2"].core.state.topics["t"]
    given = topic.history[1]
    assert given.log != topic.open.id
    # The other log's records were put within the skew of this one.
    assert along(pair["s2"], (given.log, given.low)) == [b"a1", b"c1", b"b1", b"a2"]


def test_a_reader_of_the_side_that_comes_first_goes_on_and_the_other_one_begins_again(pair: Pair) -> None:
    for name, record in (("s1", b"x"), ("s2", b"y")):
        assert put(pair[name], "alice", 10, 0, record) == "success"
    first, second = (read(pair[name], records_max=1) for name in ("s2", "s1"))
    assert first.history != second.history
    pair.merge("s1", "s2")
    pair.turns()
    joined = pair["s2"]
    for _ in range(2):
        assert read(joined, first.message, history=first.history).outcome in {Outcome.SUCCESS, Outcome.EMPTY}
        answer = read(joined, second.message, history=second.history)
        assert (answer.outcome, answer.history) == (Outcome.AGAIN, first.history)
        joined.restart()


def test_a_reader_goes_on_after_a_move_to_an_empty_server(pair: Pair) -> None:
    assert put(pair["s1"], "alice", 10, 0, b"a1", b"a2") == "success"
    before = read(pair["s1"], records_max=1)
    pair.merge("s1", "s2")
    pair.turns()
    moved = pair["s2"]
    for _ in range(2):
        answer = read(moved, before.message, history=before.history)
        assert (bodies(answer), answer.history) == ([b"a2"], before.history)
        moved.restart()


# `since`


def test_since_is_at_least_the_age_that_is_kept() -> None:
    log = Log(1, "a" * 16)
    topic = Topic(1, "t", log, {log.id: log}, history=(Span(log.id, 1),))

    class Nothing:
        def newest(self, *_: int) -> None:
            return None

        def first_with_body(self, log: int, low: int, high: int) -> int:
            return high

        def rows_before(self, *_: int) -> list[Any]:
            return []

    def since(*keep: Amount) -> int:
        topic.in_force = replace(DEFAULTS, keep=keep)
        found = cursor_at(topic, "earliest", 1_000, 30, Nothing())  # type: ignore[arg-type]
        assert found is not None
        return found.since

    assert since(Amount(age=200)) == 770
    assert since(Amount(age=5_000)) == 0
    assert since(Amount(records=5)) == 0
    assert since(Amount()) == 0
    assert since(Amount(age=0)) == 0, "keep=none promises nothing, and lets nothing go that somebody needs"


def test_since_of_the_last_records_allows_for_the_skew(stage: Stage) -> None:
    stamps = four(stage)
    topic = stage.core.state.topics["t"]
    for now, expected in ((stamps[3] + 10_000, stamps[2] - 1), (stamps[3], stamps[3] - 5_000_000)):
        skew = 0 if expected == stamps[2] - 1 else 5_000_000
        cursor = cursor_at(topic, "last:2", now, skew, stage.core.state.reader)
        assert cursor is not None
        assert cursor.since == expected


# The pace


def test_a_reader_far_behind_has_a_pace_in_turns_with_other_work_only() -> None:
    pace = Replays()
    pace.begin(10.0)
    assert pace.next_at(10.0) is None
    pace.handed_out(TURN_BYTES_MAX)
    assert pace.next_at(10.0) == 10.0, "the next turn follows at once"
    for turn in range(100):
        pace.begin(10.0 + turn / 1_000)
        assert pace.next_at(10.0) is None, "nobody else waits"
        pace.handed_out(TURN_BYTES_MAX)
        pace.end()
    size = 0
    for turn in range(1_000):
        now = 20.0 + turn / 1_000
        pace.begin(now)
        pace.shared = True
        while pace.next_at(now) is None:
            pace.handed_out(1 << 20)
            size += 1 << 20
        pace.end()
    assert REPLAY_BYTES_MAX * 0.95 < size < REPLAY_BYTES_MAX + 2 * TURN_BYTES_MAX


def test_the_answer_that_is_too_early_names_its_time() -> None:
    pace = Replays()
    pace.begin(10.0)
    pace.shared = True
    pace.handed_out(TURN_BYTES_MAX - 1)
    pace.handed_out(1 + REPLAY_BYTES_MAX)
    pace.begin(10.0)
    pace.shared = True
    assert pace.next_at(10.0) == pytest.approx(11.0)


def test_bytes_behind_count_to_the_end_of_the_topic() -> None:
    old, log = Log(1, "a" * 16, total=10 + BEHIND_BYTES), Log(2, "b" * 16, total=100)
    topic = Topic(1, "t", log, {old.id: old, log.id: log})
    assert is_far_behind(topic, old.id, 109)
    assert not is_far_behind(topic, old.id, 110)
    assert not is_far_behind(topic, log.id, 0)


def test_old_records_wait_for_puts_and_all_come(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "BEHIND_BYTES", 2_000)
    monkeypatch.setattr(replays, "TURN_BYTES_MAX", 3_000)
    monkeypatch.setattr(replays, "REPLAY_BYTES_MAX", 1_000)
    stage.core.replays.__init__()  # type: ignore[misc]
    for number in range(1, 21):
        stage.put("t", number, [b"%d" % number + b"x" * 500])
    assert stage.ask(Subscribe("bob", "t", 5, 5, start="earliest")).outcome is Outcome.SUCCESS
    assert len(take(stage, "bob", 5)) == 20
    assert [body[:2] for body in along(stage, "earliest")] == [b"%d" % n + b"x" * (n < 10) for n in range(1, 21)]


# Mixed versions


@pytest.mark.parametrize("word", ["!from=latest", "!before=5", f"!history={'a' * 16}", "!times=1"])
def test_a_field_of_a_read_is_insisted_on(word: str) -> None:
    head = b"READ a b -1 max=1 %s !v=1\r\n\r\n"
    decode(head % word.encode())
    with pytest.raises(DecodeError, match="insists on"):
        decode(head % word.replace("=", "s=").encode())


def test_an_unknown_start_is_refused_and_says_why() -> None:
    with pytest.raises(DecodeError, match="from 1 to 10,000"):
        decode(b"SUBSCRIBE a b number=1 opening=1 from=last:10001 !v=1\r\n\r\n")
