"""A snapshot of a server for scrapers, made in its loop between two turns (docs/monitoring.md, *Metrics of a server*).

Nothing here goes through all topics or reads the store: a snapshot costs the loop the same however much the server
holds. What is known of each topic is in the report, and in the metrics of a gateway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pubsub.base.resources import used
from pubsub.config.settings import ServerSettings
from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot
from pubsub.server.core import ServerCore
from pubsub.server.loop import Loop
from pubsub.server.pair import Pair
from pubsub.server.storage.checkpoint import Checkpointer


def serving(
    loop: Loop, core: ServerCore, checkpointer: Checkpointer, pair: Pair | None, ready: bool, now: float
) -> Snapshot:
    """Of a server that serves.

    Args:
        loop, core, checkpointer: its own.
        pair: what makes it one of two; None where it is alone.
        ready: whether it has said that it is.
        now: monotonic seconds.
    """
    state = core.state
    keys = dict(core.reports.keys()) if core.reports.keys is not None else {}
    alive = sum(proxy.liveness.alive(now) for proxy in core.proxies.all)
    unready = "" if alive else "no proxy is heard"
    if not ready or not core.proxies.answered_once:
        unready = core.proxies.refusal().replace("_", " ") or "no proxy has taken this server over yet"
    counters = {**keys.get("counters", {}), **state.counters}
    gauges = (
        Gauge("serving", "Whether it serves: alone, or as the primary of two members.", 1),
        Gauge("draining", "Whether it is being drained.", core.proxies.draining),
        Gauge("disk_full", "Whether puts are refused for want of space.", state.full),
        Gauge("topics", "Topics that it holds.", len(state.topics)),
        Gauge("topics_held_back", "Topics that it holds back, as damaged or as an older copy's.", len(state.held)),
        Gauge("topics_set_aside", "Topics that came back after they had been given up.", len(state.aside)),
        Gauge("proxies", "Proxies that it is told of.", len(core.proxies.all)),
        Gauge("proxies_alive", "Proxies that are heard.", alive),
        Gauge("links", "Connections to and from others that are open.", len(loop.dealers), {"to": "proxies"}),
        Gauge("links", "", len(loop.servers), {"to": "servers"}),
        Gauge("links", "", _open(counters), {"to": "own_address"}),
        *_queues(loop, core),
        Gauge("moves", "Topics on their way.", len(core.moves.giving.gifts), {"direction": "giving"}),
        Gauge("moves", "", len(core.moves.receiving.incoming), {"direction": "receiving"}),
        *_disk(state.disk(), state.process()),
        *_standby(pair, now),
    )
    return Snapshot("server", state.settings.id, unready, counters, gauges, tuple(_distributions(core, checkpointer)))


def following(settings: ServerSettings, counters: Mapping[str, int], pair: Pair, ready: bool, now: float) -> Snapshot:
    """Of a standby.

    Args:
        settings: the server's.
        counters: what it counts.
        pair: what makes it one of two.
        ready: whether it has said that it is.
        now: monotonic seconds.
    """
    store = pair.disk.store
    unready = "" if ready else "its primary has not answered yet"
    gauges = (
        Gauge("serving", "Whether it serves: alone, or as the primary of two members.", 0),
        Gauge("links", "Connections to and from others that are open.", len(pair.dealers), {"to": "proxies"}),
        Gauge("links", "", _open(counters), {"to": "own_address"}),
        *_disk({} if store is None else store.sizes(), used(settings.directory)),
        *_standby(pair, now),
    )
    return Snapshot("server", settings.id, unready, dict(counters), gauges)


def _distributions(core: ServerCore, checkpointer: Checkpointer) -> Iterator[Distribution]:
    measures = core.state.measures
    assert measures is not None  # who is asked for a snapshot measures
    yield Distribution(
        "put_seconds",
        "From a put's being taken from its socket to its answer's being sent; those answered together count once.",
        measures.puts.counted(),
    )
    yield Distribution(
        "delivery_seconds",
        "From a message's put to the answer that hands it out being sent, of the first message of each answer.",
        measures.deliveries.counted(),
    )
    text = "COMMITs: one fsync of the write-ahead log each."
    yield Distribution("commit_seconds", text, measures.commits.counted())
    yield Distribution("commit_requests", "Requests that shared a commit.", measures.requests.counted())
    yield Distribution("commit_records", "Messages put in one commit.", measures.records.counted())
    text = "Rounds that copied some of the write-ahead log back."
    yield Distribution("checkpoint_seconds", text, checkpointer.rounds)


def _open(counters: Mapping[str, int]) -> int:
    """Connections to the server's own address."""
    return max(0, counters.get("connections_accepted", 0) - counters.get("connections_ended", 0))


def _queues(loop: Loop, core: ServerCore) -> Iterator[Gauge]:
    state, text = core.state, "What waits."
    yield Gauge("waiting", text, len(state.long_polls), {"for": "messages"})
    yield Gauge("waiting", text, len(core.reads), {"for": "range_reads"})
    yield Gauge("waiting", text, len(core.sole_owner), {"for": "whole_topics"})
    yield Gauge("unsent_bytes", "Large answers that wait to be sent.", loop.unsent_bytes)


def _disk(sizes: Mapping[str, int], process: Mapping[str, int]) -> Iterator[Gauge]:
    yield Gauge("store_bytes", "The store's file.", sizes.get("store", 0))
    yield Gauge("wal_bytes", "The store's write-ahead log, which is grown once and written over.", sizes.get("log", 0))
    yield Gauge("disk_size_bytes", "The disk under the store.", process.get("disk_size_bytes", 0))
    yield Gauge("disk_free_bytes", "What may still be written to it.", process.get("disk_free_bytes", 0))
    yield Gauge("disk_used_bytes", "What is on it, of whomever.", process.get("disk_used_bytes", 0))


def _standby(pair: Pair | None, now: float) -> Iterator[Gauge]:
    """Of one of two members."""
    if pair is None:
        return
    facts: Mapping[str, Any] = pair.report(now)
    yield Gauge("term", "The term of the store's primary.", facts["term"])
    yield Gauge("members_in_sync", "Members that have all that was answered, as far as this one knows.",
                len(facts["in_sync"]))  # fmt: skip
    yield Gauge("held_loops", "Loops whose answers wait for the other member.", facts["held"])
    yield Gauge("standby_lag_loops", "Loops that the standby has not confirmed.", facts["lag_loops"] or 0)
    yield Gauge("standby_lag_bytes", "Bytes that the standby has not confirmed.", facts["lag_bytes"] or 0)
