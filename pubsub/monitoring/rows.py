"""A report on the cluster as rows: processes, topics, and what is on its way between servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pubsub.monitoring.rates import Rate, Rates
from pubsub.protocol.names import parse_endpoint

Row = dict[str, Any]

SORTS: Final = ("topic", "records", "bytes", "subscribers", "backlog", "oldest", "puts", "deliveries")
"""What topics can be sorted by: by name, or the largest first."""

MOVING_MAX: Final = 1_000
"""Topics on their way that are listed."""


_PROCESS: Final = ("memory_bytes", "disk_size_bytes", "disk_free_bytes")


def _process(report: Mapping[str, Any] | None) -> Row:
    """What a process tells of its memory and its disk; null where it does not, as one of an earlier release."""
    facts = ((report or {}).get("process")) or {}
    return {name: facts.get(name) for name in _PROCESS}


def proxy_row(proxy: Mapping[str, Any]) -> Row:
    """A proxy: `id`, `address`, `up`, `state`, `servers` (that it hears), `topics`, `uptime_seconds`, `connections`.

    And `memory_bytes`, `disk_size_bytes` and `disk_free_bytes`, of the disk under its directory. Null is what nobody
    tells.
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
    """A server: `id`, `up`, `state`, `topics`, `records`, `puts`, `deliveries`, `disk`, `uptime_seconds`.

    Of one that is not heard `unheard_seconds` says since when, and `last_known` how many topics and records it had.

    `disk` is bytes by what they are for: `store`, and `log` (of SQLite, not of a topic); `memory_bytes`,
    `disk_size_bytes` and `disk_free_bytes` are as a proxy's. Null is what nobody tells.
    """
    report = server["report"]
    row: Row = {"id": server["id"], "up": server["answered"], "state": "up" if server["answered"] else server["reason"]}
    row |= _process(report)
    row |= {name: server.get(name) for name in ("unheard_seconds", "last_known")}
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
    """A topic as the report has it, and `puts` and `deliveries` a second; null where they are not known yet."""
    return {
        **topic,
        "puts": None if rate is None else round(rate.puts, 1),
        "deliveries": None if rate is None else round(rate.deliveries, 1),
    }


def topic_rows(topics: Sequence[Mapping[str, Any]], rates: Rates, sort: str) -> list[Row]:
    """Topics sorted by one of SORTS; by name where that is all the same; unknown ones by their last figures."""
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

    return sorted(rows, key=largest)  # They come by name, and sorting keeps that.


def on_the_way(report: Mapping[str, Any]) -> list[Row]:
    """Topics that are being moved or merged: `topic`, `kind`, `servers`, `state`, `chunks`, `tries`, `frozen`.

    A "move" names the giver and then the receiver, by its ID or else its address. A "merge" names all that hold some of
    the topic, whether or not its transfer has begun. `state` is how far it is, in words, `chunks` how many the receiver
    has, `tries` those at one of them without an answer, `frozen` whether the topic's requests wait at present.
    """
    found: dict[str, Row] = {}
    for move in report["moves"]:
        giving = move["direction"] == "giving"
        if giving or move["topic"] not in found:  # Where both ends tell of it, the giver knows more.
            ends = [move["server"], _id_of(report, move["other"])]
            found[move["topic"]] = _on_its_way(move, ends if giving else ends[::-1])
    for proxy in report["proxies"]:
        for entry in (proxy["report"] or {"topics": []})["topics"]:
            if entry["contested"]:
                name = entry["topic"]
                row = found.setdefault(name, _on_its_way({"topic": name, "state": "", "chunks": 0, "tries": 0}, []))
                row |= {"kind": "merge", "servers": sorted(holder["server"] for holder in entry["holders"])}
    return [found[name] for name in sorted(found)[:MOVING_MAX]]


_STATES: Final = {"offered": "is offered", "frozen": "is offered", "sending": "on its way", "receiving": "on its way"}


def _on_its_way(move: Mapping[str, Any], servers: list[str]) -> Row:
    return {
        "topic": move["topic"],
        "kind": "move",
        "servers": servers,
        "state": _STATES.get(move["state"], "waits for its turn"),
        "chunks": move["chunks"],
        "tries": move["tries"],
        "frozen": move["state"] in {"frozen", "sending", "receiving"},
    }


def _id_of(report: Mapping[str, Any], named: str) -> str:
    """The ID of a server that is named by its ID, or by its address; the address where nobody is known there."""
    to, address = parse_endpoint(named)
    if to or "://" not in named:
        return to or named
    for server in report["servers"]:
        if server["report"] is not None and parse_endpoint(server["report"]["address"])[1] == address:
            return str(server["id"])
    return address
