"""The operators' report of a server: the JSON that answers REPORT."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from pubsub.config.addresses import reaches_out
from pubsub.protocol.names import format_position
from pubsub.server.groups.facts import group_facts
from pubsub.server.groups.memory import Memory
from pubsub.server.moves.giving import State as Progress
from pubsub.server.moves.moves import Moves
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.ownership.stores import Stores
from pubsub.server.requests.kept import kept
from pubsub.server.requests.overdue import delayed
from pubsub.server.requests.waiting import Waiting
from pubsub.server.state.state import State
from pubsub.server.topic.consumers import group_of
from pubsub.server.topic.purged import shown_records
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic

TOPICS_MAX: Final = 10_000
SUBSCRIBERS_MAX: Final = 20_000
"""Subscribers in one report, of all topics together: a report fits into a message and does not delay the loop."""

TOPICS_PER_SECOND: Final = 10_000
"""Limits the cost of frequent requests: a report of this many topics and lookups is reused for one second."""


class Reports:
    """The reports of one server.

    Args:
        proxies, stores: the other processes that the server knows.
        moves: topics under transfer.
        memory: what is remembered of consumer groups.
    """

    def __init__(self, state: State, proxies: Proxies, stores: Stores, moves: Moves, memory: Memory) -> None:
        self._state, self._proxies, self._stores, self._moves = state, proxies, stores, moves
        self._memory = memory
        self._made_at, self._body, self._lookups = 0.0, b"", 0
        self.metrics = ""
        """The URL of the metrics; "" if there is none."""
        self.keys: Callable[[], Mapping[str, Any]] | None = None
        """Returns the keys section; None in a server without keys."""
        self.standby: Callable[[float], Mapping[str, Any]] | None = None
        """Returns the standby section; None if the store has one member."""

    def report(self, now: float, topic: str = "") -> bytes:
        """Return the report as JSON: current, or a short time old.

        Args:
            topic: the only topic to include, with current values; "": as many as fit.

        Returns:
            An object with these fields:

            * `role`, `id`, `store`, `incarnation`, `change`, `address`, `uptime_seconds`, `full`, `draining`.
            * `insecure`: the address if other hosts may connect without a key, or "".
            * `stale`: the reason why the complete store is held back, or "".
            * `quarantined_topics`: abandoned topics that came back: `topic`, `log`, `reason`, `stamp`. `aside` is the
              old name, for one release.
            * `counters`.
            * `disk`: bytes of the store and its write-ahead log.
            * `process`: `memory_bytes`; of the disk it writes to, `disk_size_bytes`, `disk_free_bytes`,
              `disk_used_bytes`.
            * `metrics`: their URL, or "". `clock_ahead_seconds`: how far its timestamps are ahead of the clocks of most
              proxies; null if unknown. `trusts_ages`: False if that is too far, so that no message goes by its age.
            * `backlog_bytes_max`: of the server's settings.
            * `moves`: topics under transfer: `topic`, `direction` ("giving" or "receiving"), `other` (the server's ID
              or address), `state`, `chunks` that the receiver has, `tries` without an answer.
            * `proxies`: each with `address`, `alive`, `silence_seconds`, `problem`.
            * `stores`: the other known stores, with their servers.
            * `topics`: by name; see below.
            * `left_out`: the number of topics and subscribers beyond the limits, and of `ages` beyond
              `waiting.LOOKUPS_MAX`.
            * With keys, `authorized_digest`, `authorized_lines` and `problems` (of its files).
            * With a standby, `standby`; see `server.standby.status`.

            A topic has these fields:

            * `log`, `publishers`; `records` and `bytes` stored.
            * `others`: servers that hold it too.
            * `damaged`: True if a part of it cannot be read.
            * `held_back`: the reason why it is held back, or "". `quarantined` is the old name, for one release.
            * `backlog`: records that wait for the slowest subscriber.
            * `oldest_unacknowledged_seconds`: age of the oldest record that waits for a subscriber; null if none waits
              or the age is unknown.
            * `keep`, `drop` and more: see `requests.kept`. `delayed` and more: see `requests.overdue`.
            * `groups`, if there are any: see `groups.facts`. `subscribers`: each with `waiting`,
              `oldest_unacknowledged_seconds`, `polling`, `acknowledged`, `expired`.
        """
        if topic:
            return _packed(self._facts(now, {topic} & self._state.topics.keys()))
        age = now - self._made_at
        if not self._body or age * TOPICS_PER_SECOND >= min(TOPICS_MAX, len(self._state.topics) + self._lookups):
            self._made_at, self._body = now, _packed(self._facts(now, self._state.topics))
        return self._body

    def _facts(self, now: float, names: Collection[str]) -> dict[str, Any]:
        state = self._state
        topics: dict[str, Any] = {}
        room, waits = SUBSCRIBERS_MAX, Waiting(state, now)
        keys, bind = dict(self.keys()) if self.keys is not None else {}, state.settings.bind
        for name in sorted(names)[:TOPICS_MAX]:
            topic = state.topics[name]
            topics[name] = _topic(state, topic, room, waits, now)
            if groups := [group for group in topic.groups.values() if group.row.on]:
                contexts = (self._memory.context(topic, group, now) for group in groups)
                topics[name]["groups"] = [group_facts(context, state) for context in contexts]
            room -= len(topics[name]["subscribers"])
        self._lookups, ahead = waits.lookups, self._proxies.ahead_seconds(now)
        quarantined = [
            {"topic": one.topic, "log": one.log, "reason": one.reason, "stamp": one.stamp} for one in state.quarantined
        ]
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
            "quarantined_topics": quarantined,
            "aside": quarantined,
            "counters": {**keys.pop("counters", {}), **state.counters},
            "disk": state.disk(),
            "process": state.process(),
            "metrics": self.metrics,
            "clock_ahead_seconds": None if ahead is None else round(ahead, 3),
            "trusts_ages": self._proxies.trusts_ages(now),
            "backlog_bytes_max": state.settings.backlog_bytes_max,
            "moves": _moves(self._moves),
            "proxies": self._proxy_fields(now),
            "stores": {store: known.server for store, known in self._stores.known.items()},
            "topics": topics,
            "left_out": {
                "topics": len(names) - len(topics),
                "subscribers": sum(topic.pop("left_out") for topic in topics.values()),
                "ages": waits.left_out,
            },
            **keys,
            **({} if self.standby is None else {"standby": self.standby(now)}),
        }

    def _proxy_fields(self, now: float) -> list[dict[str, Any]]:
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


def _topic(state: State, topic: Topic, room: int, waits: Waiting, now: float) -> dict[str, Any]:
    subscriptions = [
        (name, topic.subscriptions[name])
        for name in sorted(topic.subscriptions)
        if topic.subscriptions[name].on and not group_of(name)
    ]
    due = {name: waits.due(topic, subscription.cursor.backlog) for name, subscription in subscriptions}
    subscribers = {
        name: _subscriber(state, topic, name, subscription, due[name], waits)
        for name, subscription in subscriptions[:room]
    }
    state.measure(topic)
    ages = [facts["oldest_unacknowledged_seconds"] for facts in subscribers.values()]
    return {
        "log": topic.open.id,
        "logs": len(topic.logs),
        "records": shown_records(topic),
        "bytes": topic.waiting_bytes,
        "publishers": len(topic.last),
        "others": sorted(topic.contested_by),
        "rivals": topic.contested,
        "frozen": topic.frozen,
        "staged": {"stages": len(topic.stages), "bytes": topic.staged_bytes},
        "damaged": topic.name in state.damaged,
        "held_back": state.held.get(topic.name, ""),
        "quarantined": state.held.get(topic.name, ""),
        "backlog": max((topic.waiting(spans) for spans in due.values()), default=0),
        "oldest_unacknowledged_seconds": max((age for age in ages if age is not None), default=None),
        **kept(state, topic, waits),
        **delayed(state, topic, now),
        "subscribers": subscribers,
        "left_out": len(subscriptions) - len(subscribers),
    }


def _subscriber(
    state: State, topic: Topic, name: str, subscription: Subscription, due: list[Span], waits: Waiting
) -> dict[str, Any]:
    """Return a subscriber's section.

    After a split, records that both sides held count twice until the subscriber has passed them.
    """
    age = waits.oldest(topic, due)
    return {
        "waiting": topic.waiting(due),
        "oldest_unacknowledged_seconds": None if age is None else round(age, 3),
        "polling": state.long_polls.waits(topic.name, name),
        "acknowledged": format_position(subscription.cursor.acknowledged),
        "number": subscription.number,
        "expired": subscription.cursor.expired,
    }


def _moves(moves: Moves) -> list[dict[str, Any]]:
    """Return the topics under transfer from or to this server, by merges and operators' moves alike."""
    giving = [
        {
            "topic": gift.topic,
            "direction": "giving",
            "other": gift.server or gift.address,
            "state": "frozen" if gift.frozen and gift.state is Progress.OFFERED else gift.state.value,
            "chunks": gift.acknowledged,
            "tries": gift.tries,
        }
        for gift in moves.giving.gifts.values()
    ]
    receiving = [
        {
            "topic": one.topic,
            "direction": "receiving",
            "other": one.giver,
            "state": "receiving",
            "chunks": one.next,
            "tries": 0,
        }
        for one in moves.receiving.incoming.values()
    ]
    return sorted(giving + receiving, key=lambda one: (str(one["topic"]), str(one["direction"]), str(one["other"])))
