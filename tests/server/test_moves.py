"""A topic on its way between two servers: real stores, a wire between them that the test holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pubsub.protocol import (
    Get,
    Merge,
    Outcome,
    Put,
    Records,
    Status,
    Subscribe,
    Transfer,
    Unsubscribe,
    encode_batch,
)
from pubsub.protocol.bodies import join_topics
from pubsub.protocol.messages import Read, Whole
from pubsub.server.state.replies import LISTENER, Origin, Outgoing
from pubsub.server.topic.notes import GIVEN
from pubsub.server.upkeep import retention
from tests.server.stage import STORE, Stage

ADDRESS = {"s1": "tcp://127.0.0.1:11", "s2": "tcp://127.0.0.1:12", "s3": "tcp://127.0.0.1:13"}


class Pair:
    """Servers that reach each other, one loop each in turn; `lose` drops a step on the wire."""

    def __init__(self, directory: Path, *names: str, **changed: Any) -> None:
        self.stages = {
            name: Stage(directory / name, id=name, advertise=ADDRESS[name], skew_seconds=0.0, **changed)
            for name in names
        }
        for stage in self.stages.values():
            stage.confirms = True
        self.lose: set[str] = set()
        self.crash: tuple[str, str] | None = None
        """(server, step): it is killed when it is about to send that step."""
        self.steps: list[str] = []
        self.given: list[Transfer] = []
        """What givers sent, lost or not."""

    def __getitem__(self, name: str) -> Stage:
        return self.stages[name]

    def turn(self) -> None:
        for name, stage in self.stages.items():
            stage.now += 0.3
            for out in stage.loop():
                self.carry(name, stage, out)

    def carry(self, name: str, stage: Stage, out: Outgoing) -> None:
        if not (isinstance(out.link, str) or out.link == LISTENER):
            return
        step = out.message.step if isinstance(out.message, Transfer) else "refusal"
        self.steps.append(step)
        if isinstance(out.link, str) and isinstance(out.message, Transfer):
            self.given.append(out.message)
        if self.crash == (name, step):
            self.crash = None
            stage.restart()
            return
        if step in self.lose:
            return
        if isinstance(out.link, str):
            to = next((server for server, address in ADDRESS.items() if address == out.link), "nobody")
            if to in self.stages:
                origin = Origin(LISTENER, name.encode(), out.source)
                self.stages[to].core.handle(origin, out.message, self.stages[to].now)
        else:
            giver = self.stages[out.origin.decode()]
            giver.core.handle(Origin(ADDRESS[name], b"", out.destination), out.message, giver.now)

    def turns(self, count: int = 30) -> None:
        for _ in range(count):
            self.turn()

    def merge(self, giver: str, receiver: str, topic: str = "t") -> None:
        self[giver].core.handle(Origin(0, b"", 0), Merge("p1", topic, ADDRESS[receiver]), self[giver].now)

    def holders(self, topic: str = "t") -> list[str]:
        return [name for name, stage in self.stages.items() if topic in stage.core.state.topics]

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, "s1", "s2")
    yield made
    made.close()


def put(stage: Stage, sender: str, counter: int, previous: int, *bodies: bytes) -> Outcome:
    return stage.ask(message(sender, counter, previous, *bodies)).outcome


def message(sender: str, counter: int, previous: int, *bodies: bytes) -> Put:
    body = encode_batch(bodies)
    return Put(sender, "t", counter, STORE, len(bodies), previous, crc32(body), body=body)


def take(stage: Stage, who: str, number: int = 5, last: tuple[str, int] | None = None) -> list[bytes]:
    """Everything a subscriber is still to receive."""
    out: list[bytes] = []
    while True:
        status = stage.ask(Get(who, "t", last, number, number, records_max=100))
        if status.outcome is not Outcome.SUCCESS:
            assert status.outcome is Outcome.EMPTY
            return out
        out += Records(bytes(status.body)).bodies()
        last = status.message


def split(pair: Pair) -> None:
    """Both hold the topic: bob and alice's puts at s1, eve and carl's at s2."""
    for name, subscriber, publisher in (("s1", "bob", "alice"), ("s2", "eve", "carl")):
        pair[name].ask(Subscribe(subscriber, "t", 5, 5))
        pair[name].now += 1.0
        assert put(pair[name], publisher, 10, 0, b"%s1" % publisher.encode(), b"%s2" % publisher.encode()) == "success"


def test_two_holders_become_one_and_everyone_gets_all_once(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


def test_what_was_put_in_the_loop_that_freezes_travels_too(pair: Pair) -> None:
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


def test_repeats_of_either_side_stay_recognised_and_chains_go_on(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    assert put(pair["s1"], "carl", 10, 0, b"carl1", b"carl2") is Outcome.DUPLICATE
    assert put(pair["s1"], "carl", 12, 11, b"carl3") is Outcome.SUCCESS
    assert put(pair["s1"], "alice", 20, 15, b"early") is Outcome.GAP


def test_positions_given_out_before_the_join_stay_valid(pair: Pair) -> None:
    split(pair)
    got = pair["s2"].ask(Get("eve", "t", None, 5, 5, records_max=1))
    pair.merge("s2", "s1")
    pair.turns()
    assert take(pair["s1"], "eve", last=got.message) == [b"carl2", b"alice1", b"alice2"]


def test_an_unsubscription_stays_one(pair: Pair) -> None:
    split(pair)
    pair["s1"].ask(Subscribe("eve", "t", 3, 3))
    pair["s2"].ask(Unsubscribe("eve", "t", 6, 6))
    pair.merge("s2", "s1")
    pair.turns()
    assert pair["s1"].ask(Get("eve", "t", None, 3, 3)).outcome is Outcome.SUPERSEDED


def test_a_frozen_topic_is_moved_and_a_waiting_subscriber_is_told(pair: Pair) -> None:
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


def test_a_put_that_waited_until_the_topic_was_known_to_be_whole_is_moved_where_it_froze_meanwhile(pair: Pair) -> None:
    giver = pair["s1"]
    giver.ask(Subscribe("bob", "t", 5, 5))
    giver.whole = None
    waiting = giver.say(replace(message("alice", 10, 0, b"one"), whole=1))
    pair.lose = {"commit"}
    pair.merge("s1", "s2")
    pair.turns(3)
    assert giver.core.state.topics["t"].frozen
    (token,) = {out.source for out in giver.sent if isinstance(out.message, Whole)}
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
def test_a_crash_of_either_at_any_step_is_repaired_by_repeating(tmp_path: Path, who: str, step: str) -> None:
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


def test_a_late_commit_does_not_join_what_has_only_begun_to_arrive(pair: Pair) -> None:
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


def test_a_topic_that_moves_there_and_back_is_whole_again(pair: Pair) -> None:
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


def test_an_offer_of_a_log_that_was_joined_is_answered_done_whatever_came_since(tmp_path: Path) -> None:
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


def test_an_offer_of_a_log_that_was_joined_and_given_on_is_answered_done(tmp_path: Path) -> None:
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


def test_what_was_arriving_when_the_topic_went_to_another_server_is_not_joined_by_a_late_commit(tmp_path: Path) -> None:
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


def test_what_was_found_to_be_nobodys_stays_where_the_topic_froze_before_the_answer(pair: Pair) -> None:
    """It may be somebody's at the server that it goes to."""
    giver = pair["s1"]
    pair["s2"].ask(Subscribe("eve", "t", 5, 5))
    giver.now += 1.0
    assert put(giver, "alice", 10, 0, b"alice1", b"alice2") == "success"
    giver.sent.clear()
    giver.whole = None
    for stage in pair.stages.values():
        stage.now += 70.0
    pair.lose = {"chunk"}
    pair.merge("s1", "s2")
    pair.turns(3)
    assert giver.core.state.topics["t"].frozen
    for token in {out.source for out in giver.sent if isinstance(out.message, Whole)}:
        for proxy in (0, 1):
            giver.say(Status("p", Outcome.SUCCESS, body=b"t="), proxy=proxy, origin=b"", callback=token)
    giver.sleep(2.0)
    giver.restart()
    pair.lose = set()
    pair.turns(30)
    assert pair.holders() == ["s2"]
    assert take(pair["s2"], "eve") == [b"alice1", b"alice2"]


