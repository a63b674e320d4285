"""What a server knows, for operators: the JSON that answers REPORT."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from pubsub.config.addresses import reaches_out
from pubsub.errors import StoreDamaged
from pubsub.protocol.names import format_position
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.ownership.stores import Stores
from pubsub.server.state.state import State
from pubsub.server.topic.spans import ALWAYS, Span
from pubsub.server.topic.topic import Subscription, Topic

TOPICS_MAX: Final = 10_000
SUBSCRIBERS_MAX: Final = 20_000
"""Named in one report, the subscribers of all topics together: a report fits into a message, and holds nobody up."""

TOPICS_PER_SECOND: Final = 10_000
"""A report of so many topics is good for one second: whoever asks all the time costs no more than who asks once."""


class Reports:
    """The reports of one server.

    Args:
        state: the server's.
        proxies, stores: what it knows of others.
    """

    def __init__(self, state: State, proxies: Proxies, stores: Stores) -> None:
        self._state, self._proxies, self._stores = state, proxies, stores
        self._made_at, self._body = 0.0, b""
        self.keys: Callable[[], Mapping[str, Any]] | None = None
        """Gives what is told of keys; None: the server has none."""
        self.standby: Callable[[float], Mapping[str, Any]] | None = None
        """Gives what is told of the other member; None: the store has one."""

    def report(self, now: float, topic: str = "") -> bytes:
        """Everything about a server, as JSON: as it is now, or was a moment ago.

        Args:
            topic: the only one to speak of, as it is now; "": as many as fit.

        Returns:
            An object with `role`, `id`, `store`, `incarnation`, `change`, `address`, `uptime_seconds`, `full`,
            `draining`, `insecure` (where others than this host are let in without a key, or ""), `stale` (why nothing
            is served, or ""), `aside` (topics that were given up here: `topic`, `log`, `reason`, `stamp`), `counters`,
            `disk` (bytes), `proxies` (each with `address`, `alive`, `silence_seconds`, `problem`), `stores` (the other
            ones that are known, and their servers) and `topics`: by name, each with `log`, `records` and `bytes`
            stored, `publishers`, `others` (servers that hold it too), `damaged` (whether some of it cannot be read),
            `backlog` (records waiting for the slowest subscriber) and `subscribers` (each with `waiting`, `polling`,
            `acknowledged`). `left_out` counts topics and subscribers beyond the limits. A server with keys tells
            `authorized_digest`, `authorized_lines` and `problems` (of its files) too, one whose store has two members
            `standby`, see `server.standby.standing`.
        """
        if topic:
            return _packed(self._facts(now, {topic} & self._state.topics.keys()))
        age = now - self._made_at
        if not self._body or age * TOPICS_PER_SECOND >= min(TOPICS_MAX, len(self._state.topics)):
            self._made_at, self._body = now, _packed(self._facts(now, self._state.topics))
        return self._body

    def _facts(self, now: float, names: Collection[str]) -> dict[str, Any]:
        state = self._state
        topics: dict[str, Any] = {}
        room = SUBSCRIBERS_MAX
        keys, bind = dict(self.keys()) if self.keys is not None else {}, state.settings.bind
        for name in sorted(names)[:TOPICS_MAX]:
            topics[name] = _topic(state, state.topics[name], room)
            room -= len(topics[name]["subscribers"])
        return {
            "role": "server",
            "id": state.settings.id,
            "store": state.store_id,
            "incarnation": state.incarnation,
            "change": state.change,
            "address": self._proxies.address,
            "uptime_seconds": round(now - state.started, 3),
            "full": state.full,
            "draining": self._proxies.draining,
            "insecure": bind if self.keys is None and reaches_out(bind) else "",
            "stale": state.stale,
            "aside": [
                {"topic": one.topic, "log": one.log, "reason": one.reason, "stamp": one.stamp} for one in state.aside
            ],
            "counters": {**keys.pop("counters", {}), **state.counters},
            "disk": state.disk(),
            "proxies": self._proxy_facts(now),
            "stores": {store: known.server for store, known in self._stores.known.items()},
            "topics": topics,
            "left_out": {
                "topics": len(names) - len(topics),
                "subscribers": sum(topic.pop("left_out") for topic in topics.values()),
            },
            **keys,
            **({} if self.standby is None else {"standby": self.standby(now)}),
        }

    def _proxy_facts(self, now: float) -> list[dict[str, Any]]:
        return [
            {
                "address": address,
                "alive": proxy.liveness.alive(now),
                "silence_seconds": round(max(0.0, min(proxy.liveness.silence(now), 1e9)), 3),
                "problem": proxy.reason,
            }
            for address, proxy in zip(self._state.settings.proxies, self._proxies.all, strict=True)
        ]


def _packed(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


def _topic(state: State, topic: Topic, room: int) -> dict[str, Any]:
    subscriptions = [
        (name, topic.subscriptions[name]) for name in sorted(topic.subscriptions) if topic.subscriptions[name].on
    ]
    subscribers = {name: _subscriber(state, topic, name, subscription) for name, subscription in subscriptions[:room]}
    state.measure(topic)
    return {
        "log": topic.open.id,
        "logs": len(topic.logs),
        "records": sum(log.end - log.unknown - log.low for log in topic.logs.values()),
        "bytes": topic.waiting_bytes,
        "publishers": len(topic.last),
        "others": sorted(topic.contested_by),
        "rivals": topic.contested,
        "frozen": topic.frozen,
        "staged": {"stages": len(topic.stages), "bytes": topic.staged_bytes},
        "damaged": topic.name in state.damaged,
        "quarantined": state.held.get(topic.name, ""),
        "backlog": max((_waiting(state, topic, subscription.backlog) for _, subscription in subscriptions), default=0),
        "subscribers": subscribers,
        "left_out": len(subscriptions) - len(subscribers),
    }


def _subscriber(state: State, topic: Topic, name: str, subscription: Subscription) -> dict[str, Any]:
    return {
        "waiting": _waiting(state, topic, subscription.backlog),
        "polling": state.long_polls.waits(topic.name, name),
        "acknowledged": format_position(subscription.acknowledged),
        "number": subscription.number,
    }


def _waiting(state: State, topic: Topic, spans: tuple[Span, ...]) -> int:
    """How many records wait in these spans, without those that were put before the subscription.

    Those that both halves of a split held are counted twice until the subscriber has come by them.
    """
    return topic.waiting([_due(state, topic, span) for span in spans])


def _due(state: State, topic: Topic, span: Span) -> Span:
    """A span from its first batch on that it does not leave out by its stamp; stamps rise with offsets."""
    log = topic.logs.get(span.log)
    if span.since == ALWAYS or log is None:
        return span
    low = span.low
    high = max(low, log.end if span.high is None else min(span.high, log.end))
    end = high
    try:
        while low < high:
            middle = (low + high) // 2
            found = state.reader.newest(log.number, max(log.low, 1), middle)
            if found is None or found[2] <= span.since:
                low = middle + 1 if found is None else max(middle + 1, found[0] + found[1])
            else:
                high = max(span.low, min(middle, found[0]))
    except StoreDamaged:
        return span
    return span.from_offset(min(low, end))
