"""A topic of a silent server is unknown, and neither empty nor whole."""

from __future__ import annotations

from typing import Any

from pubsub import console
from pubsub.cli.reports import picture
from pubsub.cli.status import _servers, _subscribers, _topics, last_known
from pubsub.cli.top import _tables, snapshot
from pubsub.client.requests import NoAnswer
from pubsub.gateway.history import History
from pubsub.gateway.metrics import cluster
from pubsub.monitoring.rates import Rates
from pubsub.monitoring.rows import topic_rows
from pubsub.monitoring.unknown import Memory

FIGURES = ("records", "bytes", "backlog", "oldest_unacknowledged_seconds", "subscribers", "held_by")


def proxy(*servers: dict[str, Any]) -> dict[str, Any]:
    holders = [{"server": one["id"], "store": one["store"], "log": "l", "alive": one["alive"]} for one in servers]
    return {
        "proxy": "p1",
        "starting": False,
        "startup_seconds_left": 0.0,
        "uptime_seconds": 9.0,
        "counters": {},
        "topics_total": 1,
        "servers": list(servers),
        "topics": [{"topic": "a", "contested": len(holders) > 1, "holders": holders}],
        "warnings": [],
    }


def gone(name: str, seconds: float, records: int | None = None, ago: float = 0.0) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "store": f"store-{name}", "alive": False, "gone_seconds": seconds}
    held = {"records": records, "bytes": 30, "backlog": 2, "oldest_unacknowledged_seconds": 4.0, "subscribers": 1}
    return row | {
        "last_report": None if records is None else {"seconds_ago": ago, "standby": None, "topics": {"a": held}}
    }


def alive(name: str) -> dict[str, Any]:
    return {"id": name, "store": f"store-{name}", "alive": True, "gone_seconds": None, "last_report": None}


def server(name: str, records: int = 10, **more: Any) -> dict[str, Any]:
    waiting = {"waiting": 7, "polling": False, "oldest_unacknowledged_seconds": 1.0, "acknowledged": "l.1"}
    held = {"records": records, "bytes": 100, "others": [], "subscribers": {"c": waiting}}
    report = {"store": f"store-{name}", "address": "tcp://h:1", "full": False, "stale": "", "draining": False}
    report |= {"disk": {"store": 5}, "topics": {"a": held}, "left_out": {"topics": 0}, "uptime_seconds": 5.0}
    return report | {"counters": {"records": records}} | more


def topic(found: dict[str, Any]) -> dict[str, Any]:
    (one,) = found["topics"]
    return dict(one)


def test_a_topic_of_a_gone_server_is_unknown_with_its_last_figures_and_time() -> None:
    found = topic(picture({"x": proxy(gone("s1", 12.0, records=3, ago=15.0))}, {}))
    assert [found[name] for name in FIGURES] == [None] * len(FIGURES)
    assert (found["sole_owner"], found["whole"], found["unknown_seconds"]) == (None, None, 12.0)
    assert found["last_known"] == {
        "records": 3, "bytes": 30, "backlog": 2, "oldest_unacknowledged_seconds": 4.0, "subscribers": 1,
        "seconds_ago": 15.0,
    }  # fmt: skip


def test_the_later_report_of_two_proxies_counts() -> None:
    rows = {"x": proxy(gone("s1", 12.0, records=3, ago=15.0)), "y": proxy(gone("s1", 9.0, records=5, ago=10.0))}
    found = topic(picture(rows, {}))
    assert (found["unknown_seconds"], found["last_known"]["records"]) == (9.0, 5)


def test_a_topic_of_a_connected_server_without_an_answer_is_unknown_too() -> None:
    silent = alive("s1") | {"silence_seconds": 0.8}
    found = topic(picture({"x": proxy(silent)}, {"s1": NoAnswer("no answer within 2 s")}))
    assert (found["records"], found["sole_owner"], found["unknown_seconds"]) == (None, None, 0.8)
    assert found["last_known"] is None


