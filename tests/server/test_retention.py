"""When batches go: after the hold, when no span holds them, while the topic is whole.

The rules are those of docs/explanation/retention.md, T1, T2, T4 and T5.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from pubsub.protocol import Outcome, Read, Subscribe
from pubsub.protocol.transfers import Owners
from pubsub.server.topic.changes import LogTrimmed
from pubsub.server.topic.policy import Policy
from pubsub.server.topic.spans import Span
from pubsub.server.upkeep import retention
from pubsub.server.upkeep.keeping import cut
from tests.server.moving import Pair
from tests.server.stage import Stage, bodies, put
from tests.server.test_sinks import counted, publish, write


def stored(stage: Stage, topic: str = "t") -> list[int]:
    """Offsets of the topic's batches on the disk."""
    log = stage.core.state.topics[topic].open.number
    rows = stage.store.db.execute("select key & 0xffffffffff from batch where key >> 40 = ? order by key", (log,))
    return [offset for (offset,) in rows]


def stored_keys(stage: Stage) -> list[int]:
    """Offsets of all batches on the disk, whatever log they are of."""
    return [offset for (offset,) in stage.store.db.execute("select key & 0xffffffffff from batch order by key")]


def test_a_topic_without_subscribers_keeps_nothing_beyond_the_hold(stage: Stage) -> None:
    for counter in range(1, 6):
        stage.put("t", counter)
        stage.sleep(10)
    stage.sleep(9)
    assert stored(stage) == [1, 2, 3, 4, 5]
    stage.sleep(6)
    assert 1 not in stored(stage)
    stage.sleep(60)
    assert stored(stage) == []
    topic = stage.core.state.topics["t"]
    assert (topic.open.low, topic.open.end, topic.history) == (6, 6, (Span(topic.open.id, 6),))
    stage.restart()
    topic = stage.core.state.topics["t"]
    assert (topic.open.low, topic.open.end, topic.history) == (6, 6, (Span(topic.open.id, 6),))
    assert stage.put("t", 5).outcome is Outcome.DUPLICATE
    assert stage.put("t", 6).outcome is Outcome.SUCCESS
    assert stored(stage) == [6]


def test_retention_asks_each_topic_for_its_own_policy_and_then_its_cursors(stage: Stage) -> None:
    log = stage.subscribe("bob", "read", 5).log
    for name in ("short", "long", "read"):
        stage.put(name, 1)
    policy = stage.core.state.topics["long"].policy
    assert policy == Policy(stage.settings.retention_hold_seconds, stage.settings.history_bytes_max)
    stage.core.state.topics["long"].policy = replace(policy, keep_seconds=500.0)
    stage.sleep(300)

    def held(name: str) -> bool:
        topic = stage.core.state.topics[name]
        return topic.open.low < topic.open.end

    assert {name: held(name) for name in ("short", "long", "read")} == {"short": False, "long": True, "read": True}
    stage.get("bob", "read", (log, 1), 5)
    stage.sleep(300)
    assert not any(held(name) for name in ("short", "long", "read"))


