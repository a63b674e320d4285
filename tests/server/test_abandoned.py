"""Clients with history at an abandoned holder continue; a holder that comes back is set aside.

The rules are those of docs/explanation/merge.md, M13 and M17.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Get, Operate, Outcome, Report, Status, Subscribe, Transfer
from pubsub.protocol.bodies import join_topics
from pubsub.server.state.replies import LISTENER, Origin
from tests.server.moving import ADDRESS, Pair, hear_who_has_it, message, take
from tests.server.named import everything
from tests.server.stage import Stage, bodies, put

DEAD = "d" * 16
"""A log that was given up."""


def shown(stage: Stage) -> dict[str, Any]:
    stage.now += 2.0
    return dict(json.loads(bytes(stage.ask(Report("op", "s1")).body)))


def tell_dead(stage: Stage, topic: str, log: str) -> None:
    """A proxy's answer to an announcement: the log was given up."""
    stage.say(Status("p1", Outcome.SUCCESS, body=join_topics({topic: log})), origin=b"", callback=0)
    stage.loop()


def abandoned(stage: Stage, topic: str, log: str = "", **facts: str) -> None:
    stage.say(Operate("p1", "s1", "abandoned", topic=topic, log=log, **facts), origin=b"", callback=0)
    stage.loop()


# Publishers


def test_a_put_with_a_gap_that_names_an_unknown_log_is_gone(stage: Stage) -> None:
    stage.put("t", 1)
    answer = stage.put("t", 50, previous=40, log=DEAD, sender="ann")
    assert answer.outcome is Outcome.GONE
    assert stage.put("t", 50, previous=0, log="", sender="ann").outcome is Outcome.SUCCESS


def test_a_put_with_an_unknown_log_to_an_unknown_topic_is_gone_and_makes_none(stage: Stage) -> None:
    assert stage.put("t", 50, previous=40, log=DEAD).outcome is Outcome.GONE
    assert stage.core.state.topics == {}


def test_a_put_without_a_gap_is_taken_with_any_named_log(stage: Stage) -> None:
    stage.put("t", 1)
    assert stage.put("t", 5, previous=1, log=DEAD).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("sole_owner", [False, None])
def test_a_put_with_an_unknown_log_is_a_gap_while_another_holder_may_exist(
    stage: Stage, sole_owner: bool | None
) -> None:
    log = stage.put("t", 1).log
    stage.sole_owner = sole_owner
    callback = stage.say(put("t", 50, previous=40, log=DEAD))
    stage.loop()
    stage.sleep(1.5)
    answer = stage.answered(callback)
    assert (answer.outcome, answer.last, answer.log) == (Outcome.GAP, 1, log)


def test_a_gap_in_a_log_that_is_held_is_a_gap(stage: Stage) -> None:
    log = stage.put("t", 1).log
    assert stage.put("t", 50, previous=40, log=log).outcome is Outcome.GAP
    assert stage.put("t", 50, previous=40).outcome is Outcome.GAP


# Subscribers


def test_a_position_in_an_unknown_log_is_gone(stage: Stage) -> None:
    stage.put("t", 1)
    answer = stage.get("bob", "t", (DEAD, 7), 5)
    assert (answer.outcome, answer.position) == (Outcome.GONE, None)


def test_a_position_in_an_unknown_topic_is_gone(stage: Stage) -> None:
    assert stage.get("bob", "t", (DEAD, 7), 5).outcome is Outcome.GONE


def test_a_known_subscription_gets_its_next_position_with_the_outcome_gone(stage: Stage) -> None:
    position = stage.subscribe("bob", "t", 5).position
    stage.put("t", 1, [b"a", b"b"])
    answer = stage.get("bob", "t", (DEAD, 7), 5)
    assert (answer.outcome, answer.position) == (Outcome.GONE, position)
    assert bodies(stage.get("bob", "t", answer.position, 5)) == [b"a", b"b"]


def test_an_older_request_is_superseded_not_gone(stage: Stage) -> None:
    stage.subscribe("bob", "t", 9)
    assert stage.get("bob", "t", (DEAD, 7), 5).outcome is Outcome.SUPERSEDED


