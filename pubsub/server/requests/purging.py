"""Purging of a topic's messages: PURGE (docs/explanation/topics.md, U4 to U8).

    without places     → success, with the places of a purge now, and the number of messages that it would cover
    with places        → success, and the purge is on the disk; a repeat finds it done
    the topic is not held   → unknown
    a place beyond the end of the open log   → refused
    this server is not known to be the sole owner   → busy

The first answer fixes the places. So a late repeat of the second request purges no later message.
"""

from __future__ import annotations

from msgspec.structs import replace

from pubsub.errors import DecodeError, StoreDamaged
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import is_service_topic
from pubsub.protocol.purges import LOGS_MAX, Found, decode_places, encode_found
from pubsub.protocol.topic_objects import Purge
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.consumers import PATTERN_KEY
from pubsub.server.topic.purged import hidden_below
from pubsub.server.topic.purges import Places
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.retention import Retention


class Purging:
    """The purges of one server's topics.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        patterns: makes the entries of subscribers to patterns.
        retention: deletes the messages.
    """

    def __init__(self, state: State, sole_owner: SoleOwner, patterns: ServerPatterns, retention: Retention) -> None:
        self._state, self._sole_owner, self._patterns, self._retention = state, sole_owner, patterns, retention

    def handle(self, origin: Origin, request: Purge, sole_owner: bool = False) -> None:
        """Answer PURGE.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state, topic = self._state, self._state.topics.get(request.topic)
        if is_service_topic(request.topic):
            state.replies.refuse(origin, "a service's topic cannot be purged")
            return
        try:
            places = decode_places(bytes(request.places))
        except DecodeError as error:
            state.replies.refuse(origin, error.reason)
            return
        if topic is None:
            state.replies.answer(origin, Outcome.UNKNOWN, reason="topic")
        elif len(topic.logs) > LOGS_MAX:
            state.replies.refuse(origin, f"the topic has more than {LOGS_MAX} logs: wait until merged ones are gone")
        elif places.get(topic.open.id, 0) > topic.open.end:
            state.replies.refuse(origin, "a place is beyond the end of the topic")
        elif not sole_owner:
            self._sole_owner.park_or_reject(origin, request)
        elif self._has_entries(origin, topic):
            found = _found(topic, unread=bool(request.unread))
            self._purge(topic, places, unread=bool(request.unread))
            state.replies.answer(origin, Outcome.SUCCESS, log=topic.open.id, body=encode_found(found))

    def _has_entries(self, origin: Origin, topic: Topic) -> bool:
        """Make the entries of subscribers to patterns first; return False after an answer that the store is damaged."""
        try:
            self._patterns.enter(topic)
        except StoreDamaged:
            self._state.found_damaged(topic)
            self._state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here")
            return False
        return True

    def _purge(self, topic: Topic, places: dict[str, int], *, unread: bool) -> None:
        changed = hides = False
        for log, place in places.items():
            if log in topic.logs:
                kept = min(place, topic.logs[log].end)
                changed |= topic.purge(log, Places(kept, kept if unread else 0))
                hides |= kept > topic.logs[log].low
        if changed and hides and not topic.removal.let_go:
            # A late repeat of a put at another server must not bring a purged message back in a merge.
            topic.remove(replace(topic.removal, let_go=True))
        if changed:
            self._state.measure(topic)
            self._retention.look_at(topic.name)
            self._state.counters["topics_purged"] += 1


def _found(topic: Topic, *, unread: bool) -> Found:
    """Return the places of a purge now: the ends of the logs, or where the messages begin that subscribers need."""
    floors, hidden, places, records, needed = topic.floors(), hidden_below(topic), {}, 0, 0
    for log in topic.logs.values():
        stop = log.end - log.unknown
        low = max(log.low, log.bare, hidden.get(log.id, 0))
        places[log.id] = log.end if unread else floors[log.id]
        records += max(0, min(stop, places[log.id]) - low)
        needed += max(0, min(stop, places[log.id]) - max(low, floors[log.id]))
    return Found(places, records, needed, len(_subscribers(topic)))


def _subscribers(topic: Topic) -> set[str]:
    """Return the keys of the subscriptions that have not ended; one for a client and its entries of patterns."""
    return {
        key.removeprefix(PATTERN_KEY).partition(":")[0] if key.startswith(PATTERN_KEY) else key
        for key, subscription in topic.subscriptions.items()
        if subscription.on
    }
