"""Admission: topics for which every request is rejected, and limits that reject one.

    held back            unavailable, until an operator decides about this copy of the store
    frozen               moved: the topic is under transfer to another server
    no longer here       moved: the proxy that forwarded the request may not know that yet
    not created yet      unavailable, if only an operator creates topics and the request would create one
    a limit is reached   full, with the limit's name
    a service's topic    full: a call without a subscribed worker, or a second client that wants to be the worker
                         (docs/clients.md, *Calls that happen once*)

A rejection reason is the name of the limit, or "" for none. An unsubscribe is accepted at a
limit if it frees messages.

The rules are those of docs/explanation/calls.md, X6 and X7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pubsub.base.limits import DELAYED_BYTES_MAX, DELAYED_ROWS_MAX, OFFSET_MAX
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.protocol.messages import Configure, Get, Outcome, Put, Read, Settings
from pubsub.protocol.names import is_service_topic
from pubsub.protocol.topic_objects import Purge
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import Request, State
from pubsub.server.topic.consumers import KEY, Session, group_key, group_of
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.staging import PIECES_MAX, STAGES_MAX

ROOM: Final = frozenset({"STAGES_MAX", "PIECES_MAX", "backlog_bytes_max"})
"""Limits on a topic's contents that stages count towards."""


NOT_CREATED: Final = "only_an_operator_creates_topics,_and_this_server_does_not_hold_this_one"


def _creates(request: Request) -> bool:
    """Return True if a request creates its topic, and only an operator's may."""
    if request.topic.startswith("$"):
        return False
    reads = isinstance(request, Get | Read | Settings | Purge | Work | Describe | Group)
    return not (reads or (isinstance(request, Configure) and request.create))


def _workers(topic: Topic) -> Iterator[str]:
    """Yield the clients that are subscribed, and the groups."""
    yield from (name for name, one in topic.subscriptions.items() if one.on and isinstance(one.consumer, Session))
    yield from (group_key(name) for name, group in topic.groups.items() if group.row.on)


