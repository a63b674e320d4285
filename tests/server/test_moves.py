"""A topic on its way between two servers: real stores, a wire between them that the test holds.

The rule is docs/explanation/merge.md, M2.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.protocol import (
    Get,
    Merge,
    Outcome,
    Records,
    Status,
    Subscribe,
    Transfer,
    Unsubscribe,
    decode_headers,
    encode_batch,
    encode_headers,
)
from pubsub.protocol.transfers import Owners
from pubsub.server.state.replies import LISTENER, Origin
from tests.server.moving import ADDRESS, Pair, message, put, split, take


def test_two_holders_become_one_and_everyone_gets_all_once(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


def test_a_put_in_the_freezing_loop_moves_too(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    giver = pair["s2"]
    for out in giver.loop():
        pair.carry("s2", giver, out)
    answers = [out for out in pair["s1"].loop() if isinstance(out.message, Transfer)]
    late = giver.say(message("carl", 12, 11, b"late"))
    for out in answers:
        pair.carry("s1", pair["s1"], out)
    pair.turns()
    assert giver.answered(late).outcome is Outcome.SUCCESS
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"late", b"alice1", b"alice2"]


def test_keys_and_headers_move_with_their_messages(pair: Pair) -> None:
    split(pair)
    body = encode_batch([b"carl3", b"carl4"], [b"k", b""], [b"", encode_headers({"trace": b"7"})])
    beside = replace(message("carl", 12, 11, b"carl3", b"carl4"), body=body, checksum=crc32(body))
    assert pair["s2"].ask(beside).outcome is Outcome.SUCCESS
    pair.merge("s2", "s1")
    pair.turns()
    status = pair["s1"].ask(Get("eve", "t", None, 5, 5, records_max=100))
    records = Records(bytes(status.body))
    assert list(records.bodies()) == [b"carl1", b"carl2", b"carl3", b"carl4", b"alice1", b"alice2"]
    assert [key for run in records.runs for key in run.keys] == [b"", b"", b"k", b"", b"", b""]
    assert [decode_headers(block) for run in records.runs for block in run.headers] == [{}] * 3 + [{"trace": b"7"}] + (
        [{}] * 2
    )


def test_repeats_of_either_side_stay_recognised_and_chains_go_on(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    assert put(pair["s1"], "carl", 10, 0, b"carl1", b"carl2") is Outcome.DUPLICATE
    assert put(pair["s1"], "carl", 12, 11, b"carl3") is Outcome.SUCCESS
    assert put(pair["s1"], "alice", 20, 15, b"early") is Outcome.GAP


def test_positions_from_before_the_join_stay_valid(pair: Pair) -> None:
    split(pair)
    got = pair["s2"].ask(Get("eve", "t", None, 5, 5, records_max=1))
    pair.merge("s2", "s1")
    pair.turns()
    assert take(pair["s1"], "eve", last=got.message) == [b"carl2", b"alice1", b"alice2"]


def test_an_unsubscription_survives_a_move(pair: Pair) -> None:
    split(pair)
    pair["s1"].ask(Subscribe("eve", "t", 3, 3))
    pair["s2"].ask(Unsubscribe("eve", "t", 6, 6))
    pair.merge("s2", "s1")
    pair.turns()
    assert pair["s1"].ask(Get("eve", "t", None, 3, 3)).outcome is Outcome.SUPERSEDED


def test_requests_to_a_frozen_topic_and_waiting_gets_are_answered_moved(pair: Pair) -> None:
    split(pair)
    take(pair["s2"], "eve")
    waiting = pair["s2"].say(
        Get("eve", "t", None, 5, 5, after=(pair["s2"].core.state.topics["t"].open.id, 2), wait_ms=60_000)
    )
    pair.lose = {"chunk", "commit"}
    pair.merge("s2", "s1")
    pair.turns(5)
    assert pair["s2"].answered(waiting).outcome is Outcome.MOVED
    assert put(pair["s2"], "carl", 12, 11, b"no") is Outcome.MOVED
    assert pair["s2"].ask(Subscribe("new", "t", 9, 9)).outcome is Outcome.MOVED
    pair.lose = set()
    pair.turns()
    assert pair.holders() == ["s1"]


def test_a_put_that_waits_for_a_whole_topic_is_answered_moved_when_the_topic_freezes(pair: Pair) -> None:
    giver = pair["s1"]
    giver.ask(Subscribe("bob", "t", 5, 5))
    giver.sole_owner = None
    waiting = giver.say(replace(message("alice", 10, 0, b"one"), sole_owner=1))
    pair.lose = {"commit"}
    pair.merge("s1", "s2")
    pair.turns(3)
    assert giver.core.state.topics["t"].frozen
    (token,) = {out.source for out in giver.sent if isinstance(out.message, Owners)}
    for proxy in (0, 1):
        giver.say(Status("p", Outcome.SUCCESS, body=b"t="), proxy=proxy, origin=b"", callback=token)
    giver.loop()
    assert giver.answered(waiting).outcome is Outcome.MOVED
    pair.lose = set()
    pair.turns()
    assert put(pair["s2"], "alice", 10, 0, b"one") is Outcome.SUCCESS
    assert take(pair["s2"], "bob") == [b"one"]


@pytest.mark.parametrize("who", ["s1", "s2"])
@pytest.mark.parametrize("step", ["offer", "accepted", "chunk", "commit", "done"])
def test_a_crash_of_either_server_at_any_step_is_repaired_by_a_repetition(tmp_path: Path, who: str, step: str) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    split(pair)
    pair.crash = (who, step)
    pair.merge("s2", "s1")
    pair.turns()
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]
    assert put(pair["s1"], "carl", 10, 0, b"carl1", b"carl2") is Outcome.DUPLICATE
    pair.close()


@pytest.mark.parametrize("step", ["offer", "accepted", "chunk", "commit", "done"])
def test_a_step_that_is_lost_is_repeated(pair: Pair, step: str) -> None:
    split(pair)
    pair.lose = {step}
    pair.merge("s2", "s1")
    pair.turns(6)
    pair.lose = set()
    pair.turns(40)
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


def test_a_late_commit_does_not_join_a_topic_that_only_began_to_arrive(pair: Pair) -> None:
    """The receiver is started anew, and an offer, a chunk and a commit of before come late."""
    split(pair)
    receiver = pair["s1"]
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    pair.turns(6)
    receiver.restart()
    for step, chunk in ("offer", 0), ("chunk", 0), ("commit", max(sent.chunk for sent in pair.given)):
        late = next(sent for sent in pair.given if (sent.step, sent.chunk) == (step, chunk))
        receiver.core.handle(Origin(LISTENER, b"s2", 0), late, receiver.now)
    receiver.loop()
    assert receiver.core.state.counters["topics_merged"] == 0
    pair.lose = set()
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert take(receiver, "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


def test_a_topic_moves_to_a_server_that_does_not_hold_it(pair: Pair) -> None:
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    put(pair["s1"], "alice", 10, 0, b"one", b"two")
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert put(pair["s2"], "alice", 12, 11, b"three") is Outcome.SUCCESS
    assert take(pair["s2"], "bob") == [b"one", b"two", b"three"]


def test_a_topic_that_moves_there_and_back_is_complete(pair: Pair) -> None:
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    put(pair["s1"], "alice", 10, 0, b"one")
    for giver, receiver in (("s1", "s2"), ("s2", "s1"), ("s1", "s2")):
        pair.merge(giver, receiver)
        pair.turns(40)
        assert pair.holders() == [receiver]
        pair[receiver].restart()
    assert put(pair["s2"], "alice", 10, 0, b"one") is Outcome.DUPLICATE
    assert take(pair["s2"], "bob") == [b"one"]


def test_crossing_offers_leave_one_holder(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s1"]


def test_an_offer_of_a_joined_log_is_answered_done_at_any_later_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", "s3")
    split(pair)
    pair.lose = {"done"}
    pair.merge("s2", "s1")
    pair.turns(6)
    assert pair.holders() == ["s1", "s2"]
    pair.lose = set()
    pair.merge("s1", "s3")
    pair.turns(60)
    assert pair.holders() == ["s3"]
    assert take(pair["s3"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]
    pair.close()


def test_an_offer_of_a_joined_and_forwarded_log_is_answered_done(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", "s3")
    split(pair)
    pair.lose = {"done"}
    pair.merge("s2", "s1")
    pair.turns(6)
    away = pair.stages.pop("s2")
    pair.lose = set()
    pair.merge("s1", "s3")
    pair.turns(30)
    assert pair.holders() == ["s3"]
    pair.stages["s2"] = away
    pair.turns(60)
    assert pair.holders() == ["s3"]
    assert pair["s1"].core.state.counters["topics_merged"] == 1
    assert take(pair["s3"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]
    pair.close()


def test_a_late_commit_does_not_join_a_topic_that_moved_elsewhere_meanwhile(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", "s3")
    split(pair)
    assert put(pair["s3"], "dora", 10, 0, b"dora1") == "success"
    pair.lose = {"commit"}
    pair.merge("s3", "s2")
    pair.turns(6)
    late = next(sent for sent in pair.given if (sent.step, sent.sender) == ("commit", "s3"))
    pair.lose = set()
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair.holders() == ["s1"], "s3 was told that s2 gives the topic to s1, and gave its own there too"
    pair["s2"].core.handle(Origin(LISTENER, b"s3", 0), late, pair["s2"].now)
    pair["s2"].loop()
    assert pair.holders() == ["s1"]
    pair.close()


def test_a_transfer_forgotten_in_the_loop_that_stores_it_leaves_the_disk(pair: Pair) -> None:
    split(pair)
    receiver = pair["s1"]
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(3)
    described, batches = [sent for sent in pair.given if sent.step == "chunk"][:2]
    offer = next(sent for sent in pair.given if sent.step == "offer")
    for steps in ((described,), (batches, replace(offer, transfer="0" * 16))):  # The giver began anew meanwhile.
        for step in steps:
            receiver.core.handle(Origin(LISTENER, b"s2", 0), step, receiver.now)
        receiver.loop()
    receiver.sleep(10)
    left = "select count(*) from batch where key >> 40 not in (select id from log)"
    assert receiver.store.db.execute(left).get == 0
    receiver.restart()
    assert receiver.put("new", 1).outcome is Outcome.SUCCESS, "its log would have the number of what is left"


def test_unneeded_messages_stay_in_a_topic_that_froze_before_the_answer(pair: Pair) -> None:
    """It may be somebody's at the server that it goes to."""
    giver = pair["s1"]
    pair["s2"].ask(Subscribe("eve", "t", 5, 5))
    giver.now += 1.0
    assert put(giver, "alice", 10, 0, b"alice1", b"alice2") == "success"
    giver.sent.clear()
    giver.sole_owner = None
    for stage in pair.stages.values():
        stage.now += 70.0
    pair.lose = {"chunk"}
    pair.merge("s1", "s2")
    pair.turns(3)
    assert giver.core.state.topics["t"].frozen
    for token in {out.source for out in giver.sent if isinstance(out.message, Owners)}:
        for proxy in (0, 1):
            giver.say(Status("p", Outcome.SUCCESS, body=b"t="), proxy=proxy, origin=b"", callback=token)
    giver.sleep(2.0)
    giver.restart()
    pair.lose = set()
    pair.turns(30)
    assert pair.holders() == ["s2"]
    assert take(pair["s2"], "eve") == [b"alice1", b"alice2"]


