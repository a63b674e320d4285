"""Alarms of a report."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.monitoring.alarms import (
    OLDEST_SECONDS_MAX,
    TOPICS_MAX,
    TRIES_MAX,
    UNFINISHED_SECONDS_MAX,
    alarms,
    words,
)
from pubsub.protocol.topic_settings import CLOCK_AHEAD

MIB = 1024 * 1024


def report(**changed: Any) -> dict[str, Any]:
    return {"proxies": [], "servers": [], "topics": [], "moves": []} | changed


def process(free: int, **more: Any) -> dict[str, Any]:
    facts = {"memory_bytes": MIB, "disk_size_bytes": 1000 * MIB, "disk_free_bytes": free, "disk_used_bytes": 0}
    return {"process": facts, **more}


def topic(name: str, age: float | None, waiting: int = 1) -> dict[str, Any]:
    subscribers = {
        "quick": {"waiting": 9, "oldest_unacknowledged_seconds": None},
        "slow": {"waiting": waiting, "oldest_unacknowledged_seconds": age},
    }
    return {"topic": name, "oldest_unacknowledged_seconds": age, "subscribers": subscribers}


def move(name: str, tries: int) -> dict[str, Any]:
    return {"topic": name, "server": "s1", "other": "s2", "tries": tries}


def test_a_healthy_report_causes_no_alarm() -> None:
    assert alarms(report()) == []
    fine = report(
        servers=[{"id": "s1", "report": process(50 * MIB)}, {"id": "s2", "report": None}, {"id": "s3", "report": {}}],
        topics=[topic("t", OLDEST_SECONDS_MAX), topic("u", None)],
        moves=[move("t", TRIES_MAX)],
    )
    assert alarms(fine) == []


def test_a_nearly_full_disk_of_any_process_causes_an_alarm() -> None:
    found = report(
        servers=[{"id": "s1", "report": process(49 * MIB)}],
        proxies=[{"address": "tcp://h:1", "report": process(0, proxy="p1")}],
    )
    assert alarms(found) == [
        "proxy p1: 0.0% of its disk is free, 0 MiB; free space or enlarge the disk",
        "server s1: 4.9% of its disk is free, 49 MiB; free space or enlarge the disk",
    ]


def test_a_message_that_waits_too_long_causes_an_alarm_with_its_subscriber() -> None:
    assert alarms(report(topics=[topic("t", 7500.0, 1234)])) == [
        "topic t: slow has not acknowledged a message for 2 h 5 min; 1,234 wait; check that slow runs"
    ]


def kept(name: str, oldest: float | None, keep: float | None = 7200.0, **more: Any) -> dict[str, Any]:
    facts = {"keep": "2h", "drop": "never", "settings_conflict": False, "not_let_go": ""}
    return topic(name, None) | facts | {"keep_seconds": keep, "oldest_stored_seconds": oldest} | more


def test_conflicting_settings_are_one_and_say_what_to_do() -> None:
    found = alarms(report(topics=[kept("t", 1.0, settings_conflict=True) | {"keep": "1h or 2h"}]))
    assert found == [
        "topic t: its settings conflict, keep=1h or 2h and drop=never after a merge;"
        " set them by pubsub topic set t keep=… drop=…"
    ]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("subscriber bob", "subscriber bob needs it: check that it runs, or set drop"),
        ("not sole owner", "messages go when every proxy knows one owner: start the proxies and servers that are away"),
        ("other defaults at s2", "other defaults at s2: give all servers the same defaults of topics"),
        (CLOCK_AHEAD, f"{CLOCK_AHEAD}: compare the clocks of its server and of the proxies"),
        ("", "check that the disk of its server is not full"),
    ],
)
def test_a_topic_that_holds_messages_of_twice_its_keep_is_one_and_says_why(reason: str, text: str) -> None:
    (found,) = alarms(report(topics=[kept("t", 14_401.0, not_let_go=reason)]))
    assert found == f"topic t: its oldest message is 4 h 0 min old, and keep is 2h; {text}"


def test_a_subscriber_that_holds_up_compaction_for_a_day_causes_an_alarm() -> None:
    held = {"superseded_seconds": 90_000.0, "not_let_go": "subscriber bob"}
    late = kept("t", None, None) | held
    early = kept("u", None, None) | held | {"superseded_seconds": 86_400.0}
    assert alarms(report(topics=[early, late, kept("v", None, None) | {"superseded_seconds": None}])) == [
        "topic t: a superseded message of 1 d 1 h stays; subscriber bob needs it: check that it runs, or end its"
        " subscription"
    ]


@pytest.mark.parametrize(
    ("owned", "text"),
    [
        (True, "check the disk and the log of its server"),
        (False, "it goes when every proxy knows one owner: start the proxies and servers that are away"),
    ],
)
def test_an_overdue_delayed_message_causes_an_alarm_that_says_why(owned: bool, text: str) -> None:
    late = topic("t", None) | {"delayed": 2, "overdue_seconds": 90.0, "sole_owner": owned}
    assert alarms(report(topics=[late, topic("u", None) | {"delayed": 1, "overdue_seconds": 30.0}])) == [
        f"topic t: a delayed message is overdue for 1 min 30 s; {text}"
    ]


def test_a_server_with_a_clock_that_is_ahead_is_one() -> None:
    def server(name: str, trusts: bool, ahead: float | None) -> dict[str, Any]:
        return {"id": name, "report": process(500 * MIB, trusts_ages=trusts, clock_ahead_seconds=ahead)}

    found = report(servers=[server("s1", True, 3.0), server("s2", False, None), server("s3", False, 8 * 86_400.0)])
    assert alarms(found) == [
        "server s3: its timestamps are 8 d 0 h ahead of the proxies' clocks, and no message goes by its age;"
        " set the clock of its host and start it again"
    ]


def test_a_topic_within_twice_its_keep_and_one_without_an_age_are_none() -> None:
    assert (
        alarms(report(topics=[kept("t", 14_400.0), kept("u", 9e9, None), kept("v", None), kept("w", 9e9, 0.0)])) == []
    )
    # A server looks at a topic every few seconds, so a short age is no measure.
    assert alarms(report(topics=[kept("t", 3600.0, 10.0)])) == []
    assert len(alarms(report(topics=[kept("t", 3601.0, 10.0)]))) == 1


def test_of_many_topics_that_keep_too_much_the_worst_are_named_and_the_others_counted() -> None:
    found = alarms(report(topics=[kept(f"t{age}", 90_000.0 + age) for age in range(100)]))
    assert len(found) == TOPICS_MAX + 1
    assert found[0].startswith("topic t99: ")
    assert found[-1] == "95 more topics have messages of more than 2 times the age in keep"


def held(size: int, **waiting: int) -> dict[str, Any]:
    return {"bytes": size, "subscribers": {name: {"waiting": count} for name, count in waiting.items()}}


def test_a_backlog_near_its_limit_causes_an_alarm_that_names_the_subscriber() -> None:
    topics = {"t": held(930, quick=2, slow=7), "u": held(800, slow=9), "staged": held(1000)}
    servers = [
        {"id": "s1", "report": {"backlog_bytes_max": 1000, "topics": topics}},
        {"id": "s2", "report": {"topics": {"t": held(10**12, slow=9)}}},
        {"id": "s3", "report": None},
    ]
    assert alarms(report(servers=servers)) == [
        "topic staged: its backlog on s1 is at 100% of backlog_bytes_max; 100% refuses puts",
        "topic t: its backlog on s1 is at 93% of backlog_bytes_max; 100% refuses puts; it waits for slow: start slow,"
        " or run pubsub topic unsubscribe t --subscriber slow",
    ]


def test_a_move_without_an_answer_causes_an_alarm() -> None:
    assert alarms(report(moves=[move("t", 40)])) == [
        "topic t: transfer from s1 to s2, 40 tries without an answer; check s2"
    ]


def test_a_deletion_that_a_server_has_not_stored_causes_one_alarm_however_many_proxies_say_so() -> None:
    def says(*rows: tuple[str, float]) -> dict[str, Any]:
        found = [{"topic": topic, "server": "s2", "seconds": seconds} for topic, seconds in rows]
        return {"address": "tcp://h:1", "report": {"unfinished_deletions": found}}

    first, second = says(("t", UNFINISHED_SECONDS_MAX), ("u", 7500.0)), says(("u", 7600.0))
    earlier = {"address": "tcp://h:3", "report": {}}
    silent = {"address": "tcp://h:4", "report": None}
    assert alarms(report(proxies=[first, second, earlier, silent])) == [
        "topic u: its deletion is unfinished for 2 h 6 min, because server s2 has not stored it; start s2, or if it is"
        " lost, run pubsub topic abandon u --server s2"
    ]
    many = says(*((f"t{number}", 100.0 + number) for number in range(TOPICS_MAX + 2)))
    found = alarms(report(proxies=[many]))
    assert [line.split(":")[0] for line in found[:1]] == [f"topic t{TOPICS_MAX + 1}"]
    assert found[TOPICS_MAX:] == ["2 more topics have unfinished deletions"]


def test_the_alarm_names_the_oldest_of_many_topics_and_counts_the_others() -> None:
    found = alarms(report(topics=[topic(f"t{age}", 4000.0 + age) for age in range(10_000)]))
    assert len(found) == TOPICS_MAX + 1
    assert found[0].startswith("topic t9999: ")
    assert found[-1] == "9,995 more topics have messages that wait for more than 1 h 0 min"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")]
)
def test_a_time_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert words(seconds) == text