def test_messages_with_a_waiting_subscriber_stay(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b"])
    stage.put("t", 3, [b"c"])
    stage.sleep(200)
    assert stored(stage) == [1, 3]
    stage.get("bob", "t", (log, 1), 5)
    stage.sleep(20)
    assert stored(stage) == [1, 3]  # "b" is in the first batch
    stage.get("bob", "t", (log, 2), 5)
    stage.sleep(20)
    assert stored(stage) == [3]
    assert bodies(stage.get("bob", "t", None, 5)) == [b"c"]


def test_acknowledged_messages_stay_for_the_hold(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1)
    stage.get("bob", "t", (log, 1), 5)
    stage.sleep(59)
    assert stored(stage) == [1]
    stage.sleep(7)
    assert stored(stage) == []


def test_a_subscriber_that_leaves_frees_its_backlog(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    stage.sleep(100)
    stage.unsubscribe("bob", "t", 6)
    stage.sleep(10)
    assert stored(stage) == []


@pytest.mark.parametrize("sole_owner", [False, None])
def test_no_message_is_deleted_while_the_topic_is_not_known_to_be_whole(stage: Stage, sole_owner: bool | None) -> None:
    stage.sole_owner = sole_owner
    stage.put("t", 1)
    stage.sleep(100)
    assert stored(stage) == [1]
    stage.sole_owner = True
    stage.sleep(6)
    assert stored(stage) == []


def test_messages_without_an_asked_question_are_deleted_later_without_a_put(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub.server.ownership.sole_owner.WAITING_MAX", 0)
    stage.put("t", 1)
    stage.sleep(200)
    assert stored(stage) == [1]
    monkeypatch.undo()
    stage.sleep(2 * retention.ROUND_SECONDS)
    assert stored(stage) == []


def test_proxies_are_asked_once_for_all_topics_found_at_the_same_time(stage: Stage) -> None:
    for number in range(20):
        stage.put(f"t{number}", 1)
    stage.sent.clear()
    stage.sleep(70)
    questions = [out.message for out in stage.sent if isinstance(out.message, Owners) and out.link == 0]
    assert len(questions) < 5
    assert sum(len(question.topics or {}) for question in questions) == 20


def test_a_steady_flow_is_not_asked_about_all_the_time(stage: Stage) -> None:
    for counter in range(1, 400):
        stage.put("t", counter)
        stage.sleep(0.25)
    questions = sum(isinstance(out.message, Owners) and out.link == 0 for out in stage.sent)
    assert questions <= 45
    assert len(stored(stage)) <= 61 * 4 + 8


@pytest.mark.slow
def test_deleting_keeps_up_with_a_busy_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PIECE_BATCHES_MIN", 10)
    monkeypatch.setattr(retention, "PIECE_BYTES_MIN", 1_000)
    stage = Stage(tmp_path)
    counter = 0
    most = 0
    for _ in range(300):  # 300 loops, half a second apart, of 40 puts over two topics
        for _ in range(20):
            counter += 1
            stage.say(put("t", counter, [b"x" * 100]))
            stage.say(put("u", counter, [b"x"]))
        stage.loop()
        stage.now += 0.5
        most = max(most, len(stored(stage)))
    assert most <= 20 * 2 * 70
    stage.sleep(80)
    assert stored(stage) == stored(stage, "u") == []
    stage.close()


def test_a_long_history_goes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PIECE_BATCHES_MIN", 7)
    stage = Stage(tmp_path)
    for counter in range(1, 101):
        stage.put("t", counter)
    trimmed = []
    apply = stage.store.apply
    stage.store.apply = lambda changes: (  # type: ignore[method-assign]
        trimmed.extend([change.low for change in changes if isinstance(change, LogTrimmed)]),
        apply(changes),
    )[1]
    stage.sleep(70)
    assert stored(stage) == []
    assert max(after - before for before, after in pairwise([1, *trimmed])) == 7
    stage.close()


def test_a_piece_that_a_full_disk_reverted_is_deleted_later(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(59)
    stage.fail_commit = True
    stage.sleep(10)
    assert stored(stage) == [1]
    assert stage.core.state.topics["t"].open.low == 1
    stage.fail_commit = stage.core.state.full = False
    stage.sleep(10)
    assert stored(stage) == []


def test_a_span_that_came_after_the_question_is_respected(stage: Stage) -> None:
    stage.put("t", 1, [b"a"])
    stage.put("t", 2, [b"b"])
    stage.sole_owner = None
    stage.sleep(66)
    asked = [out for out in stage.sent if isinstance(out.message, Owners)][-2:]
    topic = stage.core.state.topics["t"]
    stage.subscribe("bob", "t", 5)
    topic.subscriptions["bob"].cursor.backlog = (Span(topic.open.id, 2),)  # as a join may give it
    stage.sole_owner = True
    for out in asked:
        stage.sent.append(out)
    stage.sleep(20)
    assert stored(stage) == [2]
    assert bodies(stage.get("bob", "t", None, 5)) == [b"b"]


def test_missing_batches_do_not_delay_the_deletion_of_others(stage: Stage) -> None:
    for counter in range(1, 8):
        stage.put("t", counter)
    number = stage.core.state.topics["t"].open.number
    for gone in ((1, 2), (5, 5), (7, 7)):
        low, high = (number << 40 | offset for offset in gone)
        stage.store.db.execute("delete from batch where key between ? and ?", (low, high))
    stage.sleep(80)
    assert stored(stage) == []
    assert stage.core.state.topics["t"].open.low >= 7


def test_the_deletable_batches_are_those_of_a_complete_search(stage: Stage) -> None:
    random = Random(7)
    counter = 1
    for _ in range(60):
        count = random.randrange(1, 6)
        stage.put("t", counter, [b"x"] * count)
        counter += count
        stage.now += random.choice([0, 0, 1.0])
    log = stage.core.state.topics["t"].open
    rows = stage.core.state.reader.stamps(log.number, 1, 1000)
    for _ in range(300):
        floor = random.randrange(1, log.end + 1)
        old = random.choice(rows)[2] - random.choice([0, 1])
        expected = 1
        for offset, count, stamp, _ in rows:
            if stamp > old or offset + count > floor:
                break
            expected = offset + count
        assert cut(stage.core.state.reader, log, floor, old) == expected


def test_a_disk_too_full_to_delete_is_not_tried_in_every_loop(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(59)
    stage.fail_commit = True
    loops = 0
    until = stage.now + 10
    while stage.now < until:
        stage.now = max(stage.now, stage.core.deadline())
        stage.loop()
        loops += 1
    assert loops < 250


@pytest.mark.parametrize("full", [False, True])
def test_a_damaged_batch_of_a_given_log_is_skipped(pair: Pair, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    monkeypatch.setattr(retention, "PIECE_BYTES_MIN", 1_000)
    giver = pair["s2"]
    giver.subscribe("bob", "t", 5)
    for counter in range(1, 41):
        giver.put("t", counter, [b"x" * 88], previous=counter - 1)
    giver.restart()
    giver.store.db.execute("update batch set body = zeroblob(length(body)) where key & 0xffffffffff = 1")
    assert giver.get("bob", "t", None, 5).outcome is Outcome.LOST
    pair.turns(2)
    pair["s1"].subscribe("eve", "t", 5)
    pair.merge("s2", "s1")
    while counted(giver, "batch") == 40:
        pair.turn()
    assert pair.holders() == ["s1"]
    giver.fail_commit = full
    pair.turns(3)
    giver.fail_commit = giver.core.state.full = False
    pair.turns(10)
    assert stored_keys(giver) == [1], "its pages may be another's"
    giver.commits = []
    giver.sleep(1.0)
    assert giver.commits == []


# Consumed, and not known to be whole


def sizes(stage: Stage) -> list[int]:
    """Bytes of the topic's batches on the disk, 0 for those without."""
    rows = stage.store.db.execute("select coalesce(length(body), 0) from batch order by key")
    return [size for (size,) in rows]


@pytest.mark.parametrize("sole_owner", [False, None])
def test_history_that_may_not_go_has_a_limit_in_bytes(tmp_path: Path, sole_owner: bool | None) -> None:
    stage = Stage(tmp_path, history_bytes_max=1_000)
    stage.sole_owner = sole_owner
    for counter in range(1, 51):
        stage.put("t", counter, [b"x" * 88])  # 100 bytes each
    stage.sleep(80)
    assert sizes(stage) == [0] * 40 + [100] * 10
    assert stored(stage) == list(range(1, 51))
    for counter in range(51, 71):
        stage.put("t", counter, [b"x" * 88])
    stage.sleep(80)
    assert sizes(stage) == [0] * 60 + [100] * 10
    stage.restart()
    stage.sleep(20)
    assert sizes(stage) == [0] * 60 + [100] * 10
    stage.sole_owner = True
    stage.sleep(10)
    assert stored(stage) == []
    stage.close()


def test_the_limit_on_history_spares_messages_with_a_waiting_subscriber(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=300)
    stage.sole_owner = False
    log = stage.subscribe("bob", "t", 5).log
    for counter in range(1, 21):
        stage.put("t", counter, [b"x" * 88])
    stage.get("bob", "t", (log, 10), 5, records_max=0)
    stage.sleep(80)
    assert sizes(stage) == [0] * 7 + [100] * 13
    assert stage.get("bob", "t", None, 5).records == 10
    stage.close()


def test_history_beyond_the_limit_goes_in_pieces_and_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_BATCHES_MIN", 7)
    stage = Stage(tmp_path, history_bytes_max=300)
    stage.sole_owner = False
    for counter in range(1, 51):
        stage.put("t", counter, [b"x" * 88])
    stage.sleep(59)
    stage.fail_commit = True
    stage.sleep(20)
    assert sizes(stage) == [100] * 50
    stage.fail_commit = stage.core.state.full = False
    stage.sleep(20)
    assert sizes(stage) == [0] * 47 + [100] * 3
    stage.close()


def test_a_log_whose_newest_batch_lost_its_bytes_has_the_same_total_after_a_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=300)
    stage.sole_owner = False
    stage.put("t", 1, [b"x" * 88])
    stage.put("t", 2, [b"x" * 888])
    stage.sleep(80)
    assert sizes(stage) == [0, 0]
    total = stage.core.state.topics["t"].open.total
    assert total == 1_000
    stage.restart()
    assert stage.core.state.topics["t"].open.total == total
    stage.close()


def test_the_limit_on_history_counts_published_messages_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=300)
    for batch in range(6):
        write(stage, batch, "a", 0, b"x" * 88)
        publish(stage, batch, a=1)
    stage.sole_owner = False
    stage.sleep(80)
    assert (counted(stage, "batch"), counted(stage, "published"), counted(stage, "staged")) == (6, 3, 3)
    total = stage.core.state.topics["t"].open.total
    stage.restart()
    assert stage.core.state.topics["t"].open.total == total == 600
    stage.close()


def test_a_subscriber_that_joins_later_gets_the_history_as_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=300)
    stage.sole_owner = False
    for counter in range(1, 6):
        stage.put("t", counter, [b"x" * 88])
    stage.sleep(80)
    log = stage.subscribe("bob", "t", 5).log
    topic = stage.core.state.topics["t"]
    topic.subscriptions["bob"].cursor.backlog = (Span(log, 1),)  # as a join may give it
    answer = stage.get("bob", "t", None, 5)
    assert (answer.outcome, answer.first) == (Outcome.LOST, (log, 1))
    assert stage.core.state.counters["batches_damaged"] == 0
    answer = stage.get("bob", "t", (log, 2), 5)
    assert answer.records == 3
    stage.close()


# A floor that is no longer true


def test_a_named_subscription_made_during_trimming_keeps_its_first_messages(stage: Stage) -> None:
    for counter in range(1, 4):
        stage.put("t", counter)
    stage.sole_owner = None
    stage.sleep(66.5)
    stage.core.retention.look_at("t")
    asking = stage.say(Subscribe("spark", "t", 7, 7, name="job", start="earliest"))
    stage.sole_owner = True
    for _ in range(6):  # One question, and one answer, for the subscription and for the trimming.
        stage.loop()
    assert stage.answered(asking).outcome is Outcome.SUCCESS
    stage.sleep(20)
    assert stored(stage) == [1, 2, 3]
    assert bodies(stage.ask(Read("spark", "t", None, name="job", records_max=9))) == [b"x"] * 3


def test_a_span_extended_by_a_join_keeps_its_bytes(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=1)
    stage.sole_owner = False
    log = ""
    for counter in range(1, 4):
        log = stage.put("t", counter, [b"x" * 88]).log
    stage.now += 70.0
    stage.loop()  # It asks; the answers come, and what lies beyond the limit goes in the next loop.
    stage.say(Subscribe("bob", "t", 5, 5))
    stage.core.state.topics["t"].subscriptions["bob"].cursor.backlog = (Span(log, 2),)  # as a join may give it
    stage.sleep(20)
    assert sizes(stage) == [0, 100, 100]
    stage.close()
