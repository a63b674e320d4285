"""A store that was put back from a backup, declared to be all there is: real stores, and a peer that knows better.

The rule is docs/explanation/stores.md, S13.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol import Get, Outcome, Position, Read, Records, Report, Subscribe
from pubsub.server.offline.restore import CHANGE_STEP, accept_copy
from pubsub.server.state.replies import Origin
from pubsub.server.topic.delivery import collect
from tests.server.moving import Pair, message, put, split, take
from tests.server.named import everything, make, plan, read
from tests.server.stage import Stage


def save(stage: Stage) -> None:
    """A backup of the store as it is now."""
    stage.close()
    copy = stage.settings.directory.with_suffix(".copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(stage.settings.directory, copy)
    stage.restart()


def put_back(stage: Stage, *, accepted: bool = True) -> None:
    """The backup is in the store's place, and said to be all there is."""
    stage.close()
    shutil.rmtree(stage.settings.directory)
    shutil.copytree(stage.settings.directory.with_suffix(".copy"), stage.settings.directory)
    if accepted:
        accept_copy(stage.settings.directory)
    stage.restart()


def place(stage: Stage, offset: int) -> Position:
    """A position in the topic's first log."""
    return next(iter(stage.core.state.topics["t"].logs)), offset


def records(stage: Stage) -> int:
    """How many records the server says that the topic holds."""
    stage.now += 1.0
    (topic,) = json.loads(bytes(stage.ask(Report("op", stage.settings.id)).body))["topics"].values()
    return int(topic["records"])


def test_messages_behind_the_copy_are_lost_once_and_both_sides_continue(pair: Pair) -> None:
    stage = pair["s1"]
    stage.ask(Subscribe("bob", "t", 5, 5))
    stage.ask(Subscribe("eve", "t", 5, 5))
    put(stage, "alice", 10, 0, b"1", b"2")
    change = stage.core.state.change
    save(stage)
    assert put(stage, "alice", 12, 11, b"3") == Outcome.SUCCESS
    log = place(stage, 3)
    assert take(stage, "bob") == [b"1", b"2", b"3"]
    put_back(stage)
    assert stage.core.state.change >= change + CHANGE_STEP
    topic = stage.core.state.topics["t"]
    assert (set(topic.restored), topic.open.id != log[0]) == ({log[0]}, True)

    told = stage.ask(Get("bob", "t", log, 5, 5, records_max=10))
    assert (told.outcome, told.first, told.message) == (Outcome.LOST, (log[0], 4), (log[0], OFFSET_MAX - 1))
    read = stage.ask(Get("eve", "t", None, 5, 5, records_max=10))
    assert (read.outcome, read.message) == (Outcome.SUCCESS, (log[0], 2))
    told = stage.ask(Get("eve", "t", (log[0], 2), 5, 5, records_max=10))
    assert (told.outcome, told.first) == (Outcome.LOST, (log[0], 3))

    later = message("alice", 13, 12, b"4")
    later.log = log[0]
    assert stage.ask(later).outcome is Outcome.GONE
    assert put(stage, "alice", 13, 0, b"4") == Outcome.SUCCESS
    for who in ("bob", "eve"):
        assert take(stage, who, last=(log[0], OFFSET_MAX - 1)) == [b"4"]


def test_a_reader_in_a_log_merged_since_the_copy_learns_of_both_losses(pair: Pair) -> None:
    stage = pair["s1"]
    stage.ask(Subscribe("bob", "t", 5, 5))
    save(stage)
    stage.now += 1.0
    pair["s2"].now = stage.now
    put(stage, "alice", 10, 0, b"1")
    put(pair["s2"], "carl", 10, 0, b"2")
    pair.merge("s2", "s1")
    pair.turns()
    own, other = stage.core.state.topics["t"].logs
    got = stage.ask(Get("bob", "t", (own, 1), 5, 5))
    assert (got.outcome, got.message) == (Outcome.SUCCESS, (other, 1))
    put_back(stage)
    told = stage.ask(Get("bob", "t", (other, 1), 5, 5))
    assert (told.outcome, told.position) == (Outcome.GONE, (own, 0))
    told = stage.ask(Get("bob", "t", (own, 0), 5, 5))
    assert (told.outcome, told.first, told.message) == (Outcome.LOST, (own, 1), (own, OFFSET_MAX - 1))
    assert put(stage, "alice", 11, 0, b"3") == Outcome.SUCCESS
    assert take(stage, "bob", last=(own, OFFSET_MAX - 1)) == [b"3"]


