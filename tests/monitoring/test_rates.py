"""Rates from two reports."""

from __future__ import annotations

from typing import Any

from pubsub.monitoring.rates import Rate, Rates


def topic(records: int, **subscribers: tuple[str, int]) -> dict[str, Any]:
    named = {name: {"acknowledged": at, "waiting": waiting} for name, (at, waiting) in subscribers.items()}
    return {"records": records, "subscribers": named}


def report(uptime: float, topics: dict[str, Any], store: str = "aa", **counters: int) -> dict[str, Any]:
    facts = {"uptime_seconds": uptime, "store": store, "counters": counters, "topics": topics}
    return {"servers": [{"id": "s1", "report": facts}]}


def rates(*reports: dict[str, Any]) -> Rates:
    made = Rates()
    for one in reports:
        made.add(one)
    return made


def test_the_rates_of_a_server_follow_from_its_counters_and_its_own_time() -> None:
    made = rates(report(10.0, {}, records=100), report(12.0, {}, records=150, delivered=40))
    assert made.servers == {"s1": Rate(25.0, 20.0)}


def test_the_rates_of_a_topic_follow_from_the_positions_of_its_subscribers() -> None:
    before = {"t": topic(6, a=("ab.4", 6), b=("ab.10", 0))}
    now = {"t": topic(16, a=("ab.9", 11), b=("ab.20", 0))}
    assert rates(report(1.0, before), report(2.0, now)).topics == {"t": Rate(10.0, 15.0)}


def test_the_puts_of_a_topic_without_subscribers_follow_from_the_held_records() -> None:
    assert rates(report(1.0, {"t": topic(5)}), report(3.0, {"t": topic(9)})).topics == {"t": Rate(2.0, 0.0)}


def test_a_subscriber_in_another_log_has_taken_at_least_the_decrease_of_its_backlog() -> None:
    made = rates(report(1.0, {"t": topic(9, a=("ab.4", 9))}), report(2.0, {"t": topic(2, a=("cd.1", 2))}))
    assert made.topics == {"t": Rate(0.0, 7.0)}


def test_a_report_that_is_no_newer_changes_nothing() -> None:
    reports = report(1.0, {}, records=0), report(3.0, {}, records=10), report(3.0, {}, records=10)
    assert rates(*reports).servers == {"s1": Rate(5.0, 0.0)}


def test_a_server_that_was_started_again_begins_anew() -> None:
    assert rates(report(9.0, {}, records=10), report(1.0, {}, records=2)).servers == {}
    assert rates(report(1.0, {}, records=10), report(2.0, {}, "bb", records=20)).servers == {}


def test_a_server_that_is_gone_has_no_rate() -> None:
    made = rates(report(1.0, {"t": topic(1)}), report(2.0, {"t": topic(2)}), {"servers": []})
    assert (made.servers, made.topics) == ({}, {})


def test_a_topic_of_two_servers_has_the_sum() -> None:
    def both(uptime: float, count: int) -> dict[str, Any]:
        one = report(uptime, {"t": topic(count)})["servers"][0]
        return {"servers": [one, one | {"id": "s2"}]}

    assert rates(both(1.0, 0), both(2.0, 3)).topics == {"t": Rate(6.0, 0.0)}
