"""What a server knows, for operators: the JSON that answers REPORT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.names import format_position
from pubsub.server.topic.spans import ALWAYS, Leg
from pubsub.server.topic.topic import Entry, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore


TOPICS_MAX: Final = 10_000
SUBSCRIBERS_MAX: Final = 20_000
"""Named in one report, the subscribers of all topics together: a report fits into a message, and holds nobody up."""

TOPICS_PER_SECOND: Final = 10_000
"""A report of so many topics is good for one second: whoever asks all the time costs no more than who asks once."""


def report(core: ServerCore, now: float) -> bytes:
    """Everything about a server, as JSON.

    Returns:
        An object with `role`, `id`, `store`, `incarnation`, `change`, `address`, `uptime_seconds`, `full`,
        `draining`, `stale` (why nothing is served, or ""), `aside` (topics that were given up here: `topic`,
        `log`, `reason`, `stamp`), `counters`, `disk` (bytes), `proxies` (each with `address`, `alive`,
        `silence_seconds`, `problem`), `stores` (the other ones that are known, and their servers) and `topics`: by
        name, each with `log`, `records` and `bytes` stored, `publishers`, `others` (servers that hold it too),
        `damaged` (whether some of it cannot be read), `backlog` (records waiting for the slowest subscriber) and
        `subscribers` (each with `waiting`, `polling`, `acknowledged`).
        `left_out` counts topics and subscribers beyond the limits.
    """
    names = sorted(core.topics)
    topics: dict[str, Any] = {}
    room = SUBSCRIBERS_MAX
    for name in names[:TOPICS_MAX]:
        topics[name] = _topic(core, core.topics[name], room)
        room -= len(topics[name]["subscribers"])
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
        "draining": core.links.draining,
        "stale": core.quarantine.stale,
        "aside": [
            {"topic": one.topic, "log": one.log, "reason": one.reason, "stamp": one.stamp}
            for one in core.quarantine.aside
        ],
        "counters": dict(core.counters),
        "disk": core.disk(),
        "proxies": proxies,
        "stores": {store: known.server for store, known in core.stores.known.items()},
        "topics": topics,
        "left_out": {
            "topics": len(names) - len(topics),
            "subscribers": sum(topic.pop("left_out") for topic in topics.values()),
        },
    }
    return json.dumps(facts, separators=(",", ":")).encode()


def _topic(core: ServerCore, topic: Topic, room: int) -> dict[str, Any]:
    entries = [(name, topic.entries[name]) for name in sorted(topic.entries) if topic.entries[name].on]
    subscribers = {name: _subscriber(core, topic, name, entry) for name, entry in entries[:room]}
    core.measure(topic)
    return {
        "log": topic.open.id,
        "logs": len(topic.logs),
        "records": sum(log.end - log.unknown - log.low for log in topic.logs.values()),
        "bytes": topic.waiting_bytes,
        "publishers": len(topic.last),
        "others": sorted(topic.others),
        "rivals": topic.rivals,
        "frozen": topic.frozen,
        "staged": {"stages": len(topic.stages), "bytes": topic.staged_bytes},
        "damaged": topic.name in core.damaged,
        "quarantined": core.quarantine.held.get(topic.name, ""),
        "backlog": max((_waiting(core, topic, entry.legs) for _, entry in entries), default=0),
        "subscribers": subscribers,
        "left_out": len(entries) - len(subscribers),
    }


def _subscriber(core: ServerCore, topic: Topic, name: str, entry: Entry) -> dict[str, Any]:
    return {
        "waiting": _waiting(core, topic, entry.legs),
        "polling": core.polls.waits(topic.name, name),
        "acknowledged": format_position(entry.acknowledged),
        "number": entry.number,
    }


def _waiting(core: ServerCore, topic: Topic, legs: tuple[Leg, ...]) -> int:
    """How many records wait in these legs, without those that were put before the subscription.

    Those that both halves of a split held are counted twice until the subscriber has come by them.
    """
    return topic.waiting([_due(core, topic, leg) for leg in legs])


def _due(core: ServerCore, topic: Topic, leg: Leg) -> Leg:
    """A leg from its first batch on that it does not leave out by its stamp; stamps rise with offsets."""
    log = topic.logs.get(leg.log)
    if leg.since == ALWAYS or log is None:
        return leg
    low = leg.low
    high = max(low, log.end if leg.high is None else min(leg.high, log.end))
    end = high
    try:
        while low < high:
            middle = (low + high) // 2
            found = core.reader.newest(log.number, max(log.low, 1), middle)
            if found is None or found[2] <= leg.since:
                low = middle + 1 if found is None else max(middle + 1, found[0] + found[1])
            else:
                high = max(leg.low, min(middle, found[0]))
    except StoreDamaged:
        return leg
    return leg.from_offset(min(low, end))
