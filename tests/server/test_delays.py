"""Delayed puts at a server: kept, delivered when due by the sole owner, moved, merged and restored, each once.

The rules are those of docs/explanation/delay.md, DM2, DM3, DM4, DM5, DM6 and DM7.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import DELAY_SECONDS_MAX
from pubsub.protocol import Get, Outcome, Put, Records, Status, Subscribe, encode_batch
from pubsub.protocol.records import Run
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.offline.restore import end_logs
from pubsub.server.requests import admission
from pubsub.server.upkeep import delays
from tests.server.moving import Pair, take
from tests.server.moving import put as put_at_once
from tests.server.stage import STORE, Stage
from tests.server.test_report import ask


def delayed(stage: Stage, seconds: float, counter: int, previous: int, *bodies: bytes, topic: str = "t") -> Put:
    due = stage.core.state.stamps.clock(stage.now) + int(seconds * MICROSECONDS)
    body = encode_batch(bodies, due=due)
    return Put("alice", topic, counter, STORE, len(bodies), previous, crc32(body), body=body)


def put(stage: Stage, seconds: float, counter: int, previous: int, *bodies: bytes) -> Status:
    return stage.ask(delayed(stage, seconds, counter, previous, *bodies))


def waiting(stage: Stage) -> int:
    return len(stage.core.state.topics["t"].delayed)


def stored(stage: Stage) -> int:
    return int(stage.store.db.execute("select count(*) from delayed").get)


def runs(stage: Stage, who: str = "bob") -> list[Run]:
    answer = stage.ask(Get(who, "t", None, 5, 5, records_max=100))
    return Records(bytes(answer.body)).runs if answer.outcome is Outcome.SUCCESS else []


def test_a_delayed_put_is_delivered_when_due_and_not_before(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    assert put(stage, 60, 1, 0, b"later").outcome is Outcome.SUCCESS
    assert take(stage, "bob") == []
    stage.sleep(59.9)
    assert take(stage, "bob") == []
    stage.sleep(0.2)
    assert take(stage, "bob") == [b"later"]
    assert (waiting(stage), stored(stage)) == (0, 0)


def test_a_waiting_get_is_woken_when_a_message_is_due(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put(stage, 3, 1, 0, b"later")
    asked = stage.say(Get("bob", "t", None, 5, 5, records_max=9, wait_ms=10_000))
    stage.sleep(3.1)
    assert list(Records(bytes(stage.answered(asked).body)).bodies()) == [b"later"]


def test_a_delivered_message_names_the_publisher_and_the_counter_of_its_put(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    put(stage, 5, 7, 0, b"one", b"two")
    stage.sleep(6)
    (run,) = runs(stage)
    assert (run.put_by, run.put_as) == (f"alice/{STORE}", 7)
    assert (run.publisher, run.counter) == (f"%delay/{log}", 1)
    assert run.stamp >= stage.core.state.stamps.clock(stage.now - 1)


def test_delayed_and_other_puts_of_a_publisher_are_one_chain(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    assert put(stage, 60, 1, 0, b"later").last == 1
    assert stage.put("t", 3, [b"too early"], previous=2).outcome is Outcome.GAP
    assert put_at_once(stage, "alice", 2, 1, b"now") is Outcome.SUCCESS
    assert put(stage, 60, 3, 2, b"last").outcome is Outcome.SUCCESS
    assert put(stage, 60, 1, 0, b"later").outcome is Outcome.DUPLICATE
    stage.sleep(61)
    assert take(stage, "bob") == [b"now", b"later", b"last"]
    assert put(stage, -60, 3, 2, b"last").outcome is Outcome.DUPLICATE


def test_messages_come_in_the_order_of_their_due_times(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    for number, seconds in enumerate((9, 3, 6), 1):
        put(stage, seconds, number, number - 1, b"%d" % seconds)
    stage.sleep(10)
    assert take(stage, "bob") == [b"3", b"6", b"9"]


def test_a_put_that_is_due_already_waits_too(stage: Stage) -> None:
    """Another server may hold the row of this very put, so only the sole owner may append it."""
    stage.subscribe("bob", "t", 5)
    stage.sole_owner = False
    assert put(stage, -5, 1, 0, b"late").outcome is Outcome.SUCCESS
    stage.sleep(5)
    assert (take(stage, "bob"), waiting(stage)) == ([], 1)
    stage.sole_owner = True
    stage.sleep(5)
    assert take(stage, "bob") == [b"late"]


def test_without_sole_ownership_due_messages_wait_and_nothing_is_delivered(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put(stage, 2, 1, 0, b"later")
    stage.sole_owner = False
    stage.sleep(30)
    assert take(stage, "bob") == []
    assert stage.core.state.counters["delayed_held_up"] > 3
    stage.sole_owner = True
    stage.sleep(2)
    assert take(stage, "bob") == [b"later"]


def test_a_delivered_message_that_nobody_needs_is_deleted(stage: Stage) -> None:
    put(stage, 300, 1, 0, b"later")
    stage.sleep(301)
    assert stage.core.state.topics["t"].open.end == 2
    stage.sleep(3600)
    assert stage.core.state.topics["t"].open.low == 2


def test_a_topic_that_delivered_messages_bring_near_its_limit_is_watched(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, backlog_bytes_max=1_000)) as stage:
        stage.subscribe("bob", "t", 5)
        put(stage, 5, 1, 0, b"x" * 900)
        assert "t" not in stage.core.backlogs.watched
        stage.sleep(6)
        assert "t" in stage.core.backlogs.watched


def test_a_restart_keeps_what_waits(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put(stage, 10, 1, 0, b"later")
    stage.sleep(1)
    stage.restart()
    assert waiting(stage) == 1
    stage.sleep(10)
    assert take(stage, "bob") == [b"later"]
    stage.restart()
    assert (waiting(stage), stored(stage)) == (0, 0)
    assert put(stage, 10, 1, 0, b"later").outcome is Outcome.DUPLICATE


def test_a_full_disk_undoes_the_put_and_the_delivery(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.fail_commit = True
    assert put(stage, 5, 1, 0, b"later").outcome is Outcome.FULL
    assert not stage.core.state.topics["t"].delayed
    stage.fail_commit = False
    stage.core.state.full = False
    assert put(stage, 5, 1, 0, b"later").outcome is Outcome.SUCCESS
    stage.now += 6
    stage.fail_commit = True
    for _ in range(4):
        stage.loop()
    assert (waiting(stage), stage.core.state.full) == (1, True)
    stage.fail_commit = False
    stage.core.state.full = False
    stage.sleep(5)
    assert take(stage, "bob") == [b"later"]


def test_many_due_rows_are_appended_in_pieces_and_in_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "PIECE_ROWS", 3)
    stage.subscribe("bob", "t", 5)
    for number in range(1, 11):
        put(stage, 5, number, number - 1, b"%d" % number)
    stage.sleep(4.9)
    stage.now += 0.2
    seen = [waiting(stage)]
    while waiting(stage):
        stage.loop()
        seen.append(waiting(stage))
    assert {10, 7, 4, 1, 0} == set(seen)
    assert take(stage, "bob") == [b"%d" % number for number in range(1, 11)]


def test_rows_and_bytes_of_a_topic_are_limited(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "DELAYED_ROWS_MAX", 2)
    assert put(stage, 5, 1, 0, b"1").outcome is Outcome.SUCCESS
    assert put(stage, 5, 2, 1, b"2").outcome is Outcome.SUCCESS
    answer = put(stage, 5, 3, 2, b"3")
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "DELAYED_ROWS_MAX")
    assert put_at_once(stage, "carl", 1, 0, b"at once") is Outcome.SUCCESS
    stage.sleep(6)
    monkeypatch.setattr(admission, "DELAYED_BYTES_MAX", 30)
    answer = put(stage, 5, 3, 2, b"3" * 40)
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "DELAYED_BYTES_MAX")


def test_a_due_time_beyond_the_limit_and_a_service_are_refused(stage: Stage) -> None:
    answer = put(stage, DELAY_SECONDS_MAX + 90_000, 1, 0, b"x")
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "a_message_can_be_delayed_by_90_days_at_most")
    answer = stage.ask(delayed(stage, 5, 1, 0, b"x", topic="$calls.sums"))
    assert answer.outcome is Outcome.REFUSED
    assert "service" in answer.reason


def test_a_subscriber_that_comes_before_the_due_time_receives_the_message(stage: Stage) -> None:
    put(stage, 5, 1, 0, b"later")
    stage.subscribe("bob", "t", 5)
    stage.sleep(6)
    assert take(stage, "bob") == [b"later"]


def test_a_damaged_body_is_reported_as_lost_and_the_next_message_is_delivered(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    put(stage, 5, 1, 0, b"damaged")
    put(stage, 6, 2, 1, b"intact")
    stage.store.db.execute("update delayed set body = zeroblob(20) where counter = 1")
    stage.sleep(7)
    lost = stage.ask(Get("bob", "t", None, 5, 5, records_max=9))
    assert (lost.outcome, lost.first, lost.message) == (Outcome.LOST, (log, 1), (log, 1))
    assert take(stage, "bob", last=(log, 1)) == [b"intact"]


def test_a_report_has_what_waits_and_what_is_overdue(stage: Stage) -> None:
    stage.sole_owner = False
    put(stage, 5, 1, 0, b"1", b"2")
    size = stage.core.state.topics["t"].delayed.size
    names = ("delayed", "delayed_bytes", "overdue_seconds")
    assert [ask(stage)["topics"]["t"][name] for name in names] == [2, size, None]
    stage.sleep(15)
    found = ask(stage)["topics"]["t"]
    assert [found[name] for name in names[:2]] == [2, size]
    assert 10.0 <= found["overdue_seconds"] < 20.0


def test_a_restored_copy_delivers_what_is_due_later_and_no_message_that_was_due(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put(stage, 5, 1, 0, b"may have been delivered")
    put(stage, 60, 2, 1, b"later")
    end_logs(stage.store, stage.core.state.stamps.clock(stage.now + 10))
    stage.restart()
    assert waiting(stage) == 1
    stage.sleep(61)
    lost = stage.ask(Get("bob", "t", None, 5, 5, records_max=9))
    assert lost.outcome is Outcome.LOST
    assert take(stage, "bob", last=lost.message) == [b"later"]


# Two servers


def test_what_waits_moves_with_its_topic(pair: Pair) -> None:
    one, other = pair["s1"], pair["s2"]
    one.subscribe("bob", "t", 5)
    put(one, 60, 1, 0, b"later", b"and more")
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert (stored(one), stored(other)) == (0, 1)
    other.restart()
    assert put(other, 60, 1, 0, b"later", b"and more").outcome is Outcome.DUPLICATE
    other.sleep(60)
    assert take(other, "bob") == [b"later", b"and more"]


def test_what_arrived_of_a_transfer_that_broke_off_is_deleted(pair: Pair) -> None:
    one, other = pair["s1"], pair["s2"]
    one.subscribe("bob", "t", 5)
    put(one, 60, 1, 0, b"later")
    pair.lose = {"commit"}
    pair.merge("s1", "s2")
    pair.turns()
    assert stored(other) == 1
    other.restart()
    other.sleep(1)
    assert stored(other) == 0
    pair.lose = set()
    pair.turns()
    assert (pair.holders(), stored(other)) == (["s2"], 1)


def test_a_row_that_waits_at_both_sides_of_a_split_is_delivered_once(pair: Pair) -> None:
    one, other = pair["s1"], pair["s2"]
    for server in (one, other):
        server.subscribe("bob", "t", 5)
        put(server, 60, 1, 0, b"later")
    pair.merge("s1", "s2")
    pair.turns()
    assert (waiting(other), stored(other)) == (1, 1)
    other.sleep(60)
    assert take(other, "bob") == [b"later"]


@pytest.mark.parametrize("killed", [False, True])
def test_rows_that_all_wait_at_both_sides_go_in_pieces_after_the_merge(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    monkeypatch.setattr(delays, "PIECE_ROWS", 1)
    one, other = pair["s1"], pair["s2"]
    for server in (one, other):
        server.subscribe("bob", "t", 5)
        for number in range(1, 6):
            put(server, 60, number, number - 1, b"%d" % number)
    pair.merge("s1", "s2")
    while not other.core.state.counters["topics_merged"]:
        pair.turn()
    assert waiting(other) == 5
    assert stored(other) > 5
    if killed:
        other.restart()
    pair.turns()
    assert (waiting(other), stored(other)) == (5, 5)
    assert other.store.db.execute("select count(*) from shelf").get == 0
    for _ in range(6):
        other.sleep(12)
    assert take(other, "bob") == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("giver", ["s1", "s2"])
def test_a_row_that_one_side_has_delivered_goes_at_the_other(pair: Pair, giver: str) -> None:
    one, other = pair["s1"], pair["s2"]
    for server in (one, other):
        server.ask(Subscribe("bob", "t", 5, 5))
        put(server, 10, 1, 0, b"later")
    one.sole_owner = False  # It would ask the proxies, which know of the other holder.
    other.sleep(11)
    receiver = "s1" if giver == "s2" else "s2"
    pair.merge(giver, receiver)
    pair.turns()
    pair[receiver].sole_owner = True
    pair[receiver].sleep(20)
    assert (waiting(pair[receiver]), stored(pair[receiver])) == (0, 0)
    assert take(pair[receiver], "bob") == [b"later"]


def test_rows_that_only_one_side_has_stay(pair: Pair) -> None:
    one, other = pair["s1"], pair["s2"]
    one.subscribe("bob", "t", 5)
    put(one, 60, 1, 0, b"at one")
    put_at_once(other, "carl", 1, 0, b"x")
    pair.merge("s1", "s2")
    pair.turns()
    other.sleep(60)
    assert b"at one" in take(other, "bob")


# Export


def test_an_export_and_import_keep_what_waits_and_who_put_what_was_delivered(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "one")
    stage.subscribe("bob", "t", 5)
    put(stage, 5, 1, 0, b"early", b"too")
    stage.sleep(6)
    put(stage, 60, 3, 2, b"later")
    stage.close()
    assert export_tree(tmp_path / "one", tmp_path / "tree") == 3
    assert import_tree(tmp_path / "two", tmp_path / "tree") == 3
    again = Stage(tmp_path / "two")
    again.now = stage.now
    (run,) = runs(again)
    assert (run.put_by, run.put_as) == (f"alice/{STORE}", 1)
    assert put(again, 60, 3, 2, b"later").outcome is Outcome.DUPLICATE
    again.sleep(61)
    assert take(again, "bob") == [b"early", b"too", b"later"]
    again.close()
