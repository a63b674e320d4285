"""A snapshot of a proxy for scrapers, made in its loop between two turns (docs/monitoring.md, *Metrics of a proxy*)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.samples import Samples


def snapshot(core: ProxyCore, samples: Samples, unread_bytes: int, now: float) -> Snapshot:
    """Return the metrics of a proxy.

    Args:
        samples: the puts that are timed.
        unread_bytes: large answers that clients have not read.
        now: monotonic seconds.
    """
    keys = core.keys() if core.keys is not None else {}
    counters = {**core.counters, **keys.get("counters", {}), "puts_given_up": samples.given_up}
    distributions = (
        Distribution(
            "put_seconds",
            "Time from forwarding a put to forwarding its success; of some puts.",
            samples.histogram.counted(),
        ),
    )
    return Snapshot(
        "proxy", core.settings.id, _unready(core, now), counters, tuple(_gauges(core, samples, unread_bytes, now)),
        distributions,
    )  # fmt: skip


def _unready(core: ProxyCore, now: float) -> str:
    """Return why no request is forwarded, "" if the proxy is ready.

    A proxy without live servers is ready, because servers may wait for it to be ready.
    """
    if core.suspended:
        return f"no request is forwarded: {core.suspended.replace('_', ' ')}"
    left = core.startup_seconds_left(now)
    return f"no new topic is assigned for another {left:.1f} s" if left else ""


def _gauges(core: ProxyCore, samples: Samples, unread_bytes: int, now: float) -> Iterator[Gauge]:
    table = core.table
    servers = sorted(table.servers.values(), key=lambda one: (one.id, one.store))
    yield Gauge("witness", "Whether it only votes and forwards nothing.", core.settings.witness)
    yield Gauge("topics", "Topics in its table.", len(table))
    yield Gauge("topics_contested", "Topics that several servers hold.", len(table.contested))
    yield Gauge(
        "topics_tentative", "Topics assigned to a server that has not announced them.", len(table.assignments.tentative)
    )
    text = "Deleted topics of a server that has not stored the deletion."
    yield Gauge("deletions_unfinished", text, len(core.deletions.unfinished(now)))
    yield Gauge("servers", "Servers in its table.", len(servers))
    yield Gauge("servers_alive", "Servers that are alive.", sum(one.alive(now) for one in servers))
    yield Gauge(
        "server_defaults", "Different defaults of topics' settings among its servers; above 1 no message goes by one.",
        len({one.defaults for one in servers if one.announced}),
    )  # fmt: skip
    yield Gauge("connections", "Open connections to its addresses.", _open(core.counters))
    yield Gauge("unread_bytes", "Bytes of large answers that clients have not read.", unread_bytes)
    under_way: dict[str, int] = {}
    for server in servers:
        under_way[server.id] = under_way.get(server.id, 0) + len(server.in_flight)
    for name, size in under_way.items():
        yield Gauge("in_flight_bytes", "Bytes of large bodies in flight to a server.", size, {"server": name})
    yield Gauge("puts_looked_at", "Puts in flight that are timed.", len(samples.waiting))
    for user, held in (core.keys() if core.keys is not None else {}).get("throttled", {}).items():
        text = "Time during which puts of a key with a quota waited, since the start."
        yield Gauge("throttled_seconds", text, held["seconds"], {"user": user})
    process = core.process()
    yield Gauge("disk_size_bytes", "Size of the disk with its directory.", process.get("disk_size_bytes", 0))
    yield Gauge("disk_free_bytes", "Bytes that may still be written to that disk.", process.get("disk_free_bytes", 0))
    yield Gauge("disk_used_bytes", "Bytes in use on that disk, by all programs.", process.get("disk_used_bytes", 0))


def _open(counters: Mapping[str, int]) -> int:
    return max(0, counters.get("connections_accepted", 0) - counters.get("connections_ended", 0))
