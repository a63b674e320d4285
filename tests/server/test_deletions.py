"""Deletions of topics at one server: what goes, what is refused, and what comes through restarts and transfers.

The rules are those of docs/explanation/deletion.md, UD2, UD4, UD5, UD6 and UD7.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Outcome, Subscribe
from pubsub.protocol.deletion_table import Deletion, DeletionTable
from pubsub.protocol.deletions import DELETED, NAME_THE_LOG, Deleted
from pubsub.protocol.purges import decode_found
from pubsub.protocol.topic_objects import Purge
from pubsub.server.state import undelivered
from tests.server.moving import Pair
from tests.server.stage import Stage
from tests.server.test_settings import configure


def tell(stage: Stage, *rows: Deletion, digest: str = "") -> Deleted:
    """Tell a server deletions as a proxy does; returns its answer. The proxies confirm that a topic left."""
    stage.confirms = True
    stage.say(Deleted("p", digest or DeletionTable(rows).digest, rows), origin=b"", callback=0)
    told = [out.message for out in stage.loop() if isinstance(out.message, Deleted)]
    stage.sleep(2.0)
    return told[-1]


def test_a_deletion_drops_the_topic_with_all_of_it_and_a_restart_keeps_the_number(stage: Stage) -> None:
    configure(stage, keep="ever")
    stage.subscribe("bob", "t", 5)
    log = stage.put("t", 1).log
    answer = tell(stage, Deletion("t", 7))
    assert (answer.digest, answer.rows) == (DeletionTable([Deletion("t", 7)]).digest, ())
    assert stage.core.state.topics == {}
    stage.restart()
    assert stage.core.state.topics == {}
    assert stage.core.state.deletions.numbers == {"t": 7}
    assert log


def test_a_repeat_of_a_deletion_leaves_the_topic_that_began_anew(stage: Stage) -> None:
    tell(stage, Deletion("t", 7))
    stage.subscribe("bob", "t", 5)
    tell(stage, Deletion("t", 7))
    tell(stage, Deletion("t", 6), digest="f" * 16)
    assert stage.core.state.topics["t"].subscriptions.keys() == {"bob"}
    tell(stage, Deletion("t", 8))
    assert stage.core.state.topics == {}


def test_a_proxy_that_lacks_a_deletion_is_told_all(stage: Stage) -> None:
    tell(stage, Deletion("t", 7))
    assert tell(stage).rows == (Deletion("t", 7),)


def test_a_new_publisher_must_name_the_log_and_a_late_put_from_before_does_not_come_back(stage: Stage) -> None:
    old = stage.put("t", 1)
    tell(stage, Deletion("t", 7))
    late = stage.put("t", 1)
    assert (late.outcome, late.reason) == (Outcome.GAP, NAME_THE_LOG)
    assert late.log not in {"", old.log}
    named_old = stage.put("t", 1, log=old.log)
    assert (named_old.outcome, named_old.reason) == (Outcome.GAP, NAME_THE_LOG)
    assert stage.put("t", 2, log=late.log).outcome is Outcome.SUCCESS
    assert stage.put("t", 3, previous=2).outcome is Outcome.SUCCESS
    assert stage.put("t", 1).outcome is Outcome.DUPLICATE


def test_a_client_of_an_earlier_release_names_the_log_as_one_to_avoid(stage: Stage) -> None:
    tell(stage, Deletion("t", 7))
    log = stage.put("t", 1).log
    assert stage.put("t", 1, avoid=log).outcome is Outcome.SUCCESS


def test_topics_with_other_names_need_no_log(stage: Stage) -> None:
    tell(stage, Deletion("t", 7))
    assert stage.put("u", 1).outcome is Outcome.SUCCESS


def test_a_subscriber_is_told_of_the_deletion_with_and_without_a_position(stage: Stage) -> None:
    for who in ("ann", "bob", "dan"):
        stage.subscribe(who, "t", 5)
    log = stage.put("t", 1).log
    stage.put("t", 2)
    tell(stage, Deletion("t", 7))
    for moment in ("without the topic", "after a restart", "beside the topic that began anew"):
        if moment == "after a restart":
            stage.restart()
        elif moment == "beside the topic that began anew":
            stage.subscribe("eve", "t", 1)
        for who, last, first in (("ann", None, (log, 1)), ("bob", (log, 1), (log, 2)), ("dan", (log, 2), None)):
            answer = stage.get(who, "t", last, 5)
            assert (answer.outcome, answer.reason, answer.position) == (Outcome.GONE, DELETED, None)
            assert (answer.number, answer.first, answer.message) == (5, first, first and (log, 2)), moment


def test_the_loss_of_a_subscription_that_this_server_did_not_delete_is_not_known(stage: Stage) -> None:
    stage.subscribe("ann", "t", 5)
    stage.subscribe("bob", "t", 5)
    stage.unsubscribe("bob", "t", 6)
    log = stage.put("t", 1).log
    tell(stage, Deletion("t", 7))
    assert stage.core.state.undelivered.rows.keys() == {("t", "ann")}
    answer = stage.get("ann", "t", (log, 1), 4)
    assert (answer.outcome, answer.number, answer.first, answer.message) == (Outcome.GONE, 0, None, None)


def test_the_loss_counts_from_what_was_acknowledged(stage: Stage) -> None:
    stage.subscribe("ann", "t", 5)
    log = stage.put("t", 1).log
    stage.get("ann", "t", (log, 1), 5, records_max=0)
    tell(stage, Deletion("t", 7))
    answer = stage.get("ann", "t", (log, 1), 5)
    assert (answer.number, answer.first, answer.message) == (5, None, None)


def test_a_new_subscription_ends_what_is_kept_of_the_earlier_one(stage: Stage) -> None:
    stage.subscribe("ann", "t", 5)
    tell(stage, Deletion("t", 7))
    assert stage.core.state.undelivered.rows.keys() == {("t", "ann")}
    stage.subscribe("ann", "t", 6)
    assert stage.core.state.undelivered.rows == {}
    stage.restart()
    assert stage.core.state.undelivered.rows == {}


def test_what_is_kept_of_ended_subscriptions_has_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undelivered, "UNDELIVERED_MAX", 2)
    for who in ("ann", "bob", "dan"):
        stage.subscribe(who, "t", 5)
    tell(stage, Deletion("t", 7))
    assert stage.core.state.undelivered.rows.keys() == {("t", "bob"), ("t", "dan")}
    stage.restart()
    assert stage.core.state.undelivered.rows.keys() == {("t", "bob"), ("t", "dan")}


def test_a_deletion_that_is_undone_keeps_no_loss(stage: Stage) -> None:
    stage.subscribe("ann", "t", 5)
    stage.fail_commit = True
    stage.say(Deleted("p", "", (Deletion("t", 7),)), origin=b"", callback=0)
    stage.loop()
    assert stage.core.state.undelivered.rows == {}
    assert stage.core.state.topics.keys() == {"t"}


def test_another_directory_of_a_subscriber_begins_at_the_end_of_the_topic_that_began_anew(stage: Stage) -> None:
    """The limit that docs/explanation/deletion.md states: its subscription went with the old topic."""
    stage.subscribe("ann", "t", 5)
    tell(stage, Deletion("t", 7))
    stage.subscribe("eve", "t", 5)
    log = stage.put("t", 1).log
    stage.put("t", 1, log=log)
    answer = stage.ask(Subscribe("ann", "t", 9, 9, continues=1))
    assert (answer.outcome, answer.position) == (Outcome.SUCCESS, (log, 1))


def test_the_question_counts_clients_once_and_ended_subscriptions_not(stage: Stage) -> None:
    stage.put("t", 1)
    stage.subscribe("ann", "t", 5)
    stage.subscribe("bob", "t", 5)
    stage.unsubscribe("bob", "t", 6)
    found = decode_found(bytes(stage.ask(Purge("ops", "t", 1)).body))
    assert (found.records, found.subscribers) == (1, 1)


def test_a_topic_is_moved_between_servers_that_know_the_same_deletions_only(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    tell(pair["s1"], Deletion("t", 7))
    pair["s1"].subscribe("bob", "t", 5)
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s1"]
    tell(pair["s2"], Deletion("t", 7))
    pair.turns(60)
    assert pair.holders() == ["s2"]
    assert {message.deletion for message in pair.given} == {7}
    pair.close()


def test_a_topic_from_before_a_deletion_is_not_merged_into_the_one_that_began_anew(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    pair["s1"].subscribe("old", "t", 5)
    tell(pair["s2"], Deletion("t", 7))
    pair["s2"].subscribe("new", "t", 5)
    pair.merge("s1", "s2")
    pair.turns()
    assert pair["s2"].core.state.topics["t"].subscriptions.keys() == {"new"}
    tell(pair["s1"], Deletion("t", 7))
    pair.turns()
    assert pair.holders() == ["s2"]
    assert pair["s2"].core.state.topics["t"].subscriptions.keys() == {"new"}
    pair.close()


def test_a_deletion_ends_a_transfer_on_either_side(tmp_path: Path) -> None:
    for side in ("s1", "s2"):
        pair = Pair(tmp_path / side, "s1", "s2")
        pair["s1"].subscribe("bob", "t", 5)
        pair.lose.add("commit")
        pair.merge("s1", "s2")
        pair.turns(5)
        tell(pair[side], Deletion("t", 7))
        pair.lose.clear()
        pair.turns()
        other = "s2" if side == "s1" else "s1"
        tell(pair[other], Deletion("t", 7))
        pair.turns(30)
        assert pair.holders() == []
        pair.close()
