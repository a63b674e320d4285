"""A topic that a server has given away: its remaining notes, the answers about it, and its deletion.

The rule is docs/explanation/merge.md, M5.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from pubsub.protocol import Get, Outcome, Status
from pubsub.server.state.replies import Origin, Outgoing
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import GIVEN
from pubsub.server.upkeep import retention
from tests.server.moving import ADDRESS, Pair, hear_who_has_it, message, put, split, take
from tests.server.stage import Stage


def test_a_given_topic_leaves_the_disk_and_its_tombstone_stays(pair: Pair) -> None:
    split(pair)
    log = pair["s2"].core.state.topics["t"].open.id
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair["s2"].store.db.execute("select count(*) from batch").fetchall() == [(0,)]
    assert pair["s2"].store.reader.log_state(log) == "given"
    assert pair["s1"].store.reader.log_state(log) == "held"


def test_a_topic_with_the_number_of_a_given_one_has_nothing_of_it(pair: Pair) -> None:
    split(pair)
    giver = pair["s2"]
    number = giver.core.state.topics["t"].number
    giver.core.contested.told("t", f"s9.{'9' * 16}")
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    giver.restart()
    giver.put("u", 1)
    assert giver.core.state.topics["u"].number == number
    giver.restart()
    topic = giver.core.state.topics["u"]
    assert (len(topic.logs), topic.merged, topic.contested, topic.subscriptions) == (1, set(), {}, {})
    assert list(topic.last.values()) == [1]
    assert not giver.core.state.is_contested("u")


def test_proxies_learn_of_the_receiver_of_a_topic_until_each_has_confirmed(pair: Pair) -> None:
    giver, receiver = pair["s2"], pair["s1"]
    split(pair)
    log = giver.core.state.topics["t"].open.id
    giver.loop()
    giver.confirms = False
    pair.merge("s2", "s1")
    pair.turns(60)
    told = [one.topics for one in giver.periodics() if one.topics and "." in one.topics.get("t", "")]
    assert told
    to, store, after = told[0]["t"].split(",")
    assert (to, store) == (f"s1.{log}", receiver.core.state.store_id)
    assert 0 < int(after) <= receiver.core.state.change
    giver.restart()
    giver.loop()
    assert giver.periodics()[0].topics == told[0]
    giver.confirms = True
    giver.sleep(6.0)
    giver.periodics()
    giver.restart()
    giver.loop()
    assert giver.periodics()[0].topics == {}


def test_a_topic_made_anew_at_its_giver_is_not_whole_until_the_receivers_is_joined(
    pair: Pair,
) -> None:
    giver = pair["s2"]
    split(pair)
    log = giver.core.state.topics["t"].open.id
    giver.confirms = False
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair.holders() == ["s1"]
    hear_who_has_it(giver)
    assert put(giver, "dora", 10, 0, b"new") is Outcome.SUCCESS
    assert giver.core.state.topics["t"].contested == {log: "s1"}
    giver.restart()
    assert giver.core.state.topics["t"].contested == {log: "s1"}
    giver.confirms = True
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s2"]
    assert giver.core.state.topics["t"].contested == {}


def test_the_note_of_a_receiver_leaves_the_disk_after_the_disk_was_full(pair: Pair) -> None:
    split(pair)
    giver = pair["s2"]
    giver.confirms = False
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert [note for note in giver.store.notes() if note.startswith(GIVEN)]
    giver.confirms, giver.fail_commit = True, True
    giver.now += giver.core.state.settings.announce_seconds + 1
    pair.turns(10)
    giver.fail_commit = False
    pair.turns(60)
    giver.restart()
    assert not [note for note in giver.store.notes() if note.startswith(GIVEN)]


def test_a_given_topic_is_deleted_after_the_disk_was_full(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PIECE_BATCHES_MIN", 2)
    monkeypatch.setattr(retention, "PIECE_BYTES_MIN", 0)
    split(pair)
    giver = pair["s2"]
    for counter in range(1, 10):
        giver.put("t", counter, sender="dave", previous=counter - 1)
    pair.merge("s2", "s1")
    for _ in range(60):
        if giver.store.db.execute("select count(*) from batch").get == 1:
            break
        pair.turn()
    giver.fail_commit = True  # What deletes the last piece is taken back.
    pair.turns(5)
    assert giver.store.discarded() != []
    giver.fail_commit = False
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert giver.store.discarded() == []


@pytest.mark.parametrize("logs", [1, 3])
def test_a_deletion_found_at_the_start_is_done_after_a_full_disk(stage: Stage, logs: int) -> None:
    for number in range(logs):
        stage.put(f"t{number}", 1)
        topic = stage.core.state.topics[f"t{number}"]
        with stage.store.guarded():
            stage.store.apply([c.TopicGiven(topic.number, "s2 tcp://127.0.0.1:1")])
    stage.restart()
    stage.fail_commit = True
    stage.loop()
    assert len(stage.store.discarded()) == logs
    stage.fail_commit = False
    stage.sleep(20)
    assert stage.store.discarded() == []


def test_a_join_on_a_full_disk_is_repeated_when_there_is_space(pair: Pair) -> None:
    split(pair)
    pair["s1"].fail_commit = True
    pair.merge("s2", "s1")
    pair.turns(10)
    assert pair["s1"].core.state.full
    pair["s1"].fail_commit = False
    pair["s1"].now += 1
    pair["s1"].group_commit.check_full(pair["s1"].now)
    pair.merge("s2", "s1")  # A proxy asks again each second.
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]


def test_a_request_to_a_giver_right_after_the_move_is_answered_moved(pair: Pair) -> None:
    split(pair)
    giver = pair["s2"]
    log = giver.core.state.topics["t"].open.id
    pair.merge("s2", "s1")
    giver.confirms = False  # The proxies have not heard yet, and know of no other holder.
    pair.turns()
    assert pair.holders() == ["s1"]
    get = Get("eve", "t", (log, 1), 5, 5, records_max=10)
    assert giver.ask(get).outcome is Outcome.MOVED
    late = message("carl", 12, 11, b"x")
    late.log = log
    assert giver.ask(late).outcome is Outcome.MOVED
    giver.restart()
    assert giver.ask(get).outcome is Outcome.MOVED


def test_the_next_receiver_of_a_frozen_topic_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """It may have joined the topic; whoever it was meant for first has given its own away since, and would take it."""
    pair = Pair(tmp_path, "s1", "s2", "s3")
    split(pair)
    pair.lose = {"chunk"}
    pair.merge("s1", "s2")
    pair.turns(6)
    assert pair["s1"].core.state.topics["t"].frozen == ADDRESS["s2"]
    pair.merge("s2", "s3")
    while not pair["s2"].core.state.topics["t"].frozen:
        pair.turn()
    pair.lose = set()
    log = pair["s1"].core.state.topics["t"].open.id
    joined = pair["s3"].core.state.topics
    for _ in range(60):
        pair.turn()
        if "t" in joined and log in joined["t"].logs:
            break
    pair["s1"].restart()  # Before it has taken in that s3 joined it.
    away = pair.stages.pop("s1")
    pair.turns(30)
    assert pair.holders() == ["s3"]
    pair.stages = {"s1": away, **pair.stages}
    pair.turns(60)
    assert pair.holders() == ["s3"]
    assert pair["s2"].core.state.counters["topics_merged"] == 0
    pair.close()


def test_retention_checks_a_topic_again_after_its_freeze_was_reverted(pair: Pair) -> None:
    """Retention found it frozen in that loop."""
    server = pair["s1"]
    assert server.put("t", 1).outcome is Outcome.SUCCESS
    pair.merge("s1", "s2")
    pair.turn()
    server.now += server.settings.retention_hold_seconds + 10
    server.fail_commit = True
    pair.turn()
    server.fail_commit = False
    server.core.state.full = False
    assert server.core.state.topics["t"].frozen == ""
    del pair.stages["s2"]
    server.sleep(60)
    assert server.store.db.execute("select count(*) from batch").get == 0


def test_a_full_announcement_in_the_loop_of_a_departure_names_the_receiver(pair: Pair) -> None:
    giver = pair["s2"]
    split(pair)
    giver.confirms = False
    pair.merge("s2", "s1")
    for _ in range(60):
        giver.core.proxies.announce_all(giver.now)
        pair.turns(1)
    assert pair.holders() == ["s1"]
    named = [(one.topics or {}).get("t") for one in giver.periodics()]
    assert None not in named, "between that and what follows a proxy would take the topic for nobody's"


@pytest.mark.parametrize(
    ("lost", "restarts"), [("accepted", False), *product(("chunk", "commit", "done"), (False, True))]
)
def test_a_former_primary_names_the_present_one_to_a_giver(
    pair: Pair, lost: str, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would: no proxy knows of a topic that is on its way to who does not hold it."""
    split(pair)
    pair.lose = {lost}
    pair.merge("s2", "s1")
    pair.turns(6)
    before, after = ADDRESS["s1"], "tcp://127.0.0.1:21"
    monkeypatch.setitem(ADDRESS, "s1", after)
    pair["s1"].settings = replace(pair["s1"].settings, advertise=after)
    pair["s1"].restart()
    if restarts:
        pair["s2"].restart()
    pair.lose = set()
    carry = pair.carry

    def carried(name: str, stage: Stage, out: Outgoing) -> None:
        if out.link == before:
            status = Status("s1", Outcome.DEPOSED, reason=after)
            stage.core.handle(Origin(before, b"", out.source), status, stage.now)
        else:
            carry(name, stage, out)

    monkeypatch.setattr(pair, "carry", carried)
    pair.turns(20)
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("lost", ["commit", "done"])
def test_the_receiver_knows_a_holder_named_after_the_first_chunk(pair: Pair, lost: str, restarted: bool) -> None:
    """Every proxy may forget that holder, who is away, before the receiver has heard of it."""
    giver, other = pair["s2"], {"c" * 16: "s3"}
    split(pair)
    pair.lose = {lost}
    pair.merge("s2", "s1")
    while lost not in pair.steps:
        pair.turn()
    giver.say(Status("p1", Outcome.SUCCESS, body=b"t=s3." + b"c" * 16), origin=b"", callback=0)
    giver.loop()
    assert giver.core.state.topics["t"].contested == other
    if restarted:
        giver.restart()
    pair.lose = set()
    pair.turns(40)
    assert pair.holders() == ["s1"]
    assert pair["s1"].core.state.topics["t"].contested == other
    pair["s1"].restart()
    assert pair["s1"].core.state.topics["t"].contested == other
