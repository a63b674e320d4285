"""A report on the cluster as rows: processes, topics, and what is on its way between servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pubsub.monitoring.rates import Rate, Rates
from pubsub.protocol.names import parse_endpoint

Row = dict[str, Any]

SORTS: Final = ("topic", "records", "bytes", "subscribers", "backlog", "puts", "deliveries")
"""What topics can be sorted by: by name, or the largest first."""

MOVING_MAX: Final = 1_000
"""Topics on their way that are listed."""


def proxy_row(proxy: Mapping[str, Any]) -> Row:
    """A proxy: `id`, `address`, `up`, `state`, `servers` (that it hears), `topics`, `uptime_seconds`, `connections`."""
    report = proxy["report"]
    row = {"id": "?", "address": proxy["address"], "up": proxy["answered"], "state": proxy["reason"]}
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

    `disk` is bytes by what they are for: `store`, and `log` (of SQLite, not of a topic). Null is what nobody tells.
    """
    report = server["report"]
    row: Row = {"id": server["id"], "up": server["answered"], "state": "up" if server["answered"] else server["reason"]}
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
    """Topics sorted by one of SORTS; by name where that is all the same."""
    rows = [topic_row(topic, rates.topics.get(topic["topic"])) for topic in topics]
    if sort == "topic":
        return rows

    def largest(row: Row) -> float:
        value = row[sort]
        return -(len(value) if sort == "subscribers" else value or 0)

    return sorted(rows, key=largest)  # They come by name, and sorting keeps that.


def on_the_way(report: Mapping[str, Any]) -> list[Row]:
    """Topics that are being moved or merged: `topic`, `kind` ("move" or "merge"), `servers`, `frozen`.

    A move names the giver and then the receiver, by its ID or else its address. A merge names all that hold some of the
    topic. `frozen` is whether its requests wait at present.
    """
    found: dict[str, Row] = {}
    for server in report["servers"]:
        for name, held in (server["report"] or {"topics": {}})["topics"].items():
            if held["frozen"]:
                to, address = parse_endpoint(held["frozen"])
                servers = [server["id"], to or _server_at(report, address)]
                found[name] = {"topic": name, "kind": "move", "servers": servers, "frozen": True}
    for proxy in report["proxies"]:
        for entry in (proxy["report"] or {"topics": []})["topics"]:
            if entry["contested"]:
                name = entry["topic"]
                servers = sorted(holder["server"] for holder in entry["holders"])
                frozen = name in found and found[name]["frozen"]
                found[name] = {"topic": name, "kind": "merge", "servers": servers, "frozen": frozen}
    return [found[name] for name in sorted(found)[:MOVING_MAX]]


def _server_at(report: Mapping[str, Any], address: str) -> str:
    """The ID of the server at an address, or the address."""
    for server in report["servers"]:
        if server["report"] is not None and parse_endpoint(server["report"]["address"])[1] == address:
            return str(server["id"])
    return address