def test_nothing_of_a_store_that_cannot_be_written_is_changed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = pair["s1"]
    put(stage, "alice", 10, 0, b"1")
    put(stage, "carl", 1, 0, b"1")
    log = stage.core.state.topics["t"].open.id
    stage.close()

    def fail(*_: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr("pubsub.server.storage.store.Store.commit", fail)
    with pytest.raises(OSError, match="no more"):
        accept_copy(stage.settings.directory)
    monkeypatch.undo()
    stage.restart()
    assert stage.core.state.topics["t"].open.id == log
    assert stage.core.state.topics["t"].restored == ()


@pytest.mark.parametrize("giver", ["s1", "s2"])
@pytest.mark.parametrize("consumed", [False, True])
def test_a_holder_with_the_missing_messages_overrides_the_copy_in_either_direction(
    pair: Pair, giver: str, consumed: bool
) -> None:
    old, new = pair["s1"], pair["s2"]
    for who in ("bob", "eve"):
        old.ask(Subscribe(who, "t", 5, 5))
    old.now += 1.0
    put(old, "alice", 10, 0, b"1", b"2")
    log = place(old, 2)
    save(old)
    assert put(old, "alice", 12, 11, b"3") == Outcome.SUCCESS
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert put(new, "alice", 13, 12, b"4") == Outcome.SUCCESS
    everything = [b"1", b"2", b"3", b"4"]
    last = {"bob": log, "eve": None}
    if consumed:  # All of the old log goes from the disk there.
        assert take(new, "bob", last=log) == [b"3", b"4"]
        assert take(new, "eve") == everything
        end = (new.core.state.topics["t"].open.id, new.core.state.topics["t"].open.end - 1)
        last = {"bob": end, "eve": end}
        for who in last:
            assert take(new, who, last=end) == []
        new.sleep(200.0)
        assert log[0] not in new.core.state.topics["t"].logs
    put_back(old)
    old.now = new.now
    assert put(old, "carl", 7, 0, b"5") == Outcome.SUCCESS
    old.ask(Subscribe("dan", "t", 5, 5))
    pair.merge(giver, "s2" if giver == "s1" else "s1")
    pair.turns()
    (holder,) = pair.holders()
    stage = pair[holder]
    assert holder != giver
    assert stage.core.state.topics["t"].ended == set()
    stage.restart()
    assert stage.core.state.topics["t"].ended == set()
    assert put(stage, "alice", 14, 13, b"6") == Outcome.SUCCESS
    if consumed:
        assert [take(stage, who, last=last[who]) for who in last] == [[b"5", b"6"]] * 2
    else:
        assert take(stage, "bob", last=log) == [b"3", b"4", b"5", b"6"]
        assert take(stage, "eve") == [*everything, b"5", b"6"]
    assert take(stage, "dan") == [b"6"]


def test_a_used_up_copy_that_moved_is_known_after_a_start_as_one_without_the_end(
    tmp_path: Path,
) -> None:
    """s2's log went to s3 as a whole; of the copy of s2 that was put back nothing was left when s1 was given it."""
    trio = Pair(tmp_path, "s1", "s2", "s3")
    s1, s2, s3 = (trio[name] for name in ("s1", "s2", "s3"))
    put(s2, "alice", 10, 0, b"1", b"2")
    log, _ = place(s2, 0)
    save(s2)
    assert put(s2, "alice", 12, 11, b"3") == Outcome.SUCCESS
    trio.merge("s2", "s3")
    trio.turns()
    assert make(s3, "earliest").outcome is Outcome.SUCCESS
    put_back(s2)
    s2.now = s3.now
    s2.sleep(200.0)
    assert s2.core.state.topics["t"].merged == {log} == s2.core.state.topics["t"].ended
    s1.now = s2.now
    trio.merge("s2", "s1")
    trio.turns()
    assert s1.core.state.topics["t"].ended == {log}
    s1.restart()
    assert s1.core.state.topics["t"].ended == {log}
    trio.turns(3)
    trio.merge("s3", "s1")
    trio.turns()
    assert trio.holders() == ["s1"]
    assert everything(s1) == [b"1", b"2", b"3"]
    trio.close()


def test_messages_that_the_copy_lacks_are_not_lost_while_another_server_may_have_them(pair: Pair) -> None:
    stage = pair["s1"]
    stage.ask(Subscribe("bob", "t", 5, 5))
    stage.ask(Subscribe("spark", "t", 7, 7, name="job"))
    put(stage, "alice", 10, 0, b"1")
    log = place(stage, 1)
    save(stage)
    put_back(stage)
    stage.others = f"s2.{'b' * 16}"
    get = Get("bob", "t", log, 5, 5, records_max=10)
    read = Read("spark", "t", None, name="job", records_max=10)
    assert stage.ask(get).outcome is Outcome.BUSY
    assert stage.ask(read).outcome is Outcome.BUSY
    stage.others = ""
    stage.core.state.topics["t"].contested.clear()
    assert stage.ask(get).outcome is Outcome.LOST
    assert stage.ask(read).outcome is Outcome.SUCCESS


def test_a_waiting_get_asks_anew_about_a_loss_that_a_join_brings(pair: Pair) -> None:
    old, new = pair["s1"], pair["s2"]
    put(old, "alice", 10, 0, b"1")
    save(old)
    put_back(old)
    new.ask(Subscribe("bob", "t", 5, 5))
    get = Get("bob", "t", None, 5, 5, records_max=10, wait_ms=60_000)
    # It had to be known for this very request that the topic is whole, and nothing was there.
    new.core.gets.get(Origin(0, b"cX", 77), get, new.now, sole_owner=True)
    new.loop()
    new.others = f"s3.{'b' * 16}"
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert new.answered(77).outcome is Outcome.BUSY


def test_a_restored_store_does_not_wait_for_its_own_missing_messages(pair: Pair) -> None:
    stage, lacking = pair["s1"], "c" * 16
    put(stage, "alice", 10, 0, b"1")
    stage.core.contested.told("t", f"s1.{lacking}")
    assert stage.core.state.is_contested("t"), "another store may have been started under this ID"
    stage.core.contested.settle(stage.core.state.topics["t"], lacking)
    save(stage)
    put_back(stage)
    stage.core.contested.told("t", f"s1.{lacking}")
    assert not stage.core.state.is_contested("t")
    stage.core.contested.told("t", f"s2.{lacking}")
    assert stage.core.state.is_contested("t")


def test_messages_that_the_copy_lacks_are_no_backlog(pair: Pair) -> None:
    stage = pair["s1"]
    stage.ask(Subscribe("bob", "t", 5, 5))
    put(stage, "alice", 10, 0, b"1", b"2")
    save(stage)
    put_back(stage)
    topic = stage.core.state.topics["t"]
    assert topic.waiting(topic.subscriptions["bob"].cursor.backlog) == 2


def test_missing_messages_are_counted_alike_before_and_after_a_start_and_a_trim(pair: Pair) -> None:
    old, new = pair["s1"], pair["s2"]
    old.ask(Subscribe("bob", "t", 5, 5))
    put(old, "alice", 10, 0, b"1", b"2")
    save(old)
    put(old, "alice", 12, 11, b"3", b"4")
    put_back(old)
    # What he received of the part that the copy lacks is acknowledged: the log begins behind it, once the rest goes.
    assert old.ask(Get("bob", "t", place(old, 3), 5, 5)).outcome is Outcome.LOST
    old.sleep(200.0)
    log, _ = place(old, 0)
    assert old.core.state.topics["t"].logs[log].low == 4
    assert records(old) == 0
    assert list(old.store.topics()) == list(old.core.state.topics.values())
    new.now = old.now
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert records(new) == 0
    assert next(new.store.topics()).logs == new.core.state.topics["t"].logs


def test_a_copy_is_deleted_completely_when_another_holder_has_more(pair: Pair) -> None:
    old, new = pair["s1"], pair["s2"]
    old.ask(Subscribe("bob", "t", 5, 5))
    old.now += 1.0
    put(old, "alice", 10, 0, b"1", b"2")
    number = old.core.state.topics["t"].open.number
    save(old)
    put(old, "alice", 12, 11, b"3")
    pair.merge("s1", "s2")
    pair.turns()
    put_back(old)
    old.now = new.now
    # A put that was in doubt is on both sides: the history has it once, where it stands between the others.
    assert put(old, "alice", 12, 0, b"3") == Outcome.SUCCESS
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert not list(old.store.reader.batches(number, 1, 10)), "its batches are gone from the disk"
    topic = old.core.state.topics["t"]
    history = collect(topic, topic.history, old.core.state.reader, old.core.state.publishers.names, 100, 1 << 20)
    assert list(Records(history.body).bodies()) == [b"1", b"2", b"3"]
    assert take(old, "bob") == [b"1", b"2", b"3"]


def test_a_log_known_only_to_the_copy_leaves_nothing_to_delete(pair: Pair) -> None:
    old, new = pair["s1"], pair["s2"]
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    for who in ("bob", "eve"):
        assert len(take(old, who)) == 4
    old.sleep(200.0)
    assert old.core.state.topics["t"].merged
    save(old)
    assert put(old, "alice", 12, 11, b"3") == Outcome.SUCCESS
    new.now = old.now
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    put_back(old)
    old.now = new.now
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert not old.store.discarded()
    known = {name for (name,) in old.store.db.execute("select name from log where state = 'merged'")}
    assert known == old.core.state.topics["t"].merged != set()


def test_a_topic_that_a_client_revealed_as_an_older_copy_stays_held_back_over_a_restart(pair: Pair) -> None:
    stage = pair["s1"]
    stage.ask(Subscribe("bob", "t", 5, 5))
    put(stage, "alice", 10, 0, b"1")
    save(stage)
    put(stage, "alice", 11, 10, b"2")
    put_back(stage, accepted=False)
    assert stage.ask(Get("bob", "t", place(stage, 2), 5, 5)).outcome is Outcome.UNAVAILABLE
    stage.restart()
    assert stage.ask(Get("eve", "t", None, 5, 5)).outcome is Outcome.UNAVAILABLE
    assert put(stage, "alice", 11, 10, b"other") is Outcome.UNAVAILABLE


def test_the_missing_messages_of_a_copy_are_one_record_of_a_plan(stage: Stage) -> None:
    """Nobody knows how much it is: all offsets of the log that are left, cut for tasks, would be a million of them."""
    make(stage)
    put(stage, "alice", 10, 0, b"1", b"2")
    save(stage)
    put(stage, "alice", 12, 11, b"3", b"4")
    put_back(stage)
    log = place(stage, 0)[0]
    lost = [log, OFFSET_MAX - 1, OFFSET_MAX, 0]
    found = plan(stage, None)
    assert [leg[:3] for leg in found["legs"]] == [[log, 1, 3], lost[:3]]
    assert found["latest"] == f"{log}.{OFFSET_MAX - 1}"
    assert plan(stage, (log, 3))["legs"] == [lost], "the reader was beyond the copy's end"
    told = read(stage, (log, 2), (log, OFFSET_MAX - 1))
    assert (told.outcome, told.first, told.message) == (Outcome.LOST, (log, 3), (log, OFFSET_MAX - 1))
