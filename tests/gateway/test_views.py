"""The cluster as JSON, metrics, and whether the gateway lives and is ready."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.faults.cluster import Cluster, until
from tests.gateway.serving import Gateway


def test_topics_are_listed_in_pages_by_name(gateway: Gateway) -> None:
    for name in ("page-a", "page-b", "page-c"):
        gateway.put(name, b"x")
    until(lambda: gateway.ask("GET", "/topics?search=page-").json()["total"] == 3, "the report knows them")
    first = gateway.ask("GET", "/topics?search=page-&max=2").json()
    assert [topic["topic"] for topic in first["topics"]] == ["page-a", "page-b"]
    second = gateway.ask("GET", f"/topics?search=page-&max=2&after={first['next']}").json()
    assert ([topic["topic"] for topic in second["topics"]], second["next"]) == (["page-c"], None)


def test_a_topic_lists_the_backlog_of_each_subscriber(gateway: Gateway) -> None:
    gateway.subscribe("watched", "s")
    for _ in range(3):
        gateway.put("watched", b"x")
    until(lambda: gateway.ask("GET", "/topics/watched").status_code == 200, "the report knows it")
    found = until(
        lambda: (topic := gateway.ask("GET", "/topics/watched").json())["records"] == 3 and topic, "all are counted"
    )
    assert found["owners"] == ["s1"]
    (subscriber,) = found["subscribers"]
    assert (subscriber["client"], subscriber["waiting"], subscriber["polling"]) == ("http.s", 3, False)
    assert 0.0 < subscriber["oldest_unacknowledged_seconds"] <= found["oldest_unacknowledged_seconds"] + 0.001
    assert found["held_by"] == "http.s"


def test_an_unknown_topic_is_not_found(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/topics/nobodys").status_code == 404


def test_servers_and_proxies_have_their_own_reports(gateway: Gateway) -> None:
    (server,) = gateway.ask("GET", "/servers").json()["servers"]
    assert (server["id"], server["answered"], server["report"]["role"]) == ("s1", True, "server")
    (proxy,) = gateway.ask("GET", "/proxies").json()["proxies"]
    assert (proxy["answered"], proxy["report"]["proxy"]) == (True, "p1")


def test_metrics_can_be_read_and_count(gateway: Gateway) -> None:
    gateway.put("counted", b"x")

    def value(name: str, **labels: str) -> float:
        text = gateway.ask("GET", "/metrics").text
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        found = [one.value for one in samples if one.name == name and labels.items() <= one.labels.items()]
        return sum(found)

    before = value("pubsub_gateway_messages_put_total")
    gateway.put("counted", b"y")
    assert value("pubsub_gateway_messages_put_total") == before + 1
    assert value("pubsub_up") == 1
    assert value("pubsub_process_up", role="server", id="s1") == 1
    assert value("pubsub_gateway_requests_total", route="/topics/{topic}/messages", status="201") >= 2
    until(lambda: value("pubsub_topic_records", topic="counted") == 2, "the topic's messages are counted")


def test_a_gateway_without_its_cluster_is_alive_and_not_ready(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "alone", proxies=["tcp://127.0.0.1:9"]) as gateway:
        assert gateway.ask("GET", "/livez").json() == {"alive": True}
        assert gateway.ask("GET", "/readyz").status_code == 503
        assert gateway.ask("GET", "/topics").status_code == 503
        assert "pubsub_up 0.0" in gateway.ask("GET", "/metrics").text
