"""With its server gone a topic is unknown to all that look: `status`, `top`, the gateway, its metrics, its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.cli.reports import gather
from pubsub.config.settings import ClientSettings
from tests.cli.standbys import pubsub
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import CLIENT, Gateway, parsed

pytestmark = pytest.mark.slow
FIGURES = ("records", "bytes", "backlog", "oldest_unacknowledged_seconds", "subscribers")


def test_an_outage_does_not_look_like_an_empty_topic(tmp_path: Path) -> None:
    with Cluster(tmp_path).run(proxies=2, servers=1) as cluster:
        settings = ClientSettings(proxies=tuple(cluster.addresses))
        with Gateway(cluster, tmp_path / "gateway") as gateway:
            gateway.subscribe("orders", "shop")
            for body in (b"one", b"two", b"three"):
                gateway.put("orders", body)
            until(lambda: gateway.ask("GET", "/topics/orders").json().get("backlog") == 3, "the gateway has seen it")
            gather(settings, 2.0)  # The proxies have too, as they are looked at.
            cluster.servers[0].kill()

            (topic,) = gather(settings, 2.0)["topics"]
            assert [topic[name] for name in FIGURES] == [None] * len(FIGURES), "the connection has just closed"
            assert topic["unknown_seconds"] < 5.0

            shown = pubsub("status", *words(cluster))
            (line,) = [line.split() for line in shown.stdout.splitlines() if line.split()[-1:] == ["ago"]]
            assert (line[0], line[4], line[7]) == ("orders", "3", "3"), shown.stdout
            (found,) = json.loads(pubsub("status", "--json", *words(cluster)).stdout)["topics"]
            assert (found["sole_owner"], found["records"], found["last_known"]["backlog"]) == (None, None, 3)
            (row,) = json.loads(pubsub("top", "--once", "--every", "0.5", "--json", *words(cluster)).stdout)["topics"]
            assert (row["backlog"], row["puts"], row["last_known"]["records"]) == (None, None, 3)
            _looked_at_through(gateway)
            if DRIVER is not None or REQUIRED:
                _looked_at_in_a_browser(gateway)


def _looked_at_through(gateway: Gateway) -> None:
    one: dict[str, Any] = {}

    def gone() -> bool:
        one.update(gateway.ask("GET", "/topics/orders").json())
        return one["unknown_seconds"] is not None

    until(gone, "the gateway asks anew")
    assert [one[name] for name in FIGURES] == [None] * len(FIGURES)
    assert (one["sole_owner"], one["last_known"]["records"], one["subscribers_total"]) == (None, 3, None)
    (listed,) = gateway.ask("GET", "/topics?sort=backlog").json()["topics"]
    assert listed["backlog"] is None
    metrics = gateway.ask("GET", "/metrics").text
    assert 'pubsub_topic_unknown_seconds{topic="orders"}' in metrics
    assert 'pubsub_topic_records{topic="orders"}' not in metrics
    with CLIENT.stream("GET", f"{gateway.url}/live") as answer:
        events = parsed(answer.iter_lines())
        until(lambda: json.loads(next(events)["data"])["history"]["backlog"][-1:] == [None], "the plot has a gap")


def _looked_at_in_a_browser(gateway: Gateway) -> None:
    with Browser() as browser:
        browser.go(f"{gateway.url}/")
        until(lambda: "3 messages, backlog 3" in browser.text("#topics"), "the figures known last are there")
        assert "?" in browser.text("#topics tbody")
        until(lambda: "no heartbeat for" in browser.text("#servers"), "and since when the server is not heard")
        until(lambda: browser.text("#plots").count("?") == 4, "the plots say that nothing is known now")
        browser.run("location.hash = '#/topics/orders'")
        until(lambda: "unknown for" in browser.text("#facts"), "so does the topic's own page")
        assert "Unknown." in browser.text("#subscribers")


def words(cluster: Cluster) -> list[str]:
    return [word for address in cluster.addresses for word in ("--proxy", address)]
