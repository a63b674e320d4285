"""Metrics in Prometheus's text format: the gateway's own, and those of the cluster's report (docs/http.md)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pubsub.gateway.limits import METRICS_SUBSCRIBERS_MAX, METRICS_TOPICS_MAX
from pubsub.metrics.exposition import process_info

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""Methods with a label of their own; all others share one, so that a peer cannot add lines."""


class Requests:
    """Counts requests by method, route and status.

    Attributes:
        registry: for a scrape.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        labels = ("method", "route")
        self._count = Counter(
            "pubsub_gateway_requests", "Requests answered.", (*labels, "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "pubsub_gateway_request_seconds", "Time from a request's headers to the start of its response.", labels,
            registry=self.registry, buckets=_SECONDS,
        )  # fmt: skip
        self._counters: dict[tuple[str, str, int], Any] = {}
        self._histograms: dict[tuple[str, str], Any] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method if method in _METHODS else "other", route, status)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._count.labels(*key[:2], str(status))
        histogram = self._histograms.get(key[:2])
        if histogram is None:
            histogram = self._histograms[key[:2]] = self._seconds.labels(*key[:2])
        counter.inc()
        histogram.observe(seconds)


class Facts(Collector):
    """Numbers that are read at a scrape.

    Args:
        counters: name -> (value, help text), without `_total`; gauges: the same.
        report: of the cluster; None: no proxy answered.
    """

    def __init__(
        self, counters: dict[str, tuple[float, str]], gauges: dict[str, tuple[float, str]], report: Any
    ) -> None:
        self._counters, self._gauges, self._report = counters, gauges, report

    def collect(self) -> Iterator[Any]:
        for name, (value, text) in self._counters.items():
            yield CounterMetricFamily(name, text, value)
        for name, (value, text) in self._gauges.items():
            yield GaugeMetricFamily(name, text, value)
        yield process_info("gateway", "")
        yield GaugeMetricFamily("pubsub_up", "1 if a proxy answers.", float(self._report is not None))
        if self._report is not None:
            yield from cluster(self._report)


def cluster(report: dict[str, Any]) -> Iterator[Any]:
    up = GaugeMetricFamily("pubsub_process_up", "1 if the process answers.", labels=["role", "id"])
    for proxy in report["proxies"]:
        up.add_metric(["proxy", proxy["address"]], float(proxy["answered"]))
    for server in report["servers"]:
        up.add_metric(["server", server["id"]], float(server["answered"]))
    yield up
    yield GaugeMetricFamily("pubsub_warnings", "Warnings that `pubsub status` lists.", len(report["warnings"]))
    disk = GaugeMetricFamily("pubsub_server_disk_bytes", "Bytes on a server's disk.", labels=["server", "part"])
    for server in report["servers"]:
        facts = server["report"] or {}
        for part, size in (facts.get("disk") or {}).items():
            disk.add_metric([server["id"], part], size)
    yield disk
    yield from _topics(report["topics"])


_RETAINED: Final = {
    "kept_bytes": "Bytes that a topic keeps by its settings although no subscriber needs them.",
    "oldest_stored_seconds": "Age of the oldest message that a topic with settings holds.",
    "keep_seconds": "Age beyond which the setting keep lets a message go.",
    "throttled": "Puts that were put off because of the settings rate and bytes of a topic.",
    "throttled_seconds": "Time during which puts waited because of them.",
    "settings_conflict": "1 if two servers merged the topic with different settings, otherwise 0.",
    "superseded_seconds": "Age of the oldest superseded message that a subscriber needs; 0 if there is none.",
}

_NOTHING: Final = {"superseded_seconds": 0.0}
"""The values of these metrics where the report has none."""

_DELAYED: Final = {
    "delayed": "Messages of a topic that wait for their due time.",
    "delayed_bytes": "Bytes of these messages.",
    "overdue_seconds": "Seconds since the oldest of these messages was due; 0 if none is due.",
}


def _topics(topics: list[dict[str, Any]]) -> Iterator[Any]:
    yield GaugeMetricFamily("pubsub_topics", "Number of topics.", len(topics))
    families = {
        "records": GaugeMetricFamily("pubsub_topic_records", "Messages that a topic holds.", labels=["topic"]),
        "bytes": GaugeMetricFamily("pubsub_topic_bytes", "Bytes that a topic holds.", labels=["topic"]),
        "backlog": GaugeMetricFamily(
            "pubsub_topic_backlog", "Backlog of the slowest subscriber, in messages.", labels=["topic"]
        ),
    }
    oldest = GaugeMetricFamily(
        "pubsub_topic_oldest_unacknowledged_seconds",
        "Age of the oldest message that some subscriber has not acknowledged; 0 if there is none.",
        labels=["topic"],
    )
    silent = GaugeMetricFamily(
        "pubsub_topic_unknown_seconds",
        "Time without an answer of the topic's server, during which the topic has no other lines; 0 if it answers.",
        labels=["topic"],
    )
    retained = {
        name: GaugeMetricFamily(f"pubsub_topic_{name}", text, labels=["topic"]) for name, text in _RETAINED.items()
    }
    for topic in topics[:METRICS_TOPICS_MAX]:
        silent.add_metric([topic["topic"]], topic["unknown_seconds"] or 0.0)
        if topic["unknown_seconds"] is not None:
            continue
        oldest.add_metric([topic["topic"]], topic["oldest_unacknowledged_seconds"] or 0.0)
        for name, family in families.items():
            family.add_metric([topic["topic"]], topic[name])
        configured = topic.get("kept_bytes") is not None or topic.get("settings_conflict")
        for name, family in retained.items():
            value = _NOTHING.get(name) if topic.get(name) is None else topic[name]
            if configured and value is not None:
                family.add_metric([topic["topic"]], float(value))
    yield from families.values()
    yield from retained.values()
    yield from _delayed(topics)
    yield oldest
    yield silent
    yield from _subscribers(topics)
    over = GaugeMetricFamily(
        "pubsub_metrics_left_out",
        "Topics and subscribers without own lines because of the limit.",
        labels=["what"],
    )
    over.add_metric(["topics"], max(0, len(topics) - METRICS_TOPICS_MAX))
    subscribers = sum(len(one["subscribers"] or ()) for one in topics)
    over.add_metric(["subscribers"], max(0, subscribers - METRICS_SUBSCRIBERS_MAX))
    yield over


def _delayed(topics: list[dict[str, Any]]) -> Iterator[Any]:
    for name, text in _DELAYED.items():
        family = GaugeMetricFamily(f"pubsub_topic_{name}", text, labels=["topic"])
        for topic in topics[:METRICS_TOPICS_MAX]:
            if topic.get("delayed"):
                family.add_metric([topic["topic"]], float(topic[name] or 0))
        yield family


def _subscribers(topics: list[dict[str, Any]]) -> Iterator[Any]:
    waiting = GaugeMetricFamily(
        "pubsub_subscriber_backlog", "Backlog of a subscriber, in messages.", labels=["topic", "subscriber"]
    )
    rows = (
        (topic["topic"], name, facts["waiting"])
        for topic in topics
        for name, facts in (topic["subscribers"] or {}).items()
    )
    for topic, name, count in islice(rows, METRICS_SUBSCRIBERS_MAX):
        waiting.add_metric([topic, name], count)
    yield waiting


def exposition(requests: Requests, facts: Facts) -> bytes:
    """Return all metrics as text, with the library's own of memory, open files and processor time."""
    found = CollectorRegistry(auto_describe=False)
    found.register(facts)
    ProcessCollector(registry=found)
    return bytes(generate_latest(requests.registry)) + bytes(generate_latest(found))
