"""A snapshot in Prometheus's text format, written by Prometheus's own client library."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pubsub.metrics.counted import COUNTERS, RENAMED
from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Families(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Any]:
        snapshot = self._snapshot
        prefix = f"pubsub_{snapshot.role}"
        yield process_info(snapshot.role, snapshot.id)
        yield GaugeMetricFamily(f"{prefix}_ready", "1 if the process can serve.", float(not snapshot.unready))
        texts = COUNTERS[snapshot.role]
        for name in sorted(texts.keys() | snapshot.counters.keys()):
            text = texts.get(name, "Counter of the report.")
            yield CounterMetricFamily(f"{prefix}_{name}", text, snapshot.counters.get(name, 0))
        for name, old in RENAMED[snapshot.role].items():
            yield CounterMetricFamily(f"{prefix}_{old}", f"Old name of {name}.", snapshot.counters.get(name, 0))
        yield from _gauges(prefix, snapshot.gauges)
        for distribution in snapshot.distributions:
            yield _histogram(prefix, distribution)


def process_info(role: str, name: str) -> GaugeMetricFamily:
    """Return a gauge of 1 that names the scraped process by its labels, for joins.

    Args:
        role: "proxy", "server" or "gateway"; name: its ID, "" if it has none.
    """
    about = GaugeMetricFamily(
        "pubsub_process_info", "Role, ID and version of the process.", labels=["role", "id", "version"]
    )
    about.add_metric([role, name, _version()], 1)
    return about


def _gauges(prefix: str, gauges: tuple[Gauge, ...]) -> Iterator[Any]:
    families: dict[str, Any] = {}
    for gauge in gauges:
        family = families.get(gauge.name)
        if family is None:
            family = families[gauge.name] = GaugeMetricFamily(
                f"{prefix}_{gauge.name}", gauge.help, labels=list(gauge.labels)
            )
        family.add_metric(list(gauge.labels.values()), gauge.value)
    yield from families.values()


def _histogram(prefix: str, distribution: Distribution) -> Any:
    counted = distribution.counted
    names = [*(f"{bound:g}" if bound < 1e6 else str(int(bound)) for bound in counted.bounds), "+Inf"]
    buckets = list(zip(names, accumulate(counted.counts), strict=True))
    return HistogramMetricFamily(f"{prefix}_{distribution.name}", distribution.help, buckets, counted.total)


def _version() -> str:
    try:
        return version("pirate-pubsub")
    except PackageNotFoundError:
        return "unknown"


def exposition(snapshot: Snapshot) -> bytes:
    """Return a snapshot as text, with the library's own metrics of memory, open files and processor time.

    Args:
        snapshot: of this very process.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(snapshot))
    ProcessCollector(registry=registry)
    return bytes(generate_latest(registry))