def test_one_of_two_holders_that_is_gone_makes_the_sum_unknown() -> None:
    found = topic(picture({"x": proxy(alive("s1"), gone("s2", 3.0, records=4, ago=5.0))}, {"s1": server("s1")}))
    assert (found["records"], found["sole_owner"], found["owners"]) == (None, False, ["s1", "s2"])
    assert (found["last_known"]["records"], found["last_known"]["backlog"]) == (14, 9)


def test_another_store_under_the_holders_name_has_no_figures_of_the_topic() -> None:
    reports = {"s1": server("s1", store="store-new", topics={})}
    assert topic(picture({"x": proxy(gone("s1", 3.0))}, reports))["records"] is None


def test_a_topic_left_out_of_a_report_is_unknown_but_a_moved_one_is_not() -> None:
    cut = server("s1", topics={}, left_out={"topics": 1})
    assert topic(picture({"x": proxy(alive("s1"))}, {"s1": cut}))["records"] is None
    moved = server("s1", topics={})
    assert topic(picture({"x": proxy(alive("s1"))}, {"s1": moved}))["records"] == 0


def test_tables_show_question_marks_and_never_a_zero(capsys: Any) -> None:
    found = picture({"x": proxy(gone("s1", 72.0, records=1234, ago=75.0))}, {})
    console.print_table(_servers(found), _topics(found), last_known(found["topics"]), _subscribers(found))
    shown = capsys.readouterr().out
    for text in ("?", "1,234", "1 min 12 s", "1 min 15 s ago", "no heartbeat for"):
        assert text in " ".join(shown.split()), shown
    assert " 0 " not in shown
    looked = snapshot(found, Rates(), "backlog", 20)
    console.print_table(*_tables({"problem": "", **looked}))
    assert "1,234" in capsys.readouterr().out


def test_the_later_of_own_figures_and_reported_figures_counts() -> None:
    memory, whole = Memory(), {"x": proxy(alive("s1"))}
    memory.add(picture(whole, {"s1": server("s1", records=20)}), 100.0)
    late = picture({"x": proxy(gone("s1", 3.0, records=3, ago=15.0))}, {})
    memory.add(late, 107.0)
    assert (topic(late)["last_known"]["records"], topic(late)["last_known"]["seconds_ago"]) == (20, 7.0)
    early = picture({"x": proxy(gone("s1", 3.0, records=30, ago=2.0))}, {})
    memory.add(early, 108.0)
    assert topic(early)["last_known"]["records"] == 30


def test_a_plot_has_a_gap_and_does_not_fall_to_zero() -> None:
    history = History()
    known = picture({"x": proxy(alive("s1"))}, {"s1": server("s1", records=20)})
    history.add(known, 1.0, 1.0)
    history.add(picture({"x": proxy(gone("s1", 3.0))}, {}), 2.0, 2.0)
    history.miss(3.0)
    history.add(known, 4.0, 4.0)
    history.add(known, 5.0, 5.0)
    facts = history.facts()
    assert facts["backlog"] == [7, None, None, 7, 7]
    assert facts["oldest"] == [1.0, None, None, 1.0, 1.0]
    assert facts["disk"] == [5, None, None, 5, 5]
    assert facts["puts"] == [0.0, None, None, 0.0, 0.0]


def test_metrics_omit_unknown_figures_and_show_since_when() -> None:
    found = picture({"x": proxy(gone("s1", 12.0, records=3, ago=15.0))}, {})
    samples = {one.name: one.value for family in cluster(found) for one in family.samples}
    assert samples["pubsub_topic_unknown_seconds"] == 12.0
    assert not {"pubsub_topic_records", "pubsub_topic_backlog", "pubsub_topic_oldest_unacknowledged_seconds"} & set(
        samples
    )


def test_an_unknown_topic_is_sorted_by_its_last_figures() -> None:
    found = picture({"x": proxy(gone("s1", 12.0, records=3, ago=15.0))}, {})
    other = topic(picture({"x": proxy(alive("s1"))}, {"s1": server("s1", records=1)})) | {"topic": "b"}
    assert [row["topic"] for row in topic_rows([other, topic(found)], Rates(), "records")] == ["a", "b"]
