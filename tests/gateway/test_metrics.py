from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub.gateway import metrics
from pubsub.gateway.metrics import Facts, Requests, exposition

REPORT: dict[str, Any] = {
    "proxies": [{"address": "tcp://a", "answered": True}, {"address": "tcp://b", "answered": False}],
    "servers": [
        {"id": "s1", "answered": True, "report": {"disk": {"db": 10, "wal": 5}}},
        {"id": "s2", "answered": False, "report": None},
    ],
    "topics": [{"topic": 'odd "name\\', "records": 3, "bytes": 30, "backlog": 2, "oldest_unacknowledged_seconds": 9.5,
                "unknown_seconds": None, "subscribers": {"c": {"waiting": 2}}}],
    "warnings": ["x"],
}  # fmt: skip


def samples(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def test_the_metrics_show_the_report_of_the_cluster() -> None:
    found = samples(exposition(Requests(), Facts({"pubsub_x": (2, "x")}, {"pubsub_y_bytes": (3, "y")}, REPORT)))
    assert found["pubsub_x_total", ()] == 2
    assert found["pubsub_y_bytes", ()] == 3
    assert found["pubsub_up", ()] == 1
    assert found["pubsub_process_up", ("tcp://b", "proxy")] == 0
    assert found["pubsub_server_disk_bytes", ("wal", "s1")] == 5
    assert found["pubsub_topic_records", ('odd "name\\',)] == 3
    assert found["pubsub_topic_oldest_unacknowledged_seconds", ('odd "name\\',)] == 9.5
    assert found["pubsub_subscriber_backlog", ("c", 'odd "name\\')] == 2
    assert found["pubsub_warnings", ()] == 1
    assert found["pubsub_metrics_left_out", ("topics",)] == found["pubsub_metrics_left_out", ("subscribers",)] == 0


def test_a_topic_with_settings_has_their_figures_and_another_one_has_no_line() -> None:
    (plain,) = REPORT["topics"]
    nothing = {"kept_bytes": None, "oldest_stored_seconds": None, "keep_seconds": None, "settings_conflict": False}
    configured = {"kept_bytes": 7, "oldest_stored_seconds": 8.5, "keep_seconds": None, "settings_conflict": True}
    topics = [plain | nothing, plain | {"topic": "kept"} | configured]
    found = samples(exposition(Requests(), Facts({}, {}, REPORT | {"topics": topics})))
    names = ("kept_bytes", "oldest_stored_seconds", "keep_seconds", "settings_conflict")
    lines = {key: value for key, value in found.items() if key[0].removeprefix("pubsub_topic_") in names}
    assert lines == {
        ("pubsub_topic_kept_bytes", ("kept",)): 7,
        ("pubsub_topic_oldest_stored_seconds", ("kept",)): 8.5,
        ("pubsub_topic_settings_conflict", ("kept",)): 1,
    }


def test_a_topic_with_delayed_messages_has_their_figures_and_another_one_has_no_line() -> None:
    (plain,) = REPORT["topics"]
    delayed = {"topic": "later", "delayed": 3, "delayed_bytes": 40, "overdue_seconds": None}
    found = samples(exposition(Requests(), Facts({}, {}, REPORT | {"topics": [plain, plain | delayed]})))
    names = ("delayed", "delayed_bytes", "overdue_seconds")
    lines = {key: value for key, value in found.items() if key[0].removeprefix("pubsub_topic_") in names}
    assert lines == {
        ("pubsub_topic_delayed", ("later",)): 3,
        ("pubsub_topic_delayed_bytes", ("later",)): 40,
        ("pubsub_topic_overdue_seconds", ("later",)): 0,
    }


def test_topics_and_subscribers_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS_TOPICS_MAX", 2)
    monkeypatch.setattr(metrics, "METRICS_SUBSCRIBERS_MAX", 4)
    (topic,) = REPORT["topics"]
    waiting = {name: {"waiting": 1} for name in "abc"}
    many = [topic | {"topic": f"t{number}", "subscribers": waiting} for number in range(3)]
    found = samples(exposition(Requests(), Facts({}, {}, REPORT | {"topics": many})))
    assert [labels for name, labels in found if name == "pubsub_topic_backlog"] == [("t0",), ("t1",)]
    assert sum(name == "pubsub_subscriber_backlog" for name, _ in found) == 4
    assert found["pubsub_topics", ()] == 3
    assert found["pubsub_metrics_left_out", ("topics",)] == 1
    assert found["pubsub_metrics_left_out", ("subscribers",)] == 5


def test_the_metrics_without_an_answer_show_only_the_gateway() -> None:
    found = samples(exposition(Requests(), Facts({}, {}, None)))
    told = {name: value for (name, _), value in found.items() if name.startswith("pubsub_")}
    assert told == {"pubsub_up": 0, "pubsub_process_info": 1}
    assert found["process_resident_memory_bytes", ()] > 1_000_000


def test_requests_are_counted_by_method_route_and_status() -> None:
    requests = Requests()
    for status in (201, 201, 503):
        requests.answered("POST", "/topics/{topic}/messages", status, 0.003)
    found = samples(exposition(requests, Facts({}, {}, None)))
    route = ("POST", "/topics/{topic}/messages")
    assert found["pubsub_gateway_requests_total", (*route, "201")] == 2
    assert found["pubsub_gateway_request_seconds_count", route] == 3


def test_unknown_methods_are_counted_as_one() -> None:
    requests = Requests()
    for number in range(5):
        requests.answered(f"X{number}", "none", 405, 0.001)
    found = samples(exposition(requests, Facts({}, {}, None)))
    assert {key: value for key, value in found.items() if key[0] == "pubsub_gateway_requests_total"} == {
        ("pubsub_gateway_requests_total", ("other", "none", "405")): 5
    }
