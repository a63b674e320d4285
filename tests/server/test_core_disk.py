"""The answers of a server on a full disk and about a damaged store, and the state after both."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import StoreFull
from pubsub.protocol import Get, Message, Outcome, Put, Status, Subscribe, encode_batch
from pubsub.server.group_commit import GroupCommit
from pubsub.server.storage.store import Store
from tests.server.stage import Stage, bodies, put

# A full disk


def test_a_full_disk_is_answered_with_a_retry_and_changes_nothing(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a"])
    change = stage.core.state.change
    stage.sleep(6)
    stage.periodics()
    stage.fail_commit = True
    requests: list[Message] = [
        put("t", 2, [b"b"], previous=1),
        put("t", 2, [b"b"], previous=1),  # would be a duplicate
        put("t", 9, previous=8),  # would be a gap
        put("u", 1, sender="carol"),
        put("v", 4, previous=3),
        Subscribe("carol", "u", 7, 7),
        Subscribe("bob", "t", 6, 6),
        Get("carol", "u", None, 7, 7),
        Get("carol", "u", None, 8, 8),  # would be unknown, naming a log that never was
        Get("bob", "t", None, 6, 6),
    ]
    callbacks = [stage.say(request) for request in requests]
    stage.loop()
    answers = [stage.answer(callback) for callback in callbacks]
    facts = {(a.outcome, a.reason, a.last, a.log, a.position) for a in answers if a}
    assert facts == {(Outcome.FULL, "disk", -1, "", None)}
    stage.fail_commit = stage.core.state.full = False
    assert set(stage.core.state.topics) == {"t"}
    assert stage.core.state.change >= change
    assert stage.put("t", 2, [b"b"], previous=1).outcome is Outcome.SUCCESS
    assert bodies(stage.get("bob", "t", (log, 0), 5)) == [b"a", b"b"]
    assert stage.put("u", 1, sender="carol").outcome is Outcome.SUCCESS


def test_a_reverted_loop_announces_nothing_that_did_not_come_to_be(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(4.95)
    stage.periodics()
    stage.fail_commit = True
    stage.now += 0.1
    stage.say(put("u", 1, sender="carol"))
    stage.loop()  # the announcement of all was due in the very loop that made the topic
    assert stage.periodics() == []
    stage.fail_commit = False
    stage.loop()
    announced = stage.periodics()
    assert [(set(message.topics or {}), message.partial) for message in announced] == [({"t"}, 0)] * 2
    stage.core.state.full = False
    stage.put("t", 2, previous=1)
    stored = stage.core.state.change
    stage.restart()
    assert stage.core.state.change == stored
    assert all(message.change <= stored for message in announced)


def test_change_numbers_that_were_announced_survive_a_crash_after_a_full_disk(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(6)
    stage.fail_commit = True
    stage.say(put("t", 2))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    stage.sleep(6)
    highest = max(message.change for message in stage.periodics())
    stage.restart()
    assert stage.core.state.change >= highest


def test_a_full_disk_permits_reading_acknowledging_and_leaving(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    stage.put("t", 1, [b"a", b"b"])
    stage.core.state.full = True
    assert (stage.put("t", 9).outcome, stage.put("t", 9).reason) == (Outcome.FULL, "disk")
    assert stage.put("t", 1, [b"a", b"b"]).outcome is Outcome.DUPLICATE
    assert stage.subscribe("dave", "t", 5).outcome is Outcome.FULL
    assert stage.unsubscribe("dave", "t", 5).outcome is Outcome.FULL
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"b"]
    assert stage.unsubscribe("carol", "t", 6).outcome is Outcome.SUCCESS
    stage.sleep(0.3)
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"b"]
    assert not stage.core.state.topics["t"].subscriptions["carol"].on


def test_publishers_of_a_reverted_loop_get_new_numbers(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a"], sender="p1")
    stage.fail_commit = True
    stage.say(put("t", 1, [b"never"], sender="p2"))
    stage.say(put("t", 1, [b"never"], sender="p3"))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    stage.put("t", 1, [b"c"], sender="p3")
    stage.put("t", 1, [b"b"], sender="p2")
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"a", b"c", b"b"]
    for sender in ("p1", "p2", "p3"):
        assert stage.put("t", 1, sender=sender).outcome is Outcome.DUPLICATE


def test_a_waiting_get_of_a_reverted_loop_still_excludes_earlier_openings(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    waiting = stage.say(Get("bob", "t", None, 5, 9, records_max=10, wait_ms=10_000))
    stage.fail_commit = True
    stage.loop()
    assert stage.answer(waiting) is None
    stage.fail_commit = False
    stage.group_commit.check_full(stage.now + 1.0)
    stage.put("t", 1, [b"1"])
    assert bodies(stage.answered(waiting)) == [b"1"]
    assert stage.get("bob", "t", None, 5, epoch=5).outcome is Outcome.SUPERSEDED, "both would take it"


def test_a_get_that_waits_outlives_a_reverted_loop(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    waiting = stage.say(Get("bob", "t", None, 5, 5, wait_ms=60_000))
    stage.loop()
    stage.fail_commit = True
    stage.say(put("t", 1, [b"never"]))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    assert stage.answer(waiting) is None  # Nothing is handed out before the commit, so it goes on waiting.
    stage.put("t", 1, [b"a"])
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"a"]


# A damaged store


def damage(stage: Stage, offset: int, assignment: str = "body = zeroblob(length(body))") -> None:
    log = stage.core.state.topics["t"].open.number
    stage.store.db.execute(f"update batch set {assignment} where key = ?", (log << 40 | offset,))
    stage.restart()  # so that it is not read from memory


@pytest.mark.parametrize(
    "assignment", ["body = zeroblob(length(body))", "body = x''", "checksum = 1", "publisher = 99", "count = 77"]
)
def test_a_damaged_batch_is_lost_and_the_others_keep_being_served(stage: Stage, assignment: str) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    for counter in (1, 2, 3):
        stage.put("t", counter, [b"%d" % counter])
    damage(stage, 2, assignment)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"1"]
    for _ in range(2):
        answer = stage.get("bob", "t", (log, 1), 5)
        assert (answer.outcome, answer.first) == (Outcome.LOST, (log, 2))
        stage.restart()
    assert answer.message is not None
    if assignment != "count = 77":
        assert answer.message == (log, 2)
        assert bodies(stage.get("bob", "t", (log, 2), 5)) == [b"3"]
    assert bodies(stage.get("carol", "t", None, 5)) == [b"1"]
    assert stage.put("t", 4, [b"4"]).outcome is Outcome.SUCCESS
    assert bodies(stage.get("bob", "t", answer.message, 5))[-1] == b"4"
    assert stage.store.db.execute("select count(*) from quarantine").fetchone() == (1,)


def test_missing_batches_are_lost_as_one(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    for counter in range(1, 6):
        stage.put("t", counter, [b"%d" % counter])
    number = stage.core.state.topics["t"].open.number
    stage.store.db.execute("delete from batch where key in (?, ?)", (number << 40 | 2, number << 40 | 3))
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"1"]
    answer = stage.get("bob", "t", (log, 1), 5)
    assert (answer.outcome, answer.first, answer.message) == (Outcome.LOST, (log, 2), (log, 3))
    assert bodies(stage.get("bob", "t", answer.message, 5)) == [b"4", b"5"]


def test_damage_is_answered_also_where_nothing_can_be_set_aside(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    damage(stage, 1)
    stage.fail_commit = True
    answer = stage.get("bob", "t", None, 5)
    assert answer.outcome is Outcome.FULL  # a retry: nothing untrue was said
    stage.fail_commit = False
    assert stage.get("bob", "t", None, 5).outcome is Outcome.LOST
    # It is set aside now, so that no trimming frees what its row leads to.
    assert stage.store.db.execute("select count(*) from quarantine").get == 1


def test_a_topic_that_cannot_be_read_anew_after_a_full_disk_is_held_back_and_others_are_served(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"1"])
    stage.put("u", 1)
    stage.store.db.execute("update subscription set backlog = '?'")
    stage.fail_commit = True
    assert stage.put("t", 2, [b"2"], previous=1).outcome is Outcome.FULL
    stage.fail_commit = False
    stage.sleep(1.0)
    stage.group_commit.check_full(stage.now)
    assert stage.subscribe("carol", "t", 7).outcome is Outcome.UNAVAILABLE, "it would be a topic without anything"
    assert stage.get("bob", "t", (log, 1), 5).outcome is Outcome.UNAVAILABLE
    assert stage.put("u", 2, previous=1).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("facts", [{}, {"last": NUMBER_MAX}, {"body": encode_batch([b"x"])}])
def test_any_status_from_a_proxy_leaves_the_server_alive(stage: Stage, facts: dict[str, Any]) -> None:
    for outcome in Outcome:
        if outcome in {Outcome.TAKEN, Outcome.STALE}:
            continue
        for callback in (0, 16, 17, NUMBER_MAX):
            stage.say(Status("p1", outcome, **facts), origin=b"", callback=callback)
    stage.loop()
    assert isinstance(put("t", 1), Put)
    assert stage.put("t", 1).outcome is Outcome.SUCCESS


def test_a_server_with_a_reserve_starts_on_a_full_disk(stage: Stage) -> None:
    class Disk(Store):
        def commit(self) -> None:
            if reserve.held:
                raise StoreFull(str(self.path), "no space, says the test")
            super().commit()

    class Reserve:
        size, held = 1, True

        def make(self) -> bool:
            self.held = True
            return True

        def release(self) -> None:
            self.held = False

    reserve = Reserve()
    stage.close()
    store = Disk(stage.settings.directory)
    GroupCommit(stage.settings, store, reserve, Random(1), 100.0, 2e9)
    assert reserve.held
    store.close()
    stage.open()
