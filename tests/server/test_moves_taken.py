"""The records that a merge stores of each side's taken messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pubsub.protocol import (
    Get,
    Outcome,
    Records,
    Status,
    Subscribe,
)
from pubsub.protocol.bodies import join_topics
from pubsub.protocol.messages import Read
from pubsub.protocol.transfers import Owners
from pubsub.server.state.replies import Outgoing
from pubsub.server.topic.changes import WatermarkDropped
from pubsub.server.topic.delivery import collect
from tests.server import named
from tests.server.moving import Pair, message, put, split, take
from tests.server.stage import Stage


def watermarks(stage: Stage) -> set[int]:
    """Numbers of the copies of `last` that the store holds."""
    return {number for (number,) in stage.store.db.execute("select distinct id from watermark")}


def in_use(stage: Stage) -> set[int]:
    """Numbers of those that some span refers to."""
    topics = stage.core.state.topics.values()
    spans = [
        span
        for topic in topics
        for one in (topic.history, *(e.cursor.backlog for e in topic.subscriptions.values()))
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


def test_unreferenced_copies_of_last_are_not_kept(pair: Pair) -> None:
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
    only_eve = {span.watermark for span in trio["s1"].core.state.topics["t"].subscriptions["eve"].cursor.backlog} - {0}
    assert only_eve < watermarks(trio["s1"])
    trio["s3"].ask(Subscribe("eve", "t", 9, 9))
    trio.merge("s3", "s1")
    trio.turns()
    assert watermarks(trio["s1"]) == in_use(trio["s1"])
    assert not only_eve & watermarks(trio["s1"])
    trio.close()


def test_copies_whose_deletion_was_reverted_are_deleted_later(pair: Pair) -> None:
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


def test_copies_that_a_full_disk_keeps_are_deleted_once(pair: Pair) -> None:
    server = pair["s1"]
    for number in (90, 91, 93):
        server.store.db.execute("insert into watermark values (?,1,5)", (number,))
    server.restart()
    server.fail_commit = True
    pair.turns(20)
    server.fail_commit = server.core.state.full = False
    server.commits = []
    pair.turns(10)
    dropped = [change for commit in server.commits for change in commit.changes if isinstance(change, WatermarkDropped)]
    assert [change.watermark for change in dropped] == [90, 91, 93]


def test_copies_in_an_older_store_are_deleted_at_its_next_start(pair: Pair) -> None:
    overlap(pair)
    pair.merge("s2", "s1")
    pair.turns()
    used = in_use(pair["s1"])
    assert used
    for number in (90, 91, 93):
        pair["s1"].store.db.executemany("insert into watermark values (?,?,?)", [(number, 1, 5), (number, 2, 6)])
    pair["s1"].restart()
    pair.turns(10)
    assert watermarks(pair["s1"]) == in_use(pair["s1"]) == used
    assert take(pair["s1"], "bob") == [b"a1", b"a2", b"c1"]


def test_copies_that_a_topic_set_aside_refers_to_are_kept(pair: Pair) -> None:
    overlap(pair)
    pair.merge("s2", "s1")
    pair.turns()
    stage = pair["s1"]
    stage.say(
        Status("p1", Outcome.SUCCESS, body=join_topics({"t": stage.core.state.topics["t"].open.id})),
        origin=b"",
        callback=0,
    )
    stage.loop()
    assert "t" not in stage.core.state.topics
    for _ in range(2):
        stage.restart()
        stage.sleep(10.0)
        (aside,) = stage.store.topics(quarantined=True)
        found = collect(aside, aside.history, stage.store.reader, stage.core.state.publishers.names, 100, 1 << 20)
        assert list(Records(found.body).bodies()) == [b"a1", b"a2", b"c1"]


def test_a_restarted_receiver_knows_the_counters_of_both_sides(pair: Pair) -> None:
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
        assert isinstance(out.message, Owners)
        body = join_topics(dict.fromkeys(out.message.topics or {}, others))
        stage.say(Status("p", Outcome.SUCCESS, body=body), proxy=int(out.link), origin=b"", callback=out.source)


def question(stage: Stage) -> list[Outgoing]:
    """What one loop asks all proxies."""
    asked = [out for out in stage.loop() if isinstance(out.message, Owners)]
    assert len(asked) == 2
    return asked


def test_a_log_may_be_used_up_during_another_question_about_it(pair: Pair) -> None:
    split(pair)
    pair.merge("s2", "s1")
    pair.turns()
    s1 = pair["s1"]
    for who in ("bob", "eve"):
        s1.unsubscribe(who, "t", 6)
    s1.sole_owner = None
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


def test_a_restarted_receiver_knows_logs_used_up_before_they_came(tmp_path: Path) -> None:
    """Who names one of them has lost nothing with it, and is not told that it is gone."""
    trio = Pair(tmp_path, "s1", "s2", "s3")
    put(trio["s3"], "carl", 20, 0, b"c1")
    used_up = trio["s3"].core.state.topics["t"].open.id
    trio.merge("s3", "s2")
    trio.turns()
    trio["s2"].sleep(200.0)
    assert trio["s2"].core.state.topics["t"].merged == {used_up}
    trio["s1"].now = trio["s2"].now
    put(trio["s1"], "alice", 10, 0, b"a1")
    trio.merge("s2", "s1")
    trio.turns()
    assert trio.holders() == ["s1"]
    for _ in range(2):
        late = message("eve", 50, 40, b"e2")
        late.log = used_up
        assert trio["s1"].ask(late).outcome is Outcome.GAP
        trio["s1"].restart()
        trio["s1"].core.proxies.answered_once = True
    trio.close()


def test_a_second_merge_does_not_double_messages_of_the_first(tmp_path: Path) -> None:
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


def test_a_waiting_get_receives_the_messages_of_a_second_merge(tmp_path: Path) -> None:
    """All that the first one brought was put before it subscribed: the GET has come by that, and waits behind it."""
    trio = Pair(tmp_path, "s1", "s2", "s3")
    s1, s3 = trio["s1"], trio["s3"]
    assert put(trio["s2"], "carl", 20, 0, b"c1") == "success"
    for stage in trio.stages.values():
        stage.now += 1.0
    s1.ask(Subscribe("bob", "t", 5, 5))
    waiting = s1.say(Get("bob", "t", None, 5, 5, records_max=100, wait_ms=10_000))
    trio.merge("s2", "s1")
    trio.turns(10)
    assert s1.answer(waiting) is None
    assert put(s3, "dora", 30, 0, b"d1") == "success"
    trio.merge("s3", "s1")
    trio.turns(10)
    assert trio.holders() == ["s1"]
    assert put(s1, "alice", 10, 0, b"a1") == "success"
    first = s1.answered(waiting)
    assert [*Records(bytes(first.body)).bodies(), *take(s1, "bob", last=first.message)] == [b"d1", b"a1"]
    trio.close()


def test_a_named_subscription_from_the_end_gets_later_messages_of_the_other_side(pair: Pair) -> None:
    for sender, name in (("carl", "s2"), ("alice", "s1")):
        assert put(pair[name], sender, 10, 0, b"%s's old one" % sender.encode()) == "success"
        pair[name].now += 1.0
    for start in ("latest", "earliest"):
        assert named.make(pair["s1"], start, name=start).outcome is Outcome.SUCCESS
    pair["s2"].now = pair["s1"].now = max(stage.now for stage in pair.stages.values()) + 1.0
    for sender, name in (("carl", "s2"), ("alice", "s1")):
        assert put(pair[name], sender, 11, 10, b"%s's new one" % sender.encode()) == "success"
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    pair["s1"].restart()
    pair.turns(3)
    assert read(pair["s1"], "latest") == [b"alice's new one", b"carl's new one"]
    assert sorted(read(pair["s1"], "earliest")) == sorted(
        b"%s's %s one" % (who, age) for who in (b"alice", b"carl") for age in (b"new", b"old")
    )


@pytest.mark.parametrize("receiver", ["s1", "s2"])
def test_an_opening_superseded_on_either_side_stays_superseded(pair: Pair, receiver: str) -> None:
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


def test_messages_of_both_sides_do_not_fill_a_topic_after_its_subscribers_passed_them(tmp_path: Path) -> None:
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


def test_messages_of_both_sides_leave_the_disk_without_further_messages(pair: Pair) -> None:
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    for stage in pair.stages.values():
        assert put(stage, "alice", 10, 0, b"a") == "success"
    pair.merge("s2", "s1")
    pair.turns()
    server = pair["s1"]
    got = server.ask(Get("bob", "t", None, 5, 5, records_max=100))
    assert take(server, "bob", last=got.message) == []
    assert server.core.state.topics["t"].waiting(server.core.state.topics["t"].subscriptions["bob"].cursor.backlog) == 0
    server.sleep(server.settings.retention_hold_seconds + 10)
    assert [log.low for log in server.core.state.topics["t"].logs.values()] == [2]
    assert server.core.state.topics["t"].watermarks == {}


@pytest.mark.parametrize("to", ["s1", "s2"])
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_read_one_of_two_subscriptions_of_one_request_continues(
    pair: Pair, to: str, acknowledged: bool, restarted: bool
) -> None:
    """s1 made it, and its answer was lost; s2, which had not heard of that, made it for the next try and was read."""
    for name in ("s1", "s2"):
        assert named.make(pair[name]).outcome is Outcome.SUCCESS
    put(pair["s2"], "eve", 1, 0, b"e1", b"e2")
    (leg,) = named.plan(pair["s2"], None)["legs"]
    done = leg[0], 2
    assert named.everything(pair["s2"], None, done) == [b"e1", b"e2"]
    if acknowledged:
        named.acknowledge(pair["s2"], done)
    put(pair["s1"], "bob", 1, 0, b"b1")
    if restarted:
        for name in ("s1", "s2"):
            pair[name].restart()
    pair.merge("s2" if to == "s1" else "s1", to)
    pair.turns()
    assert pair.holders() == [to]
    assert named.everything(pair[to], done) == [b"b1"]
    kept = acknowledged and not restarted  # An acknowledgement becomes durable with the next change.
    assert named.everything(pair[to], None) == ([b"b1"] if kept else [b"e1", b"e2", b"b1"])


def test_a_named_subscription_is_not_used_by_the_use_of_an_earlier_one_of_its_name(pair: Pair) -> None:
    for name, number in (("s1", 9), ("s2", 7)):
        assert named.make(pair[name], number=number).outcome is Outcome.SUCCESS
        put(pair[name], "eve", 1, 0, b"e1")
    named.everything(pair["s2"], named.plan(pair["s2"], None)["position"])
    assert pair["s2"].core.state.topics["t"].subscriptions["@archive"].consumer.used
    pair.merge("s2", "s1")
    pair.turns()
    joined = pair["s1"].core.state.topics["t"].subscriptions["@archive"]
    assert (joined.number, joined.consumer.used) == (9, False)
    named.everything(pair["s1"], joined.cursor.acknowledged)
    assert joined.consumer.used
