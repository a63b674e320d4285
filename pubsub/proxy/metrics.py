"""A snapshot of a proxy for scrapers, made in its loop between two turns (docs/monitoring.md, *Metrics of a proxy*)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.samples import Samples


def snapshot(core: ProxyCore, samples: Samples, unread_bytes: int, now: float) -> Snapshot:
    """Of a proxy.

    Args:
        core: its own.
        samples: the puts that it looks at.
        unread_bytes: of large answers that clients have not read.
        now: monotonic seconds.
    """
    keys = core.keys() if core.keys is not None else {}
    counters = {**core.counters, **keys.get("counters", {}), "puts_given_up": samples.given_up}
    distributions = (
        Distribution(
            "put_seconds",
            "From forwarding a put to passing on the answer that it is taken; of some puts.",
            samples.histogram.counted(),
        ),
    )
    return Snapshot(
        "proxy", core.settings.id, _unready(core, now), counters, tuple(_gauges(core, samples, unread_bytes, now)),
        distributions,
    )  # fmt: skip


def _unready(core: ProxyCore, now: float) -> str:
    """Why nothing is routed; no server being heard is no reason, since servers may wait for a proxy to be ready."""
    if core.suspended:
        return f"nothing is routed: {core.suspended.replace('_', ' ')}"
    left = core.startup_seconds_left(now)
    return f"it assigns no topic for {left:.1f} s yet" if left else ""


def _gauges(core: ProxyCore, samples: Samples, unread_bytes: int, now: float) -> Iterator[Gauge]:
    table = core.table
    servers = sorted(table.servers.values(), key=lambda one: (one.id, one.store))
    yield Gauge("witness", "Whether it routes nothing, and only votes.", core.settings.witness)
    yield Gauge("topics", "Topics in its table.", len(table))
    yield Gauge("topics_contested", "Topics that several servers hold.", len(table.contested))
    yield Gauge(
        "topics_tentative", "Topics given to a server that has not made them.", len(table.assignments.tentative)
    )
    yield Gauge("servers", "Servers that it knows.", len(servers))
    yield Gauge("servers_alive", "Servers that are heard.", sum(one.alive(now) for one in servers))
    yield Gauge("connections", "Connections to its addresses that are open.", _open(core.counters))
    yield Gauge("unread_bytes", "Large answers that clients have not read.", unread_bytes)
    under_way: dict[str, int] = {}
    for server in servers:
        under_way[server.id] = under_way.get(server.id, 0) + len(server.in_flight)
    for name, size in under_way.items():
        yield Gauge("in_flight_bytes", "Large bodies on their way to a server.", size, {"server": name})
    yield Gauge("puts_looked_at", "Puts under way of which it is measured how long they take.", len(samples.waiting))
    process = core.process()
    yield Gauge("disk_size_bytes", "The disk under its directory.", process.get("disk_size_bytes", 0))
    yield Gauge("disk_free_bytes", "What may still be written to it.", process.get("disk_free_bytes", 0))
    yield Gauge("disk_used_bytes", "What is on it, of whomever.", process.get("disk_used_bytes", 0))


def _open(counters: Mapping[str, int]) -> int:
    return max(0, counters.get("connections_accepted", 0) - counters.get("connections_ended", 0))
