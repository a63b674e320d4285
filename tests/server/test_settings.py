"""The settings of a topic: requests that change them, and the records that stay or go by them.

The rules are those of docs/explanation/retention.md, T7, T8, T9, T10, T11, T12, T13, T14, T15, T16, T17 and T18.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Configure, Outcome, Read, Status, Subscribe
from pubsub.protocol.messages import Settings as Ask
from pubsub.protocol.topic_settings import encode_settings
from pubsub.server.moves import receiving
from pubsub.server.moves.giving import REFUSED_SECONDS
from tests.server.moving import Pair
from tests.server.stage import Stage, bodies, put
from tests.server.test_retention import stored

KILO = b"x" * 1000
_versions = (f"{number:016x}" for number in count(1))


def configure(stage: Stage, topic: str = "t", base: str | None = None, **values: str) -> Status:
    """Change settings, made of those in force unless `base` says otherwise."""
    base = stage.ask(Ask("ops", topic)).body and str(in_force(stage, topic)["version"]) if base is None else base
    return stage.ask(Configure("ops", topic, next(_versions), base, values=encode_settings(values)))


def in_force(stage: Stage, topic: str = "t") -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(bytes(stage.ask(Ask("ops", topic)).body))
    return facts


def put_each(stage: Stage, first: int, last: int, seconds: float = 1.0, body: bytes = b"x") -> None:
    for counter in range(first, last + 1):
        assert stage.put("t", counter, [body]).outcome is Outcome.SUCCESS
        stage.sleep(seconds)


# Requests


def test_settings_of_a_topic_that_is_not_held_are_the_defaults_and_asking_creates_nothing(stage: Stage) -> None:
    values = {
        "keep": ["none"],
        "drop": ["never"],
        "expire": ["never"],
        "tombstones": ["1d"],
        "rate": ["none"],
        "bytes": ["none"],
        "match": "",
    }
    values["own"] = {name: [""] for name in ("keep", "drop", "expire", "tombstones", "rate", "bytes")}
    assert in_force(stage) == {"version": "", "stamp": 0, "conflict": False, **values}
    assert "t" not in stage.core.state.topics


def test_a_set_creates_the_topic_and_survives_a_crash(stage: Stage) -> None:
    assert configure(stage, keep="7d,10GiB", drop="30d").outcome is Outcome.SUCCESS
    facts = in_force(stage)
    assert (facts["keep"], facts["drop"], facts["conflict"]) == (["7d,10GiB"], ["30d"], False)
    stage.restart()
    assert in_force(stage) == facts


def test_a_set_that_is_made_of_other_settings_is_refused_with_those_in_force(stage: Stage) -> None:
    configure(stage, keep="1d")
    answer = configure(stage, base="", keep="1h")
    assert answer.outcome is Outcome.SUPERSEDED
    assert json.loads(bytes(answer.body))["keep"] == ["1d"]
    assert in_force(stage)["keep"] == ["1d"]


def test_a_repeated_set_succeeds_although_another_one_followed(stage: Stage) -> None:
    first = Configure("ops", "t", "a" * 16, values=encode_settings({"keep": "1d"}))
    stage.ask(first)
    second = Configure("ops", "t", "b" * 16, "a" * 16, values=encode_settings({"keep": "2d"}))
    stage.ask(second)
    for late in (first, second):
        answer = stage.ask(late)
        assert (answer.outcome, json.loads(bytes(answer.body))["keep"]) == (Outcome.SUCCESS, ["2d"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "not JSON"),
        (b'{"keep": 7}', "not JSON"),
        (b'{"keep": "7 years"}', "keep is none, ever"),
        (b'{"keep": "0d"}', "keep is none, ever"),
        (b'{"keep": "7d,8d"}', "keep is none, ever"),
        (b'{"tombstones": "59m"}', "tombstones is an age such as 1d, at least 1h"),
        (b'{"drop": "100 records"}', "drop is never"),
        (b'{"keep": "' + b"9" * 300 + b'd"}', "keep is none, ever"),
        (b'{"keep": "' + b"9" * 3000 + b'd"}', "not JSON"),
        (b'{"kep": "7d"}', "no setting 'kep'"),
        (b"[" * 5000, "not JSON"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_and_change_nothing(stage: Stage, values: bytes, reason: str) -> None:
    answer = stage.ask(Configure("ops", "t", "a" * 16, values=values))
    assert answer.outcome is Outcome.REFUSED
    assert reason in answer.reason.replace("_", " ")
    assert "t" not in stage.core.state.topics


def test_settings_of_a_service_are_refused(stage: Stage) -> None:
    assert configure(stage, "$calls.echo", base="", keep="1d").outcome is Outcome.REFUSED


def test_settings_whose_commit_fails_are_not_in_force(stage: Stage) -> None:
    configure(stage, keep="1d")
    stage.fail_commit = True
    answer = stage.ask(Configure("ops", "t", "c" * 16, str(in_force_in_memory(stage)), values=b'{"keep":"1h"}'))
    assert answer.outcome is Outcome.FULL
    stage.fail_commit = False
    assert in_force(stage)["keep"] == ["1d"]


def in_force_in_memory(stage: Stage) -> str:
    return stage.core.state.topics["t"].settings.version


def test_a_full_disk_takes_settings_of_a_topic_that_exists(stage: Stage) -> None:
    configure(stage, keep="1d")
    stage.core.state.full = True
    assert configure(stage, keep="1h").outcome is Outcome.SUCCESS
    assert configure(stage, "new", base="", keep="1h").outcome is Outcome.FULL


# What is kept


def test_a_topic_keeps_what_is_younger_than_its_age(stage: Stage) -> None:
    configure(stage, keep="10m")
    put_each(stage, 1, 5, 60)
    stage.sleep(290)
    assert stored(stage) == [1, 2, 3, 4, 5]
    stage.sleep(60)
    assert stored(stage) == [2, 3, 4, 5]
    stage.sleep(600)
    assert stored(stage) == []


def test_a_topic_keeps_a_number_of_records(stage: Stage) -> None:
    configure(stage, keep="3 records")
    put_each(stage, 1, 10)
    stage.sleep(600)
    assert stored(stage) == [8, 9, 10]
    stage.restart()
    put_each(stage, 11, 12)
    stage.sleep(120)
    assert stored(stage) == [10, 11, 12]


def test_a_topic_keeps_a_number_of_bytes(stage: Stage) -> None:
    configure(stage, keep="3KiB")
    put_each(stage, 1, 10, body=KILO)
    stage.sleep(600)
    # Three batches have at most 3 KiB and four have more, so the fourth one stays.
    assert stored(stage) == [7, 8, 9, 10]


def test_any_of_several_amounts_lets_a_batch_go(stage: Stage) -> None:
    configure(stage, keep="1h,2 records")
    put_each(stage, 1, 4)
    stage.sleep(120)
    assert stored(stage) == [3, 4]
    stage.sleep(3600)
    assert stored(stage) == []


def test_ever_keeps_all_and_none_again_lets_it_go(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 3)
    stage.sleep(5_000)
    assert stored(stage) == [1, 2, 3]
    configure(stage, keep="none")
    stage.sleep(120)
    assert stored(stage) == []


def test_a_new_subscriber_reads_what_is_kept_from_the_beginning(stage: Stage) -> None:
    configure(stage, keep="1h")
    put_each(stage, 1, 3, body=b"kept")
    stage.sleep(120)
    stage.ask(Subscribe("late", "t", 5, 5, start="earliest"))
    assert bodies(stage.get("late", "t", None, 5)) == [b"kept"] * 3


def test_what_a_subscriber_has_not_acknowledged_stays_beyond_keep(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, keep="10m")
    put_each(stage, 1, 3)
    stage.sleep(10_000)
    assert stored(stage) == [1, 2, 3]
    log = stage.core.state.topics["t"].open.id
    stage.get("bob", "t", (log, 2), 5)
    stage.sleep(60)
    assert stored(stage) == [3]


def test_nothing_goes_by_keep_while_another_server_may_hold_the_topic(stage: Stage) -> None:
    configure(stage, keep="1m")
    stage.sole_owner = False
    put_each(stage, 1, 3)
    stage.sleep(600)
    assert stored(stage) == [1, 2, 3]
    stage.sole_owner = True
    stage.sleep(600)
    assert stored(stage) == []


def test_a_larger_keep_counts_although_batches_were_about_to_go(stage: Stage) -> None:
    """The question of sole ownership about the old settings is still open when the new ones are answered."""
    configure(stage, keep="1m")
    put_each(stage, 1, 3)
    stage.sole_owner = None
    stage.sleep(70)
    questions = [out for out in stage.sent if type(out.message).__name__ == "Owners"]
    assert questions
    assert configure(stage, keep="1h").outcome is Outcome.SUCCESS
    stage.sole_owner = True
    stage.answer_as_proxies(questions)
    stage.sleep(120)
    assert stored(stage) == [1, 2, 3]


def test_a_batch_of_the_loop_that_configures_its_topic_stays(stage: Stage) -> None:
    stage.say(Configure("ops", "t", "a" * 16, values=encode_settings({"keep": "none"})))
    stage.say(put("t", 1))
    stage.loop()
    stage.sleep(5)
    assert stored(stage) == [1]


def test_bodies_beyond_the_limit_go_during_a_split_and_a_new_reader_is_told_nothing_of_them(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path / "s", history_bytes_max=2500)
    try:
        configure(stage, keep="2m")
        stage.sole_owner = False
        put_each(stage, 1, 6, body=KILO)
        stage.sleep(600)
        put_each(stage, 7, 7, body=b"new")
        topic = stage.core.state.topics["t"]
        batches = list(stage.core.state.reader.batches(topic.open.number, 1, 100))
        bare = [batch.offset for batch in batches if batch.body is None]
        assert bare == [1, 2, 3, 4]
        for again in range(2):
            number = 10 + again
            stage.ask(Subscribe(f"late{again}", "t", number, number, start="earliest"))
            assert bodies(stage.get(f"late{again}", "t", None, number)) == [KILO, KILO, b"new"]
            stage.restart()
            log = stage.core.state.topics["t"].open.id
            behind = stage.ask(Read("spark", "t", (log, 2), records_max=10))
            assert (behind.outcome, behind.first) == (Outcome.LOST, (log, 3))
            plan = json.loads(bytes(stage.ask(Read("peek", "t", None)).body))
            assert [(low, stop) for _, low, stop, _ in plan["legs"]] == [(5, 8)]
    finally:
        stage.close()


@pytest.mark.parametrize("bare", [False, True])
def test_a_batch_stays_for_a_subscription_that_begins_in_its_middle_after_the_decision(
    stage: Stage, bare: bool
) -> None:
    for counter in (1, 101):
        stage.put("t", counter, [b"%d" % number for number in range(counter, counter + 100)])
    log = stage.core.state.topics["t"].open.id
    if bare:
        stage.core.retention._over.append(("t", log, 201, False))
    else:
        stage.core.retention._allowed.append(("t", log, 201))
    stage.say(Subscribe("bob", "t", 5, 5, start=(log, 150)))
    stage.sleep(1)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"%d" % number for number in range(150, 201)]


def test_a_larger_keep_counts_although_a_deletion_was_allowed(stage: Stage) -> None:
    configure(stage, keep="1m")
    put_each(stage, 1, 3)
    log = stage.core.state.topics["t"].open.id
    base = in_force_in_memory(stage)
    stage.core.retention._allowed.append(("t", log, 4))
    stage.say(Configure("ops", "t", "e" * 16, base, values=encode_settings({"keep": "1h"})))
    stage.sleep(120)
    assert stored(stage) == [1, 2, 3]


def test_an_append_lets_earlier_records_go_long_before_their_age_does(stage: Stage) -> None:
    configure(stage, keep="7d,3 records")
    put_each(stage, 1, 3)
    stage.sleep(200)
    put_each(stage, 4, 6)
    stage.sleep(200)
    assert stored(stage) == [4, 5, 6]


def test_the_heap_of_topics_to_look_at_stays_small_although_each_append_makes_one_due(stage: Stage) -> None:
    configure(stage, keep="7d,10GiB")
    retention = stage.core.retention
    for _ in range(10_000):
        retention._due.set("t", 1e9)
        retention.appended("t", 1, stage.now)
    assert retention._due.entries < 1_500
    assert stage.core.deadline() <= stage.now + 10


def test_findings_of_a_loop_that_was_undone_are_found_again(stage: Stage) -> None:
    configure(stage, keep="1 record")
    put_each(stage, 1, 2)
    stage.sleep(100)
    assert stored(stage) == [2]
    stage.say(put("t", 3))
    stage.core.retention.look_at("t")
    stage.fail_commit = True
    stage.loop()
    stage.fail_commit = False
    stage.sleep(100)
    assert stored(stage) == [2]


# What is dropped


def test_drop_lets_an_absent_subscriber_lose_old_records_and_says_so(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    configure(stage, drop="1h")
    put_each(stage, 1, 3, body=KILO)
    stage.sleep(3000)
    put_each(stage, 4, 5, body=b"young")
    stage.sleep(1000)
    answer = stage.get("bob", "t", None, 5)
    assert (answer.outcome, answer.first, answer.message) == (Outcome.LOST, (log, 1), (log, 3))
    assert answer.reason == "dropped"
    answer = stage.get("bob", "t", answer.message, 5)
    assert bodies(answer) == [b"young", b"young"]
    assert stage.core.state.counters["batches_dropped"] == 3


def test_dropped_bytes_make_room_in_a_full_backlog(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "s", backlog_bytes_max=5000)
    try:
        stage.subscribe("bob", "t", 5)
        configure(stage, drop="1h")
        put_each(stage, 1, 4, body=KILO)
        assert stage.put("t", 5, [KILO]).outcome is Outcome.FULL
        stage.sleep(4000)
        put_each(stage, 5, 8, body=KILO)
        stage.restart()
        stage.sleep(4000)
        put_each(stage, 9, 9, body=KILO)
    finally:
        stage.close()


def test_dropped_bytes_make_room_also_after_drop_is_never_again_and_a_restart(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "s", backlog_bytes_max=5000)
    try:
        stage.subscribe("bob", "t", 5)
        configure(stage, drop="1h")
        put_each(stage, 1, 4, body=KILO)
        stage.sleep(4000)
        configure(stage, drop="never")
        stage.restart()
        stage.sleep(10)
        put_each(stage, 5, 8, body=KILO)
    finally:
        stage.close()


def test_nothing_is_dropped_while_another_server_may_hold_the_topic(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, drop="1m")
    stage.sole_owner = False
    put_each(stage, 1, 2, body=b"stays")
    stage.sleep(600)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"stays", b"stays"]


def test_drop_takes_nothing_that_keep_still_keeps(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, keep="1h", drop="1m")
    put_each(stage, 1, 2, body=b"stays")
    stage.sleep(600)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"stays", b"stays"]


# Merging


def test_two_holders_with_unrelated_settings_keep_what_either_keeps_and_report_a_conflict(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", retention_hold_seconds=60.0)
    for name, keep in (("s1", "1h"), ("s2", "2 records")):
        configure(pair[name], base="", keep=keep, drop="30d")
        pair[name].put("t", 1, sender=name)
    pair.merge("s2", "s1")
    pair.turns()
    facts = in_force(pair["s1"])
    assert (sorted(facts["keep"]), facts["drop"], facts["conflict"]) == (["1h", "2 records"], ["30d"], True)
    assert configure(pair["s1"], keep="1d").outcome is Outcome.SUCCESS
    assert (in_force(pair["s1"])["keep"], in_force(pair["s1"])["conflict"]) == (["1d"], False)


def test_settings_travel_with_a_topic(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    configure(pair["s2"], base="", keep="1h")
    pair["s2"].put("t", 1)
    facts = in_force(pair["s2"])
    pair.merge("s2", "s1")
    pair.turns()
    assert in_force(pair["s1"]) == facts
    pair["s1"].restart()
    assert in_force(pair["s1"]) == facts


def test_a_topic_with_settings_is_not_frozen_for_a_server_of_an_earlier_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    configure(pair["s2"], base="", keep="1h")
    pair["s2"].put("t", 1)
    monkeypatch.setattr(receiving, "READS", 2)
    pair.merge("s2", "s1")
    pair.turns(60)
    assert "t" not in pair["s1"].core.state.topics
    assert not pair["s2"].core.state.topics["t"].frozen
    assert pair["s2"].put("t", 2, previous=1).outcome is Outcome.SUCCESS
    monkeypatch.undo()
    pair["s2"].sleep(REFUSED_SECONDS)
    pair.merge("s2", "s1")
    pair.turns(60)
    assert in_force(pair["s1"])["keep"] == ["1h"]