def test_a_returned_topic_is_announced_as_held_though_a_proxy_missed_its_absence(pair: Pair) -> None:
    stage = pair["s2"]
    stage.confirms = False
    split(pair)
    pair.merge("s2", "s1")
    pair.turns(30)
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s2"]
    stage.restart()
    stage.periodics()
    stage.loop()
    assert [one.topics for one in stage.periodics()] == [{"t": stage.core.state.topics["t"].open.id}] * 2


def test_an_outdated_merge_does_nothing(pair: Pair) -> None:
    split(pair)
    log = pair["s2"].core.state.topics["t"].open.id
    pair.merge("s2", "s1")
    pair.turns()
    pair["s1"].core.handle(Origin(0, b"", 0), Merge("p1", "t", ADDRESS["s2"], log), pair["s1"].now)
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]


def come_back_at(pair: Pair, name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is started again and has another address."""
    monkeypatch.setitem(ADDRESS, name, address)
    pair[name].settings = replace(pair[name].settings, advertise=address)
    pair[name].restart()


def test_a_slowly_arriving_topic_is_not_forgotten_while_chunks_come(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub.server.moves.receiving.IDLE_SECONDS", 1.0)
    monkeypatch.setattr("pubsub.server.moves.giving.WINDOW", 1)
    monkeypatch.setattr("pubsub.server.moves.chunks.CHUNK_BATCHES", 1)
    split(pair)
    for counter in range(20, 40):
        assert put(pair["s2"], "dora", counter, counter - 1 if counter > 20 else 0, b"%d" % counter) == "success"
    pair.merge("s2", "s1")
    pair.turns(40)
    assert pair.holders() == ["s1"]
    assert pair.steps.count("chunk") > 2 * 20
    assert len({step.transfer for step in pair.given}) == 1, "it travelled once"


@pytest.mark.parametrize("lost", ["chunk", "commit", "done"])
def test_a_receiver_that_returns_at_another_address_gets_the_rest_there(
    pair: Pair, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split(pair)
    pair.lose = {lost}
    pair.merge("s2", "s1")
    pair.turns(6)
    come_back_at(pair, "s1", "tcp://127.0.0.1:21", monkeypatch)
    pair.lose = set()
    pair.turns(20)
    assert pair.holders() == ["s1", "s2"]
    pair.merge("s2", "s1")  # Proxies say it again, as long as there are two holders.
    pair.turns(20)
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


def test_a_topic_offered_to_a_silent_server_is_given_to_no_other(tmp_path: Path) -> None:
    """That one may have joined it."""
    pair = Pair(tmp_path, "s1", "s2", "s3")
    split(pair)
    pair["s3"].ask(Subscribe("dan", "t", 5, 5))
    pair.lose = {"done"}
    pair.merge("s2", "s1")
    pair.turns(6)
    assert pair["s1"].core.state.counters["topics_merged"] == 1
    pair.lose = set()
    away = pair.stages.pop("s1")
    for _ in range(3):
        pair.turns(10)
        pair.merge("s2", "s3")
    pair.turns(10)
    assert pair.holders() == ["s2", "s3"]
    assert pair["s2"].core.state.topics["t"].frozen == ADDRESS["s1"]
    assert pair["s3"].core.state.counters["topics_merged"] == 0
    pair.stages["s1"] = away
    pair.turns(30)
    assert pair.holders() == ["s3", "s1"]
    pair.close()