class Admission:
    """The admission of requests to one server.

    Args:
        proxies: shows which proxies have confirmed that a topic left this server.
    """

    def __init__(self, state: State, proxies: Proxies) -> None:
        self._state, self._proxies = state, proxies

    def rejects(self, origin: Origin, name: str, request: Request | None = None) -> bool:
        """Answer a request for a topic that is not served here now; return False if the topic is served.

        Args:
            request: one that may create the topic; None: one that does not.
        """
        state = self._state
        if state.stale or name in state.held:
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason=state.why_held_back(name))
            return True
        topic = state.topics.get(name)
        # If the topic were begun here again, this server would be one more holder. The proxy might answer "no other
        # holder" to another server before it learns of that.
        gone = topic is None and self._proxies.may_take_for_holder(origin.link, name, state.left)
        if gone or (topic is not None and topic.frozen):
            state.replies.answer(origin, Outcome.MOVED)
            return True
        if topic is None and request is not None and not state.settings.topics_auto and _creates(request):
            # The proxy knows whether another server holds the topic, and refuses the request if none does.
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason=NOT_CREATED)
            return True
        return False

    def named(self, origin: Origin, name: str, wanted: str) -> tuple[Topic, Subscription | None] | None:
        """Return a topic, and its named subscription if `wanted` names one; None after answering that there is none."""
        replies = self._state.replies
        topic = self._state.topics.get(name)
        if topic is None:
            replies.answer(origin, Outcome.UNKNOWN, reason="topic")
            return None
        subscription = topic.subscriptions.get(KEY + wanted) if wanted else None
        if wanted and (subscription is None or not subscription.on):
            replies.answer(origin, Outcome.UNKNOWN, reason="subscription", log=topic.open.id)
            return None
        return topic, subscription

    # Limits

    def put(self, topic: Topic | None, publisher: int | None, put: Put, due: int = 0) -> str:
        """Return the rejection reason of a put."""
        state = self._state
        if state.full:
            return "disk"
        if is_service_topic(put.topic) and not (topic and any(_workers(topic))):
            return "no_worker"  # No worker would get it; the caller's outbox keeps it until one subscribes.
        if topic is None:
            return self._new_publisher(publisher) or self._new_topic()
        if publisher not in topic.last:
            rejection = self._publisher_of(topic, publisher) or self._new_publisher(publisher)
            if rejection:
                return rejection
        if topic.open.end + put.count > OFFSET_MAX:
            return "OFFSET_BITS"
        if due:
            return self._delayed(topic, len(put.body))
        return "" if self._has_room(topic, len(put.body)) else "backlog_bytes_max"

    def subscription(self, topic: Topic | None, key: str, *, on: bool, continues: bool = False) -> str:
        """Return the rejection reason of a subscription (`on`), or of its end.

        Args:
            key: of the subscription.
            continues: an active subscription keeps its position.
        """
        state = self._state
        subscription = topic.subscriptions.get(key) if topic else None
        known = subscription is not None
        # To continue a subscription needs no more room than to end it, and reading its messages frees room.
        goes_on = continues and subscription is not None and subscription.on
        if state.full and not goes_on and (on or not known):
            return "disk"
        if on and topic is not None and is_service_topic(topic.name) and any(name != key for name in _workers(topic)):
            return "another_client_serves_this"
        if topic is None:
            return self._new_topic()
        subscribers = len(topic.subscriptions)
        if topic.groups:  # What waits for groups has limits of its own.
            subscribers -= sum(1 for name in topic.subscriptions if group_of(name))
        return "subscribers_max" if not known and subscribers >= state.settings.subscribers_max else ""

    def topic(self) -> str:
        """Return the rejection reason of a new topic."""
        return self._new_topic()

    def is_served(self, topic: Topic) -> bool:
        """Return True if a service has a worker, or a group of them."""
        return any(_workers(topic))

    def settings(self, topic: Topic | None) -> str:
        """Return the rejection reason of other settings. A full disk takes those of a topic that exists.

        They may be the remedy for it.
        """
        if topic is not None:
            return ""
        return "disk" if self._state.full else self._new_topic()

    def stage(self, topic: Topic | None, publisher: str, size: int, *, new: bool) -> str:
        """Return the rejection reason of staged rows.

        Args:
            publisher: its name.
            size: bytes of the rows.
            new: True if the rows begin a stage.
        """
        rejection = self._sink(topic, publisher)
        if rejection or topic is None:
            return rejection
        if new and len(topic.stages) >= STAGES_MAX:
            return "STAGES_MAX"
        if sum(len(stage.pieces) for stage in topic.stages.values()) >= PIECES_MAX:
            return "PIECES_MAX"
        return "" if self._has_room(topic, size, staged=True) else "backlog_bytes_max"

    def publish(self, topic: Topic | None, publisher: str, rows: int) -> str:
        """Return the rejection reason of publishing this many staged rows."""
        rejection = self._sink(topic, publisher)
        if rejection or topic is None:
            return rejection
        return "OFFSET_BITS" if topic.open.end + rows > OFFSET_MAX else ""

    def _sink(self, topic: Topic | None, publisher: str) -> str:
        number = self._state.publishers.find(publisher)
        rejection = "disk" if self._state.full else self._new_publisher(number)
        return rejection or (self._new_topic() if topic is None else self._publisher_of(topic, number))

    def _delayed(self, topic: Topic, size: int) -> str:
        if len(topic.delayed) >= DELAYED_ROWS_MAX:
            return "DELAYED_ROWS_MAX"
        return "DELAYED_BYTES_MAX" if topic.delayed.size + size > DELAYED_BYTES_MAX else ""

    def _new_topic(self) -> str:
        return "topics_max" if len(self._state.topics) >= self._state.settings.topics_max else ""

    def _new_publisher(self, number: int | None) -> str:
        return "STORE_PUBLISHERS_MAX" if number is None and self._state.publishers.full else ""

    def _publisher_of(self, topic: Topic, number: int | None) -> str:
        full = number not in topic.last and len(topic.last) >= self._state.settings.publishers_max
        return "publishers_max" if full else ""

    def _has_room(self, topic: Topic, size: int, *, staged: bool = False) -> bool:
        """Return True if `size` more bytes fit under the backlog limit; `staged`: staged bytes count too."""
        limit = self._state.settings.backlog_bytes_max
        size += topic.staged_bytes if staged else 0
        if topic.backlog_bytes + size <= limit:
            return True
        self._state.measure(topic)
        return topic.backlog_bytes + size <= limit