def test_a_topic_that_came_back_is_announced_as_held_though_not_every_proxy_knows_that_it_was_away(pair: Pair) -> None:
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


def test_a_merge_that_is_out_of_date_does_nothing(pair: Pair) -> None:
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


@pytest.mark.parametrize("lost", ["chunk", "commit", "done"])
def test_a_receiver_that_comes_back_at_another_address_is_given_the_rest_there(
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


def test_a_topic_is_not_given_to_another_server_than_the_silent_one_it_was_offered_to(tmp_path: Path) -> None:
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


def test_what_was_given_away_leaves_the_disk_and_the_tombstone_stays(pair: Pair) -> None:
    split(pair)
    log = pair["s2"].core.state.topics["t"].open.id
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair["s2"].store.db.execute("select count(*) from batch").fetchall() == [(0,)]
    assert pair["s2"].store.reader.log_state(log) == "given"
    assert pair["s1"].store.reader.log_state(log) == "held"


def test_proxies_are_told_to_whom_a_topic_went_until_each_has_confirmed_to_know(pair: Pair) -> None:
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


def test_a_topic_that_is_begun_anew_where_it_was_given_from_is_not_whole_until_the_receiver_s_is_joined(
    pair: Pair,
) -> None:
    giver = pair["s2"]
    split(pair)
    log = giver.core.state.topics["t"].open.id
    giver.confirms = False
    pair.merge("s2", "s1")
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert put(giver, "dora", 10, 0, b"new") is Outcome.SUCCESS
    assert giver.core.state.topics["t"].contested == {log: "s1"}
    giver.restart()
    assert giver.core.state.topics["t"].contested == {log: "s1"}
    giver.confirms = True
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s2"]
    assert giver.core.state.topics["t"].contested == {}


def test_to_whom_a_topic_was_given_is_forgotten_on_the_disk_too_where_that_was_full_at_first(pair: Pair) -> None:
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


def test_what_was_given_away_is_deleted_where_the_disk_was_full_at_first(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_join_that_finds_the_disk_full_is_repeated_when_there_is_space(pair: Pair) -> None:
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


def test_who_asks_a_giver_for_what_it_just_gave_is_not_told_that_it_is_gone(pair: Pair) -> None:
    split(pair)
    giver = pair["s2"]
    log = giver.core.state.topics["t"].open.id
    pair.merge("s2", "s1")
    giver.confirms = False  # The proxies have not heard yet, and know of no other holder.
    pair.turns()
    assert pair.holders() == ["s1"]
    get = Get("eve", "t", (log, 1), 5, 5, records_max=10)
    assert giver.ask(get).outcome is Outcome.UNKNOWN
    late = message("carl", 12, 11, b"x")
    late.log = log
    assert giver.ask(late).outcome is Outcome.GAP
    giver.restart()
    assert giver.ask(get).outcome is Outcome.UNKNOWN


# What a merge stores of what either side had taken


def watermarks(stage: Stage) -> set[int]:
    """Numbers of the copies of `last` that the store holds."""
    return {number for (number,) in stage.store.db.execute("select distinct id from skip")}


def in_use(stage: Stage) -> set[int]:
    """Numbers of those that some span refers to."""
    topics = stage.core.state.topics.values()
    spans = [
        span
        for topic in topics
        for one in (topic.history, *(e.backlog for e in topic.subscriptions.values()))
        for span in one
    ]
    return {span.watermark for span in spans} - {0}


def overlap(pair: Pair) -> None:
    """Both hold the topic, and both have taken alice's first record; s1 alone her second, s2 alone carl's."""
    for name, subscriber in (("s1", "bob"), ("s2", "eve")):
        pair[name].ask(Subscribe(subscriber, "t", 5, 5))
        pair[name].now += 1.0
        assert put(pair[name], "alice", 10, 0, b"a1") == "success"
    assert put(pair["s1"], "alice", 11, 10, b"a2") == "success"
    assert put(pair["s2"], "carl", 20, 0, b"c1") == "success"


def test_copies_of_last_that_no_span_refers_to_are_not_kept(pair: Pair) -> None:
    split(pair)
    for round_ in range(5):
        for giver, receiver in (("s2", "s1"), ("s1", "s2")):
            pair.merge(giver, receiver)
            pair.turns()
            assert pair.holders() == [receiver]
            assert put(pair[receiver], "alice", 100 + round_ * 2 + (giver == "s1"), 0, b"x") == "success"
            assert watermarks(pair[receiver]) == in_use(pair[receiver])
            assert watermarks(pair[giver]) == set()
    assert len(take(pair["s2"], "bob")) == len(take(pair["s2"], "eve")) == 4 + 10


def test_copies_that_a_merge_makes_unused_are_not_kept(tmp_path: Path) -> None:
    trio = Pair(tmp_path, "s1", "s2", "s3")
    overlap(trio)
    trio.merge("s2", "s1")
    trio.turns()
    only_eve = {span.watermark for span in trio["s1"].core.state.topics["t"].subscriptions["eve"].backlog} - {0}
    assert only_eve < watermarks(trio["s1"])
    trio["s3"].ask(Subscribe("eve", "t", 9, 9))
    trio.merge("s3", "s1")
    trio.turns()
    assert watermarks(trio["s1"]) == in_use(trio["s1"])
    assert not only_eve & watermarks(trio["s1"])
    trio.close()


def test_copies_whose_deletion_was_taken_back_are_deleted_later(pair: Pair) -> None:
    overlap(pair)
    pair.merge("s2", "s1")
    pair.turns()
    assert in_use(pair["s1"])
    for subscriber in ("bob", "eve"):
        take(pair["s1"], subscriber)
    pair.turns(5)  # The acknowledgements are stored.
    assert watermarks(pair["s1"]) > in_use(pair["s1"]), "one of them waits to be deleted with what is trimmed next"
    pair["s1"].fail_commit = True  # The loop that reads the topic anew when it is taken back.
    assert put(pair["s1"], "alice", 12, 11, b"a3") == "full"
    pair["s1"].fail_commit = pair["s1"].core.state.full = False
    assert put(pair["s1"], "alice", 12, 11, b"a3") == "success"
    pair.turns(10)
    assert watermarks(pair["s1"]) == in_use(pair["s1"])


def test_a_store_that_kept_them_is_rid_of_them_at_its_next_start(pair: Pair) -> None:
    overlap(pair)
    pair.merge("s2", "s1")
    pair.turns()
    used = in_use(pair["s1"])
    assert used
    for number in (90, 91, 93):
        pair["s1"].store.db.executemany("insert into skip values (?,?,?)", [(number, 1, 5), (number, 2, 6)])
    pair["s1"].restart()
    pair.turns(10)
    assert watermarks(pair["s1"]) == in_use(pair["s1"]) == used
    assert take(pair["s1"], "bob") == [b"a1", b"a2", b"c1"]


def test_a_receiver_started_again_knows_what_each_side_had_taken(pair: Pair) -> None:
    overlap(pair)
    named = Subscribe("spark", "t", 7, 7, name="job", start="earliest")
    assert pair["s1"].ask(named).outcome is Outcome.SUCCESS
    pair.merge("s2", "s1")
    pair.turns()
    pair["s1"].restart()
    pair.turns(3)
    assert take(pair["s1"], "bob") == [b"a1", b"a2", b"c1"]
    assert take(pair["s1"], "eve") == [b"a1", b"c1", b"a2"]
    assert read(pair["s1"], "job") == [b"a1", b"a2", b"c1"]  # It has no second net: no client drops what came before.


def read(stage: Stage, name: str) -> list[bytes]:
    """Everything that a named subscription holds."""
    out: list[bytes] = []
    after = None
    ask = Read("spark", "t", None, name=name, records_max=100)
    while (status := stage.ask(replace(ask, after=after))).outcome is Outcome.SUCCESS:
        out += Records(bytes(status.body)).bodies()
        after = status.message
    assert status.outcome is Outcome.EMPTY
    return out


def answers(stage: Stage, asked: list[Outgoing], others: str) -> None:
    """Every proxy's answer to this question."""
    for out in asked:
        assert isinstance(out.message, Whole)
        body = join_topics(dict.fromkeys(out.message.topics or {}, others))
        stage.say(Status("p", Outcome.SUCCESS, body=body), proxy=int(out.link), origin=b"", callback=out.source)


def question(stage: Stage) -> list[Outgoing]:
    """What one loop asks all proxies."""
    asked = [out for out in stage.loop() if isinstance(out.message, Whole)]
    assert len(asked) == 2
    return asked


def test_a_log_that_is_used_up_while_another_question_about_it_is_open(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    s1 = pair["s1"]
    for who in ("bob", "eve"):
        s1.unsubscribe(who, "t", 6)
    s1.whole = None
    s1.now += 70.0
    first = question(s1)
    s1.core.retention.look_at("t")
    second = question(s1)
    answers(s1, first, "")
    while len(s1.core.state.topics["t"].logs) > 1:
        s1.loop()
    answers(s1, second, "s9.00000000000000ee")
    s1.loop()
    assert put(s1, "alice", 50, 0, b"later") == "success"


def test_what_both_of_a_first_merge_had_taken_is_not_doubled_by_a_second(tmp_path: Path) -> None:
    trio = Pair(tmp_path, "s1", "s2", "s3")
    trio["s1"].ask(Subscribe("bob", "t", 5, 5))
    for name in ("s1", "s2", "s3"):
        trio[name].now += 1.0
        trio[name].ask(Subscribe(f"at-{name}", "t", 5, 5))
        trio[name].now += 1.0
    for name in ("s2", "s3"):
        assert put(trio[name], "carl", 20, 0, b"c1") == "success"
    assert put(trio["s3"], "carl", 21, 20, b"c2") == "success"
    assert put(trio["s1"], "alice", 10, 0, b"a1") == "success"
    trio.merge("s3", "s2")
    trio.turns()
    trio.merge("s2", "s1")
    trio.turns()
    assert trio.holders() == ["s1"]
    trio["s1"].restart()  # What came along is stored, too.
    trio.turns(3)
    assert take(trio["s1"], "bob") == [b"a1", b"c1", b"c2"]
    assert take(trio["s1"], "at-s2") == [b"c1", b"c2", b"a1"]
    assert take(trio["s1"], "at-s3") == [b"c1", b"c2", b"a1"]
    trio.close()


@pytest.mark.parametrize("receiver", ["s1", "s2"])
def test_an_opening_that_either_side_fenced_off_stays_fenced_off(pair: Pair, receiver: str) -> None:
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    pair["s1"].ask(Get("bob", "t", None, 5, 9, records_max=0))  # bob was opened again: what he was before is over.
    pair["s2"].ask(Subscribe("bob", "t", 6, 6))
    pair.merge("s1" if receiver == "s2" else "s2", receiver)
    pair.turns()
    stage = pair[receiver]
    assert stage.ask(Get("bob", "t", None, 6, 6, records_max=9)).outcome is Outcome.SUPERSEDED
    stage.restart()
    assert stage.ask(Get("bob", "t", None, 6, 6, records_max=9)).outcome is Outcome.SUPERSEDED
    assert stage.ask(Get("bob", "t", None, 6, 9, records_max=9)).outcome is Outcome.EMPTY


def test_what_both_sides_held_does_not_fill_a_topic_once_its_subscribers_have_come_by_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", backlog_bytes_max=500)
    kept = b"k" * 400
    try:
        pair["s1"].ask(Subscribe("bob", "t", 5, 5))
        for stage in pair.stages.values():  # alice was not answered by s2, and put it again at s1.
            assert put(stage, "alice", 10, 0, kept) == "success"
        pair.merge("s2", "s1")
        pair.turns()
        server = pair["s1"]
        assert put(server, "alice", 11, 10, kept) == "full"  # bob has received nothing yet
        got = server.ask(Get("bob", "t", None, 5, 5, records_max=100))
        assert list(Records(bytes(got.body)).bodies()) == [kept]
        assert take(server, "bob", last=got.message) == []
        assert put(server, "alice", 11, 10, kept) == "success"
        server.sleep(1.0)
        server.restart()
        server.core.proxies.answered_once = True
        assert take(server, "bob", last=got.message) == [kept]
    finally:
        pair.close()


def test_what_both_sides_held_leaves_the_disk_though_nothing_comes_behind_it(pair: Pair) -> None:
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    for stage in pair.stages.values():
        assert put(stage, "alice", 10, 0, b"a") == "success"
    pair.merge("s2", "s1")
    pair.turns()
    server = pair["s1"]
    got = server.ask(Get("bob", "t", None, 5, 5, records_max=100))
    assert take(server, "bob", last=got.message) == []
    assert server.core.state.topics["t"].waiting(server.core.state.topics["t"].subscriptions["bob"].backlog) == 0
    server.sleep(server.settings.retention_hold_seconds + 10)
    assert [log.low for log in server.core.state.topics["t"].logs.values()] == [2]
    assert server.core.state.topics["t"].watermarks == {}
