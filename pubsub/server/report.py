"""What a server knows, for operators: the JSON that answers REPORT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pubsub.protocol.names import format_position
from pubsub.server.topic import Entry, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore


def report(core: ServerCore, now: float) -> bytes:
    """Everything about a server, as JSON.

    Returns:
        An object with `role`, `id`, `store`, `incarnation`, `change`, `address`, `uptime_seconds`, `full`, `counters`,
        `disk` (bytes), `proxies` (each with `address`, `alive`, `silence_seconds`, `problem`) and `topics`: by name,
        each with `log`, `records` and `bytes` stored, `publishers`, `others` (servers that hold it too), `damaged`
        (whether some of it cannot be read), `backlog` (records waiting for the slowest subscriber) and `subscribers`
        (each with `waiting`, `polling`, `acknowledged`).
    """
    proxies = [
        {
            "address": address,
            "alive": link.liveness.alive(now),
            "silence_seconds": round(max(0.0, min(link.liveness.silence(now), 1e9)), 3),
            "problem": link.reason,
        }
        for address, link in zip(core.settings.proxies, core.links.links, strict=True)
    ]
    facts: dict[str, Any] = {
        "role": "server",
        "id": core.settings.id,
        "store": core.store_id,
        "incarnation": core.incarnation,
        "change": core.change,
        "address": core.links.address,
        "uptime_seconds": round(now - core.started, 3),
        "full": core.full,
        "counters": dict(core.counters),
        "disk": core.disk(),
        "proxies": proxies,
        "topics": {name: _topic(core, topic) for name, topic in sorted(core.topics.items())},
    }
    return json.dumps(facts, separators=(",", ":")).encode()


def _topic(core: ServerCore, topic: Topic) -> dict[str, Any]:
    subscribers = {
        name: _subscriber(core, topic, name, entry) for name, entry in sorted(topic.entries.items()) if entry.on
    }
    core.measure(topic)
    return {
        "log": topic.open.id,
        "logs": len(topic.logs),
        "records": sum(log.end - log.low for log in topic.logs.values()),
        "bytes": topic.waiting_bytes,
        "publishers": len(topic.last),
        "others": sorted(topic.others),
        "frozen": topic.frozen,
        "damaged": topic.name in core.damaged,
        "backlog": max((facts["waiting"] for facts in subscribers.values()), default=0),
        "subscribers": subscribers,
    }


def _subscriber(core: ServerCore, topic: Topic, name: str, entry: Entry) -> dict[str, Any]:
    return {
        "waiting": topic.waiting(entry.legs),
        "polling": core.polls.waits(topic.name, name),
        "acknowledged": format_position(entry.acknowledged),
        "number": entry.number,
    }
