"""Rows of a cluster report: processes, topics, and topics in transfer or merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pubsub.monitoring.rates import Rate, Rates
from pubsub.protocol.names import parse_endpoint

Row = dict[str, Any]

SORTS: Final = ("topic", "records", "bytes", "subscribers", "backlog", "oldest", "puts", "deliveries")
"""Sort orders of topics: by name, or the largest first."""

MOVING_MAX: Final = 1_000
"""Topics in transfer that are listed."""


_PROCESS: Final = ("memory_bytes", "disk_size_bytes", "disk_free_bytes")


def _process(report: Mapping[str, Any] | None) -> Row:
    """Return memory and disk figures of a process; null if it does not report them, as in earlier releases."""
    facts = ((report or {}).get("process")) or {}
    return {name: facts.get(name) for name in _PROCESS}


def proxy_row(proxy: Mapping[str, Any]) -> Row:
    """Return a proxy: `id`, `address`, `up`, `state`, `servers`, `topics`, `uptime_seconds`, `connections`.

    `servers` are those that it reaches. `memory_bytes`, `disk_size_bytes` and `disk_free_bytes` describe the process
    and the disk under its directory. Unknown values are null.
    """
    report = proxy["report"]
    row = {"id": "?", "address": proxy["address"], "up": proxy["answered"], "state": proxy["reason"]}
    row |= _process(report)
    if report is None:
        return row | {"servers": [], "topics": None, "uptime_seconds": None, "connections": None}
    counters = report["counters"]
    return row | {
        "id": report["proxy"],
        "state": "starting" if report["starting"] else "witness" if report.get("witness") else "up",
        "servers": [server["id"] for server in report["servers"] if server["alive"]],
        "topics": report["topics_total"],
        "uptime_seconds": report["uptime_seconds"],
        "connections": counters.get("connections_established", 0) - counters.get("connections_ended", 0),
    }


def server_row(server: Mapping[str, Any], rate: Rate | None) -> Row:
    """Return a server: `id`, `up`, `state`, `topics`, `records`, `puts`, `deliveries`, `disk`, `uptime_seconds`.

    If a server does not answer, `silent_seconds` is the time since its last sign of life, and `last_known` has its
    last numbers of topics and records. `unheard_seconds` is the old name, for one release.

    `disk` is bytes by use: `store`, and `log` (of SQLite, not of a topic). `memory_bytes`, `disk_size_bytes` and
    `disk_free_bytes` are as for a proxy. Unknown values are null.
    """
    report = server["report"]
    row: Row = {"id": server["id"], "up": server["answered"], "state": "up" if server["answered"] else server["reason"]}
    row |= _process(report)
    row |= {name: server.get(name) for name in ("silent_seconds", "unheard_seconds", "last_known")}
    if report is None:
        names = ("topics", "records", "puts", "deliveries", "disk", "uptime_seconds")
        return row | dict.fromkeys(names)
    held = report["topics"]
    if report["full"] or report["stale"]:
        row["state"] = "disk full" if report["full"] else "stale copy"
    elif report["draining"]:
        row["state"] = "draining"
    return row | {
        "topics": len(held) + report["left_out"]["topics"],
        "records": sum(topic["records"] for topic in held.values()),
        "puts": None if rate is None else round(rate.puts, 1),
        "deliveries": None if rate is None else round(rate.deliveries, 1),
        "disk": report["disk"],
        "uptime_seconds": report["uptime_seconds"],
    }


def topic_row(topic: Mapping[str, Any], rate: Rate | None) -> Row:
    """Return a topic of the report with `puts` and `deliveries` per second, null while unknown."""
    return {
        **topic,
        "puts": None if rate is None else round(rate.puts, 1),
        "deliveries": None if rate is None else round(rate.deliveries, 1),
    }


def topic_rows(topics: Sequence[Mapping[str, Any]], rates: Rates, sort: str) -> list[Row]:
    """Return topics in one of the orders of SORTS; ties by name, unknown topics by their last figures."""
    rows = [topic_row(topic, rates.topics.get(topic["topic"])) for topic in topics]
    if sort == "topic":
        return rows

    def largest(row: Row) -> float:
        value = row["oldest_unacknowledged_seconds" if sort == "oldest" else sort]
        if row.get("unknown_seconds") is not None and sort not in {"puts", "deliveries"}:
            known = row["last_known"] or {}
            value = known.get("oldest_unacknowledged_seconds" if sort == "oldest" else sort)
            return -(value or 0)
        return -(len(value) if sort == "subscribers" else value or 0)

    return sorted(rows, key=largest)  # The rows are ordered by name, and sorting is stable.


def on_the_way(report: Mapping[str, Any]) -> list[Row]:
    """Return topics in transfer or merge: `topic`, `kind`, `servers`, `state`, `chunks`, `tries`, `frozen`.

    A "move" names the giver and then the receiver, by ID, or by address if the ID is unknown. A "merge" names all
    holders of the topic, even before its transfer begins. `state` is the progress in words, `chunks` the number that
    the receiver has, `tries` the unanswered tries at the present chunk. `frozen` says that the topic's requests wait
    now.
    """
    found: dict[str, Row] = {}
    for move in report["moves"]:
        giving = move["direction"] == "giving"
        if giving or move["topic"] not in found:  # If both ends report the transfer, the giver knows more.
            ends = [move["server"], _id_of(report, move["other"])]
            found[move["topic"]] = _on_its_way(move, ends if giving else ends[::-1])
    for proxy in report["proxies"]:
        for entry in (proxy["report"] or {"topics": []})["topics"]:
            if entry["contested"]:
                name = entry["topic"]
                row = found.setdefault(name, _on_its_way({"topic": name, "state": "", "chunks": 0, "tries": 0}, []))
                row |= {"kind": "merge", "servers": sorted(holder["server"] for holder in entry["holders"])}
    return [found[name] for name in sorted(found)[:MOVING_MAX]]


_STATES: Final = {"offered": "offered", "frozen": "offered", "sending": "in transfer", "receiving": "in transfer"}


def _on_its_way(move: Mapping[str, Any], servers: list[str]) -> Row:
    return {
        "topic": move["topic"],
        "kind": "move",
        "servers": servers,
        "state": _STATES.get(move["state"], "queued"),
        "chunks": move["chunks"],
        "tries": move["tries"],
        "frozen": move["state"] in {"frozen", "sending", "receiving"},
    }


def _id_of(report: Mapping[str, Any], named: str) -> str:
    """Return the ID of a server named by ID or address, or the address if no server is known there."""
    to, address = parse_endpoint(named)
    if to or "://" not in named:
        return to or named
    for server in report["servers"]:
        if server["report"] is not None and parse_endpoint(server["report"]["address"])[1] == address:
            return str(server["id"])
    return address
