"""A snapshot of a server for scrapers, made in its loop between two turns (docs/monitoring.md, *Metrics of a server*).

Nothing here iterates over all topics or reads the store, so a snapshot takes the same time however much the server
holds. The report and the metrics of a gateway have the values of each topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pubsub.base.resources import used
from pubsub.config.settings import ServerSettings
from pubsub.metrics.snapshot import Distribution, Gauge, Snapshot
from pubsub.server.core import ServerCore
from pubsub.server.groups.facts import group_facts
from pubsub.server.loop import Loop
from pubsub.server.pair import Pair
from pubsub.server.storage.checkpoint import Checkpointer
from pubsub.server.upkeep.backlog_limit import Backlog

GROUPS_MAX: Final = 200
"""Most consumer groups with lines of their own."""

_GROUP_GAUGES: Final = {
    "waiting": "Messages that wait for a member of a consumer group.",
    "offered": "Messages that are offered to members.",
    "claimed": "Messages that members have claimed.",
    "in_doubt": "Messages that silent members have claimed.",
    "in_doubt_members": "Silent members with claims.",
    "in_doubt_seconds": "Silence of the member with claims that is silent for the longest time.",
    "delayed": "Messages that wait for a time after a failed attempt.",
    "dead_letters": "Dead letters.",
    "members_heard": "Members that were heard within a liveness.",
    "suspended": "1 if the group waits for an operator after a restore.",
    "full": "1 if the group is full of dead letters and claims nothing.",
    "held_seconds_max": "Time for which a member holds claims without a pause; the longest one.",
}
_GROUP_COUNTS: Final = {
    "released": "Messages given up by an operator or by the policy, since the server's start.",
    "done_after_release": "Messages done after they were given up: effects that may be double.",
    "claims_refused": "Claims refused, because another member has the part or an earlier message waits.",
    "offers_lost": "Offers ended because their member went silent.",
}


def serving(
    loop: Loop, core: ServerCore, checkpointer: Checkpointer, pair: Pair | None, ready: bool, now: float
) -> Snapshot:
    """Return the snapshot of a server that serves.

    Args:
        pair: makes the server one of two members; None if it has no standby.
        ready: True if the server has reported itself ready.
        now: monotonic seconds.
    """
    state = core.state
    keys = dict(core.reports.keys()) if core.reports.keys is not None else {}
    alive = sum(proxy.liveness.alive(now) for proxy in core.proxies.all)
    unready = "" if alive else "no proxy answers"
    if not ready or not core.proxies.answered_once:
        unready = core.proxies.refusal().replace("_", " ") or "no proxy has accepted this server yet"
    counters = {**keys.get("counters", {}), **state.counters}
    gauges = (
        Gauge("serving", "1 if it serves, alone or as the primary of two members.", 1),
        Gauge("draining", "1 while an operator drains it of its topics.", core.proxies.draining),
        Gauge("disk_full", "1 if puts are refused because the disk is full.", state.full),
        Gauge("topics", "Topics that it holds.", len(state.topics)),
        Gauge("topics_held_back", "Topics held back: damaged, or of an older copy.", len(state.held)),
        Gauge(
            "topics_quarantined",
            "Quarantined topics that came back after an operator abandoned them.",
            len(state.quarantined),
        ),
        Gauge("topics_set_aside", "Old name of topics_quarantined.", len(state.quarantined)),
        Gauge("proxies", "Proxies in its settings.", len(core.proxies.all)),
        Gauge("proxies_alive", "Proxies that answer.", alive),
        Gauge("links", "Open connections to and from other processes.", len(loop.dealers), {"to": "proxies"}),
        Gauge("links", "", len(loop.servers), {"to": "servers"}),
        Gauge("links", "", _open(counters), {"to": "own_address"}),
        *_queues(loop, core),
        *_backlogs(core),
        *_groups(core, now),
        Gauge("moves", "Topics under transfer.", len(core.moves.giving.gifts), {"direction": "giving"}),
        Gauge("moves", "", len(core.moves.receiving.incoming), {"direction": "receiving"}),
        *_disk(state.disk(), state.process()),
        *_clock(core, now),
        *_standby(pair, now),
    )
    return Snapshot("server", state.settings.id, unready, counters, gauges, tuple(_distributions(core, checkpointer)))


def following(settings: ServerSettings, counters: Mapping[str, int], pair: Pair, ready: bool, now: float) -> Snapshot:
    """Return the snapshot of a standby.

    Args:
        counters: the standby's own counters.
        pair: makes the server one of two members.
        ready: True if the standby has reported itself ready.
        now: monotonic seconds.
    """
    store = pair.disk.store
    unready = "" if ready else "its primary has not answered yet"
    gauges = (
        Gauge("serving", "1 if it serves, alone or as the primary of two members.", 0),
        Gauge("links", "Open connections to and from other processes.", len(pair.dealers), {"to": "proxies"}),
        Gauge("links", "", _open(counters), {"to": "own_address"}),
        *_disk({} if store is None else store.sizes(), used(settings.directory)),
        *_standby(pair, now),
    )
    return Snapshot("server", settings.id, unready, dict(counters), gauges)


def _distributions(core: ServerCore, checkpointer: Checkpointer) -> Iterator[Distribution]:
    measures = core.state.measures
    assert measures is not None  # A server with a metrics address always measures.
    yield Distribution(
        "put_seconds",
        "Time from the receipt of a put to its answer; puts answered together count once.",
        measures.puts.counted(),
    )
    yield Distribution(
        "delivery_seconds",
        "Time from a message's put to the answer that hands it out, for the first message of each answer.",
        measures.deliveries.counted(),
    )
    text = "Duration of a commit, with one fsync of the write-ahead log."
    yield Distribution("commit_seconds", text, measures.commits.counted())
    yield Distribution("commit_requests", "Requests that shared a commit.", measures.requests.counted())
    yield Distribution("commit_records", "Messages put in one commit.", measures.records.counted())
    text = "Duration of a round that copied a part of the write-ahead log into the store."
    yield Distribution("checkpoint_seconds", text, checkpointer.rounds)


def _open(counters: Mapping[str, int]) -> int:
    return max(0, counters.get("connections_accepted", 0) - counters.get("connections_ended", 0))


def _clock(core: ServerCore, now: float) -> Iterator[Gauge]:
    ahead = core.proxies.ahead_seconds(now)
    text = "Seconds by which its timestamps are ahead of the clocks of a majority of the proxies; 0 if unknown."
    yield Gauge("clock_ahead_seconds", text, 0 if ahead is None else ahead)
    yield Gauge("ages_trusted", "1 if messages go by their age, 0 if its clock cannot be trusted.",
                int(core.proxies.trusts_ages(now)))  # fmt: skip


def _queues(loop: Loop, core: ServerCore) -> Iterator[Gauge]:
    state, text = core.state, "Requests that wait."
    yield Gauge("waiting", text, len(state.long_polls), {"for": "messages"})
    yield Gauge("waiting", text, len(core.reads), {"for": "range_reads"})
    yield Gauge("waiting", text, len(core.sole_owner), {"for": "sole_owner"})
    yield Gauge("waiting", text, len(core.sole_owner), {"for": "whole_topics"})  # The old value, for one release.
    yield Gauge("unsent_bytes", "Bytes of large answers that wait to be sent.", loop.unsent_bytes)


def _backlogs(core: ServerCore) -> Iterator[Gauge]:
    text = "Share of backlog_bytes_max in use, of each topic above 80 %, with the subscriber that is furthest behind."
    none = Backlog("", "", 0.0)  # A family without a line would be missing from the page.
    for one in core.backlogs.watched.values() or (none,):
        yield Gauge("backlog_used_ratio", text, one.share, {"topic": one.topic, "subscriber": one.subscriber})


def _groups(core: ServerCore, now: float) -> Iterator[Gauge]:
    """Yield the figures of consumer groups. A server without groups has no line."""
    for topic, group in core.group_memory.groups(GROUPS_MAX):
        facts = group_facts(core.group_memory.context(topic, group, now), core.state)
        labels = {"topic": topic.name, "group": group.name}
        for name, text in _GROUP_GAUGES.items():
            yield Gauge(f"group_{name}", text, float(facts[name] or 0), labels)
        for name, text in _GROUP_COUNTS.items():
            yield Gauge(f"group_{name}", text, facts["counts"].get(name, 0), labels)


def _disk(sizes: Mapping[str, int], process: Mapping[str, int]) -> Iterator[Gauge]:
    yield Gauge("store_bytes", "Size of the store's file.", sizes.get("store", 0))
    yield Gauge(
        "wal_bytes", "Size of the store's write-ahead log, which is reused and never shrinks.", sizes.get("log", 0)
    )
    yield Gauge("disk_size_bytes", "Size of the disk under the store.", process.get("disk_size_bytes", 0))
    yield Gauge("disk_free_bytes", "Free bytes on the disk under the store.", process.get("disk_free_bytes", 0))
    yield Gauge(
        "disk_used_bytes", "Used bytes on the disk under the store, by all programs.", process.get("disk_used_bytes", 0)
    )


def _standby(pair: Pair | None, now: float) -> Iterator[Gauge]:
    if pair is None:
        return
    facts: Mapping[str, Any] = pair.report(now)
    yield Gauge("term", "The term of the store's primary.", facts["term"])
    yield Gauge("members_in_sync", "Members that have every answered message on disk, as far as this one knows.",
                len(facts["in_sync"]))  # fmt: skip
    yield Gauge("held_loops", "Loops with answers that wait for the other member.", facts["held"])

    yield Gauge("standby_lag_loops", "Loops that the standby has not confirmed.", facts["lag_loops"] or 0)
    yield Gauge("standby_lag_bytes", "Bytes that the standby has not confirmed.", facts["lag_bytes"] or 0)