def test_a_position_is_only_unknown_while_another_holder_may_exist(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sole_owner = False
    assert stage.get("bob", "t", (DEAD, 7), 5).outcome is Outcome.UNKNOWN


def test_a_position_in_a_held_log_is_not_gone(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    assert stage.get("ann", "t", (log, 0), 5).outcome is Outcome.UNKNOWN


# The copy that comes back


def test_a_topic_abandoned_here_is_set_aside_permanently(stage: Stage) -> None:
    log = stage.put("t", 1, [b"a"]).log
    stage.put("u", 1)
    stage.loop()
    stage.periodics()
    tell_dead(stage, "t", log)
    assert [said.topics for said in stage.periodics() if said.partial] in ([], [{"t": ""}, {"t": ""}])
    for _ in range(2):
        facts = shown(stage)
        assert list(facts["topics"]) == ["u"]
        assert [(one["topic"], one["log"]) for one in facts["quarantined_topics"]] == [("t", log)]
        assert facts["aside"] == facts["quarantined_topics"], "the old name stays for one release"
        stage.restart()
    (kept,) = stage.store.topics(quarantined=True)
    assert (kept.name, kept.open.end) == ("t", 2)
    assert [batch.offset for batch in stage.store.reader.batches(kept.open.number, 1, 2)] == [1]


def test_topics_set_aside_together_keep_one_order_after_a_restart(stage: Stage) -> None:
    logs = {name: stage.put(name, 1).log for name in ("a", "b", "c")}
    for name in ("c", "a", "b"):
        tell_dead(stage, name, logs[name])
    before = list(stage.core.state.quarantined)
    assert len(before) == 3
    stage.restart()
    assert stage.core.state.quarantined == before


def test_the_same_name_can_be_made_anew_beside_the_topic_set_aside(stage: Stage) -> None:
    log = stage.put("t", 1).log
    tell_dead(stage, "t", log)
    hear_who_has_it(stage)
    again = stage.put("t", 1)
    assert again.outcome is Outcome.SUCCESS
    assert again.log != log
    tell_dead(stage, "t", log)
    stage.restart()
    assert stage.core.state.topics["t"].open.id == again.log
    assert stage.core.state.topics["t"].last == {1: 1}


def test_a_topic_made_after_a_start_has_nothing_of_one_set_aside_before(stage: Stage) -> None:
    log = stage.put("t", 7, sender="ann").log
    tell_dead(stage, "t", log)
    stage.restart()
    stage.put("u", 1)
    stage.restart()
    assert stage.put("u", 5, sender="ann").outcome is Outcome.SUCCESS


def test_a_topic_made_anew_is_served_though_its_copy_was_held_back(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    assert stage.get("bob", "t", (log, 7), 5).outcome is Outcome.UNAVAILABLE, "a place beyond its end: held back"
    tell_dead(stage, "t", log)
    hear_who_has_it(stage)
    for counter in (1, 2):
        assert stage.put("t", counter, previous=counter - 1).outcome is Outcome.SUCCESS
        stage.restart()


def test_a_waiting_get_is_answered_when_its_topic_is_set_aside(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    waiting = stage.say(Get("bob", "t", None, 5, 5, records_max=1, wait_ms=9000))
    stage.loop()
    tell_dead(stage, "t", log)
    assert stage.answered(waiting).outcome is Outcome.UNAVAILABLE


def test_a_full_disk_sets_nothing_aside(stage: Stage) -> None:
    log = stage.put("t", 1).log
    stage.fail_commit = True
    tell_dead(stage, "t", log)
    stage.fail_commit = False
    assert (list(shown(stage)["topics"]), shown(stage)["quarantined_topics"]) == (["t"], [])
    tell_dead(stage, "t", log)
    assert shown(stage)["topics"] == {}


def test_a_log_that_was_joined_before_it_was_abandoned_stays(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    pair["s1"].put("t", 2, sender="bob")
    pair.merge("s2", "s1")
    pair.turns()
    tell_dead(pair["s1"], "t", log)
    abandoned(pair["s1"], "t", log, server="s2")
    assert pair.holders() == ["s1"]
    assert log in pair["s1"].core.state.topics["t"].logs


# Givers and receivers


def frozen(pair: Pair) -> str:
    """s2 has frozen the topic for s1, which went away; s2's log."""
    log = pair["s2"].put("t", 1, [b"a"]).log
    pair["s2"].subscribe("bob", "t", 5)
    pair["s2"].put("t", 2, [b"b"], previous=1)
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(5)
    assert pair["s2"].core.state.topics["t"].frozen == ADDRESS["s1"]
    assert pair["s2"].put("t", 3, previous=2).outcome is Outcome.MOVED
    return log


@pytest.mark.parametrize("restart", [False, True])
def test_a_giver_whose_receiver_was_abandoned_continues_in_a_new_log(pair: Pair, restart: bool) -> None:
    log = frozen(pair)
    giver = pair["s2"]
    if restart:
        giver.restart()
    abandoned(giver, "t", DEAD, server="s1", address=ADDRESS["s1"])
    answer = giver.put("t", 3, [b"c"], previous=2)
    assert answer.outcome is Outcome.SUCCESS
    assert answer.log != log
    giver.restart()
    assert bodies(giver.get("bob", "t", None, 5)) == [b"b", b"c"]
    assert giver.core.state.topics["t"].frozen == ""


def test_a_topic_whose_receiver_was_abandoned_is_complete_just_before_its_deletion(pair: Pair) -> None:
    """The receiver has merged it, and said so in a loop that found the disk full."""
    frozen(pair)
    giver = pair["s2"]
    pair.lose, giver.fail_commit = set(), True
    pair.turns(20)
    assert pair.holders() == ["s1", "s2"]
    giver.fail_commit = giver.core.state.full = False
    giver.sleep(1.0)
    abandoned(giver, "t", pair["s1"].core.state.topics["t"].open.id, server="s1", address=ADDRESS["s1"])
    assert giver.put("t", 3, [b"c"], previous=2).outcome is Outcome.SUCCESS
    giver.restart()
    assert bodies(giver.get("bob", "t", None, 5)) == [b"b", b"c"]


def test_a_topic_is_taken_back_once_for_repeated_reports(pair: Pair) -> None:
    frozen(pair)
    for _ in range(3):
        abandoned(pair["s2"], "t", DEAD, server="s1", address=ADDRESS["s1"])
    assert len(pair["s2"].core.state.topics["t"].logs) == 2
    pair.lose = set()
    pair.merge("s2", "s1")
    pair.turns(8)
    abandoned(pair["s2"], "t", DEAD, server="s1", address=ADDRESS["s1"])
    pair.turns()
    assert pair.holders() == ["s1"]


@pytest.mark.parametrize(("giver", "receiver"), [("s3", "s1"), ("s1", "s3")])
def test_a_reader_gets_all_messages_once_of_a_topic_taken_back_on_both_sides(
    tmp_path: Path, giver: str, receiver: str
) -> None:
    """s1 gave the topic to s2, was never told so, and took it back when s2 was given up; s2 had given it to s3."""
    pair = Pair(tmp_path, "s1", "s2", "s3")
    s1, s3 = pair["s1"], pair["s3"]
    s1.ask(Subscribe("bob", "t", 5, 5))
    assert s1.ask(message("alice", 10, 0, b"a1", b"a2")).outcome is Outcome.SUCCESS
    pair.lose = {"done"}
    pair.merge("s1", "s2")
    pair.turns(6)
    pair.lose = set()
    del pair.stages["s1"]
    pair.merge("s2", "s3")
    pair.turns(30)
    pair.stages.pop("s2").close()
    pair.stages["s1"] = s1
    abandoned(s1, "t", DEAD, server="s2", address=ADDRESS["s2"])
    assert s1.ask(message("alice", 12, 11, b"a3")).outcome is Outcome.SUCCESS
    assert s3.ask(message("dora", 10, 0, b"d1")).outcome is Outcome.SUCCESS
    s3.ask(Subscribe("spark", "t", 7, 7, name="archive", start="earliest"))
    pair.merge(giver, receiver)
    pair.turns(30)
    assert pair.holders() == [receiver]
    pair[receiver].restart()
    assert sorted(everything(pair[receiver])) == [b"a1", b"a2", b"a3", b"d1"]
    assert sorted(take(pair[receiver], "bob")) == [b"a1", b"a2", b"a3", b"d1"]
    pair.close()


def test_the_abandonment_of_another_holder_does_not_end_the_freeze(pair: Pair) -> None:
    frozen(pair)
    abandoned(pair["s2"], "t", DEAD, server="s7", address="tcp://127.0.0.1:77")
    assert pair["s2"].core.state.topics["t"].frozen


def test_a_restarted_giver_gives_nothing_before_a_proxy_has_answered(pair: Pair) -> None:
    frozen(pair)
    pair.lose = set()
    pair["s2"].restart()
    pair["s2"].confirms = False
    pair.turns(10)
    assert pair.holders() == ["s1", "s2"] or pair.holders() == ["s2"]
    assert "t" not in pair["s1"].core.state.topics
    pair["s2"].confirms = True
    pair["s2"].core.proxies.announce_all(pair["s2"].now)
    pair.turns()
    assert pair.holders() == ["s1"]


def test_an_abandoned_log_is_never_joined(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    pair["s1"].put("t", 2, sender="bob")
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    pair.turns(6)
    abandoned(pair["s1"], "t", log, server="s2")
    pair.lose = set()
    pair.turns()
    assert pair.holders() == ["s1"]
    assert [one["log"] for one in shown(pair["s2"])["quarantined_topics"]] == [log], "its giver is told"
    assert list(pair["s1"].core.state.topics["t"].logs) == [pair["s1"].core.state.topics["t"].open.id]
    pair["s1"].restart()
    offer = Transfer("s2", "t", "offer", "1" * 16, 0, log)
    pair["s1"].core.handle(Origin(LISTENER, b"s2", 99), offer, pair["s1"].now)
    pair["s1"].loop()
    assert pair["s1"].answered(99).outcome is Outcome.GONE


def test_a_log_abandoned_in_the_loop_that_would_join_it_is_not_joined(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    own = pair["s1"].put("t", 2, sender="bob").log
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    pair.turns(6)
    commit = next(sent for sent in pair.given if sent.step == "commit")
    receiver = pair["s1"]
    receiver.say(Operate("p1", "s1", "abandoned", topic="t", log=log, server="s2"), origin=b"", callback=0)
    receiver.core.handle(Origin(LISTENER, b"s2", 99), commit, receiver.now)
    receiver.loop()
    for _ in range(2):
        assert list(receiver.core.state.topics["t"].logs) == [own]
        receiver.restart()


def test_a_giver_sets_an_abandoned_topic_aside_on_the_receivers_answer(pair: Pair) -> None:
    """It would be frozen for ever: only that receiver may take it, and never will."""
    log = frozen(pair)
    abandoned(pair["s1"], "t", log, server="s2")
    pair.lose = set()
    for _ in range(2):
        pair.turns()
        assert pair.holders() == []
        assert [one["log"] for one in shown(pair["s2"])["quarantined_topics"]] == [log]
        pair["s2"].restart()


def test_an_unfrozen_topic_stays_though_its_receiver_refuses_it_as_abandoned(pair: Pair) -> None:
    """It may have been served since: it is refused there, and goes on here."""
    log = pair["s2"].put("t", 1, [b"a"]).log
    abandoned(pair["s1"], "t", log, server="s2")
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s2"]
    assert pair["s2"].put("t", 2, [b"b"], previous=1).outcome is Outcome.SUCCESS


def test_a_proxy_that_names_an_abandoned_holder_is_informed(stage: Stage) -> None:
    stage.put("t", 1)
    abandoned(stage, "t", DEAD, server="s2")
    for restart in (False, True):
        if restart:
            stage.restart()
        stage.sent.clear()
        stage.say(Status("p2", Outcome.SUCCESS, body=join_topics({"t": f"s2.{DEAD}"})), proxy=1, origin=b"", callback=0)
        stage.loop()
        told = [(out.link, out.message) for out in stage.sent if isinstance(out.message, Operate)]
        assert told == [(1, Operate("s1", "-", "abandoned", topic="t", server="s2", log=DEAD))]
        assert stage.core.state.topics["t"].contested == {}


def test_a_proxy_that_names_a_holder_with_an_unknown_log_is_not_informed(stage: Stage) -> None:
    log = stage.put("t", 1).log
    stage.say(Status("p1", Outcome.SUCCESS, body=join_topics({"t": f"s1.{log},s2.{DEAD}"})), origin=b"", callback=0)
    stage.loop()
    assert not [out for out in stage.sent if isinstance(out.message, Operate)]


@pytest.mark.parametrize("restart", [False, True])
def test_no_topic_is_given_to_a_holder_that_does_not_know_of_its_abandonment(pair: Pair, restart: bool) -> None:
    """It would set aside what it was given together with what it had."""
    s1, s2 = pair["s1"], pair["s2"]
    log = s1.put("t", 1, [b"lost"], sender="ann").log
    s1.loop()
    s2.subscribe("bob", "t", 5)
    s2.put("t", 1, [b"kept"])
    if restart:  # The giver does not know of it either, and the receiver has heard no proxy since its start.
        s1.confirms = False
        s1.restart()
    else:
        abandoned(s2, "t", log, server="s1")
    pair.merge("s2", "s1")
    pair.turns(4)
    assert s2.core.state.topics["t"].frozen == ""
    s1.confirms = True
    tell_dead(s1, "t", log)
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert bodies(s1.get("bob", "t", None, 5)) == [b"kept"]


def test_a_report_of_an_abandoned_holder_is_accepted_from_proxies_only(stage: Stage) -> None:
    """They see that nobody hears it; whoever else says so has its request passed on by one, with a client's origin."""
    stage.put("t", 1)
    for log in (DEAD, ""):
        told = Operate("p1", "s1", "abandoned", topic="t", server="s2", log=log)
        assert stage.ask(told).outcome is Outcome.REFUSED
    assert stage.core.state.reader.log_state(DEAD).new


def test_a_client_cannot_make_a_server_take_a_topic_back(pair: Pair) -> None:
    frozen(pair)
    told = Operate("p1", "s2", "abandoned", topic="t", server="s1", address=ADDRESS["s1"])
    assert pair["s2"].ask(told).outcome is Outcome.REFUSED
    assert pair["s2"].core.state.topics["t"].frozen == ADDRESS["s1"]
