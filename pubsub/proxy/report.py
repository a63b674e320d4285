"""The proxy's knowledge as JSON: the answer to REPORT with the target "-".

    proxy, uptime_seconds, starting, startup_seconds_left, proxies_agree
    process     memory_bytes; disk_size_bytes, disk_free_bytes, disk_used_bytes of the disk with its directory
    metrics     URL of the metrics, "" if they are not served
    insecure    an address that other hosts can use without a key, "" if there is none
    servers     id, store, incarnation, change, address, alive, silence_seconds, topics, assigned, proxies, complete,
                draining
                announced: whether this proxy has ever had a full announcement of it; heard: its old name
                member: of a store with a register, its primary; the incarnation is the term; "" without a register
                gone_seconds: seconds of silence, at most since the proxy started; null while it is alive
                last_report: of a silent server: seconds_ago, standby, and topics, each with records, bytes, backlog,
                oldest_unacknowledged_seconds and the number of subscribers; null if the proxy has none
    topics      topic, holders (server, store, log, alive), contested; contested topics first, then TOPICS_MAX at most
    witness     whether the proxy only votes and forwards nothing
    registers   of stores with a register: store, server, votes (whether this proxy has a vote), primary, term, address,
                members, in_sync, ballot, promised: the view that this proxy accepted last, which may differ from the
                chosen one; REGISTERS_MAX at most
    abandoned   topic, log, server, store: logs that operators gave up, ABANDONED_MAX at most
    doubts      topic, servers: silent servers that may hold the topic without an announcement
    unfinished_deletions  topic, server, seconds: holders of deleted topics that have not stored the deletion,
                ABANDONED_MAX at most, the oldest first
    patterns    subscriber, pattern, number, on, stamp: subscriptions to patterns of topics. A report about one topic
                has only those whose pattern is that topic, ended ones, too
    authorized_digest, authorized_lines, problems (of a proxy with keys: digest of the meaning of its access list,
                equal for equal lists; its length; the problems of its files)
    topics_total, counters, warnings (present problems), notices (recent log lines: seconds_ago, text)

`silence_seconds` is null and `proxies` empty for a server that has sent nothing since the proxy started. A topic that
is assigned and not announced has no holders; `assigned` names its server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Final

from pubsub.protocol.pattern_table import PatternTable
from pubsub.proxy.deletions import Unfinished
from pubsub.proxy.register import REGISTERS_MAX
from pubsub.proxy.remembered import RegisterRow
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

TOPICS_MAX: Final = 10_000
"""Limit of topics in a report."""

WARNINGS_MAX: Final = 100
ABANDONED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts for the report that the routing table does not have."""

    proxy: str
    uptime_seconds: float
    startup_seconds_left: float
    suspended: str
    counters: dict[str, int]
    notices: list[tuple[float, str]]
    left_out: int
    registers: Mapping[str, RegisterRow]
    unfinished: Sequence[Unfinished]
    patterns: PatternTable
    witness: bool
    keys: Mapping[str, Any] | None = None
    insecure: str = ""
    process: Mapping[str, int] = field(default_factory=dict)
    metrics: str = ""
    last_report: Callable[[Server], dict[str, Any] | None] = lambda _: None


