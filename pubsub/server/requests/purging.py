"""Purging of a topic's messages: PURGE (docs/explanation/topics.md, B4 to B8).

    without places     → success, with the present end of each log and the numbers of stored and unread messages
    with places        → success, and the purge is on the disk; a repeat finds it done
    the topic is not held   → unknown
    a place beyond the end of the open log   → refused
    this server is not known to be the sole owner   → busy

The first answer fixes the places. So a late repeat of the second request purges no later message.
"""

from __future__ import annotations

from pubsub.errors import DecodeError
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import is_service_topic
from pubsub.protocol.purges import LOGS_MAX, Found, decode_places, encode_found
from pubsub.protocol.topic_objects import Purge
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.purges import Places
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.retention import Retention


class Purging:
    """The purges of one server's topics.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        retention: deletes the messages.
    """

    def __init__(self, state: State, sole_owner: SoleOwner, retention: Retention) -> None:
        self._state, self._sole_owner, self._retention = state, sole_owner, retention

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
        else:
            found = _found(topic)
            self._purge(topic, places, unread=bool(request.unread))
            state.replies.answer(origin, Outcome.SUCCESS, log=topic.open.id, body=encode_found(found))

    def _purge(self, topic: Topic, places: dict[str, int], *, unread: bool) -> None:
        changed = False
        for log, place in places.items():
            if log in topic.logs:
                kept = min(place, topic.logs[log].end)
                changed |= topic.purge(log, Places(kept, kept if unread else 0))
        if changed:
            self._state.measure(topic)
            self._retention.look_at(topic.name)
            self._state.counters["topics_purged"] += 1


def _found(topic: Topic) -> Found:
    floors, records, unread = topic.floors(), 0, 0
    for log in topic.logs.values():
        stop = log.end - log.unknown
        low = max(log.low, log.bare, topic.purged[log.id].unread if log.id in topic.purged else 0)
        records += max(0, stop - low)
        unread += max(0, stop - max(low, floors[log.id]))
    return Found({log.id: log.end for log in topic.logs.values()}, records, unread)