def build_report(table: RoutingTable, facts: Facts, now: float, topic: str = "") -> bytes:
    """Return the report as JSON. With `topic`, list only that topic; with "", as many as fit."""
    named = {server.proxies for server in table.alive(now)}
    report = {
        "proxy": facts.proxy,
        "uptime_seconds": round(facts.uptime_seconds, 3),
        "process": dict(facts.process),
        "metrics": facts.metrics,
        "insecure": facts.insecure,
        "witness": facts.witness,
        "starting": facts.startup_seconds_left > 0,
        "startup_seconds_left": round(facts.startup_seconds_left, 3),
        "proxies_agree": len(named) <= 1,
        "servers": [_server(s, facts, now) for s in sorted(table.servers.values(), key=lambda s: (s.id, s.store))],
        "topics": [row for row in islice(_topics(table, topic, now), TOPICS_MAX) if topic in {"", row["topic"]}],
        "registers": list(islice(_registers(table, facts), REGISTERS_MAX)),
        "abandoned": list(islice(_abandoned(table, topic), ABANDONED_MAX)),
        "doubts": [
            {"topic": name, "servers": sorted(server.id for server in servers)}
            for name, servers in islice(_doubts(table, topic), ABANDONED_MAX)
        ],
        "unfinished_deletions": list(islice(_unfinished(facts, topic), ABANDONED_MAX)),
        "patterns": list(_patterns(facts, topic)),
        "topics_total": len(table),
        "counters": facts.counters | (facts.keys["counters"] if facts.keys is not None else {}),
        "warnings": list(islice(_warnings(table, facts, now), WARNINGS_MAX)),
        "notices": [{"seconds_ago": round(ago, 1), "text": text} for ago, text in facts.notices],
        "notices_left_out": facts.left_out,
    }
    if facts.keys is not None:
        report |= {name: facts.keys[name] for name in ("authorized_digest", "authorized_lines", "problems")}
    return json.dumps(report, separators=(",", ":")).encode("ascii")


def _server(server: Server, facts: Facts, now: float) -> dict[str, Any]:
    silence, alive = server.liveness.silence(now), server.alive(now)
    gone = facts.uptime_seconds if server.gone is None else now - server.gone
    return {
        "id": server.id,
        "store": server.store,
        "incarnation": server.incarnation,
        "change": server.change,
        "address": server.address,
        "alive": alive,
        "silence_seconds": round(silence, 3) if isfinite(silence) else None,
        "gone_seconds": None if alive else round(gone, 3),
        "last_report": None if alive else facts.last_report(server),
        "topics": len(server.topics),
        "assigned": server.assigned,
        "proxies": list(server.proxies or ()),
        "complete": server.complete and not server.overflow,
        "draining": server.draining,
        "announced": server.announced,
        "defaults": server.defaults,
        "heard": server.announced,
        "member": server.member,
    }


def _registers(table: RoutingTable, facts: Facts) -> Iterator[dict[str, Any]]:
    for store, row in facts.registers.items():
        known, view = table.servers.get(store), row.view
        yield {
            "store": store,
            "server": known.id if known is not None else row.server,
            "votes": True,
            "primary": view.primary,
            "term": view.term,
            "address": view.address,
            "members": list(view.members),
            "in_sync": list(view.in_sync),
            "ballot": row.ballot,
            "promised": row.promised,
        }
    for server in _voteless(table, facts):
        yield {
            "store": server.store,
            "server": server.id,
            "votes": False,
            "primary": "",
            "term": 0,
            "address": "",
            "members": [],
            "in_sync": [],
            "ballot": 0,
            "promised": 0,
        }


def _voteless(table: RoutingTable, facts: Facts) -> Iterator[Server]:
    """Yield the servers of stores with a register of which this proxy has no row."""
    for server in table.servers.values():
        if server.member and server.store not in facts.registers:
            yield server


def _topics(table: RoutingTable, only: str, now: float) -> Iterator[dict[str, Any]]:
    held = table.holders(only)
    for topic, holders in ((only, held),) if held else () if only else table.topics():
        yield {
            "topic": topic,
            "holders": [
                {"server": one.id, "store": one.store, "log": one.topics[topic], "alive": one.alive(now)}
                for one in holders
            ],
            "contested": len(holders) > 1,
        }
    for topic in table.assignments.tentative:
        server = table.assignments.assigned(topic, now)
        if server is not None and not table.holders(topic):
            yield {"topic": topic, "holders": [], "contested": False, "assigned": server.id}


def _abandoned(table: RoutingTable, only: str) -> Iterator[dict[str, str]]:
    for logs in (table.abandoned.get(only, {}),) if only else table.abandoned.values():
        for lost in logs.values():
            yield {"topic": lost.topic, "log": lost.log, "server": lost.server, "store": lost.store}


def _doubts(table: RoutingTable, only: str) -> Iterator[tuple[str, set[Server]]]:
    doubts = table.assignments.doubts
    yield from doubts.items() if not only else [(only, doubts[only])] if only in doubts else ()


def _unfinished(facts: Facts, only: str) -> Iterator[dict[str, Any]]:
    for one in facts.unfinished:
        if only in {"", one.topic}:
            yield {"topic": one.topic, "server": one.server, "seconds": round(one.seconds, 1)}


def _patterns(facts: Facts, only: str) -> Iterator[dict[str, Any]]:
    for row in sorted(facts.patterns.rows.values()) if facts.patterns else ():
        if (row.pattern == only) if only else row.on:
            yield row._asdict()


def _other_defaults(table: RoutingTable) -> Iterator[str]:
    """Yield a sentence if servers, alive or not, have different defaults of topics' settings."""
    by_digest: dict[str, str] = {}
    for server in table.servers.values():
        if server.announced:
            by_digest.setdefault(server.defaults, server.id)
    if len(by_digest) > 1:
        yield (
            f"servers {' and '.join(sorted(by_digest.values())[:2])} have different defaults of topics ([[topics]]):"
            " no message goes by a default; give all servers the same and start them again,"
            " or run pubsub server forget for one that is lost"
        )


def _warnings(table: RoutingTable, facts: Facts, now: float) -> Iterator[str]:
    """Yield each present problem as a sentence for a person."""
    if facts.suspended:
        yield f"no request is forwarded: {facts.suspended.replace('_', ' ')}"
    named = {server.id: ",".join(server.proxies or ()) for server in table.alive(now)}
    if len(set(named.values())) > 1:
        each = "; ".join(f"{server} names {proxies}" for server, proxies in sorted(named.items()))
        yield f"servers name different sets of proxies: {each}"
    for server in table.awaited.values():
        yield (
            f"waiting for server {server.id or '?'} (store {server.store}), which has never connected to this proxy:"
            f" unknown topics are unavailable; start it, or run pubsub server forget {server.id or server.store}"
        )
    for server in table.servers.values():
        if server.topics and not server.alive(now) and not server.hands_over(now):
            count = sum(table.single.get(topic) is server for topic in server.topics)
            yield f"no heartbeat from server {server.id} (store {server.store}); topics unavailable: {count}"
        if server.overflow:
            yield f"server {server.id} holds topics beyond topics_max, which get no requests; raise topics_max"
        for topic in server.abandoned if server.alive(now) else ():
            yield f"server {server.id} came back with topic {topic}, which was abandoned there: it is quarantined"
    yield from _other_defaults(table)
    yield from table.stale.values()
    for server in _voteless(table, facts):
        alone = f"; pubsub witness reset {server.id} gives it one" if len(server.proxies or ()) == 1 else ""
        yield f"no vote on the primary of server {server.id}: its register is not in the routes file{alone}"
    for topic, servers in table.assignments.doubts.items():
        names = ", ".join(sorted(server.id for server in servers))
        yield (
            f"topic {topic} may also be held by {names}, without a heartbeat: puts that need a sole owner wait;"
            f" start {names}, or run pubsub topic abandon"
        )
    for server in table.assignments.beyond.values():
        yield (
            f"server {server.id} (store {server.store}) may hold topics that it has not announced: puts that need a"
            f" sole owner wait until it is back; if it is lost, run pubsub server forget {server.id}"
        )
    if not table.room():
        yield f"no room for another topic: topics_max = {table.topics_max} is reached"
    for topic, holders in table.contested.items():
        yield f"topic {topic} has more than one holder: {', '.join(one.id for one in holders)}"
