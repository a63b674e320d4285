"""Operator requests to a proxy: OPERATE with the target "-". See docs/operations.md for the effects of each action.

    action    needs            allowed to             effect
    abandon   topic, server    any client that        forgets a holder that will not come back, and rejects its log
                               reaches the clients'   from then on
                               address
    forget    store            the same               removes a store from the store directory: no proxy waits for it
    unsubscribe  topic,        the same               ends a pattern of topics of a client that will not return; the
                 subscriber,                          answer waits until a server has stored the end, too
                 number

Any other target is the ID of a server, and the request is forwarded to it. Each action is answered at once and can be
repeated. An action about a server that is alive is answered `busy`, because its topics are not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pubsub.messenger.framing import Prefix
from pubsub.protocol import Operate, Outcome
from pubsub.protocol.families import Pattern
from pubsub.protocol.names import is_id
from pubsub.proxy.notices import Notices
from pubsub.proxy.patterns import ProxyPatterns
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.servers import STARTING, Servers


class Answer(NamedTuple):
    outcome: Outcome
    reason: str = ""
    server: str = ""


class Action(NamedTuple):
    """One row of the table.

    Attributes:
        does: called with the request and the monotonic time; None: the proxy's patterns do it and answer.
        needs: required fields of the request.
        refusal: the reason in the answer if one is missing.
        may: the clients that may send it.
    """

    does: Callable[[Operations, Operate, float], Answer] | None
    needs: tuple[str, ...]
    refusal: str
    may: str


class Operations:
    """Operator requests to one proxy."""

    def __init__(
        self, table: RoutingTable, servers: Servers, replies: Replies, notices: Notices, patterns: ProxyPatterns
    ) -> None:
        self._table, self._servers, self._replies, self._notices = table, servers, replies, notices
        self._patterns = patterns

    def handle(self, client: bytes, prefix: Prefix, asked: Operate, now: float) -> None:
        """Run an OPERATE and answer it."""
        action = ACTIONS.get(asked.action)
        if action is None:
            self._replies.refuse(client, prefix, f"{asked.action}_is_no_action_of_a_proxy")
        elif not all(getattr(asked, name) for name in action.needs):
            self._replies.refuse(client, prefix, action.refusal)
        elif self._replies.suspended:
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, self._replies.suspended)
        elif action.does is None:
            self._end_pattern(client, prefix, asked, now)
        else:
            self._replies.answer(client, prefix, *action.does(self, asked, now))

    def _end_pattern(self, client: bytes, prefix: Prefix, asked: Operate, now: float) -> None:
        """End a pattern as its subscriber would; the patterns answer."""
        if is_id(asked.subscriber):
            self._patterns.asked(client, prefix, Pattern(asked.subscriber, asked.topic, asked.number, end=1), now)
        else:
            self._replies.refuse(client, prefix, "the_subscriber_is_no_client_id")

    def abandon(self, asked: Operate, now: float) -> Answer:
        """Forget a topic's holder that will not come back, and remember that its log must not come back either."""
        if now < self._servers.starts_at:
            return Answer(Outcome.UNAVAILABLE, STARTING)
        if any(
            self._may_hold(server, asked.topic)
            if asked.server == server.id or asked.store == server.store
            else server.topics.get(asked.topic) == asked.log
            for server in self._table.alive(now)
        ):
            return Answer(Outcome.BUSY, f"server_{asked.server}_sends_heartbeats", asked.server)
        lost = AbandonedLog(asked.topic, asked.log, asked.server, asked.store, asked.address)
        if not self._table.abandon(lost):
            return Answer(Outcome.FULL, "too_many_logs_were_given_up")
        # A server accepts this from proxies only, because only a proxy knows that the holder is silent.
        for server in self._table.alive(now):
            if server.link is not None:
                self._replies.abandoned(server, lost)
        text = f"topic {asked.topic} of server {asked.server} was given up with its log {asked.log or 'unknown'}"
        self._notices.say(f"dead {asked.log}", text, now)
        return Answer(Outcome.SUCCESS)

    def forget(self, asked: Operate, now: float) -> Answer:
        """Remove a store that will not come back, so that no proxy waits for it."""
        server = self._table.servers.get(asked.store)
        if server is None:
            known = asked.store in self._table.gone
            return Answer(Outcome.SUCCESS) if known else Answer(Outcome.UNKNOWN, "store_is_not_known")
        if server.alive(now):
            return Answer(Outcome.BUSY, f"server_{server.id}_sends_heartbeats", server.id)
        # Topics that it held beyond topics_max are unknown here, and can be given up in no other way.
        if server.topics or server.assigned:
            return Answer(Outcome.BUSY, f"it_holds_{len(server.topics)}_topics", server.id)
        self._table.detach(server)
        self._servers.store_directory.forget(server)
        self._notices.say(
            f"forgot {asked.store}",
            f"store {asked.store} of server {server.id} was forgotten: no proxy waits for it",
            now,
        )
        self._servers.announcements.send_store_directory()
        return Answer(Outcome.SUCCESS)

    def _may_hold(self, server: Server, topic: str) -> bool:
        """Return whether a live server may hold a topic.

        It may if it announced the topic, may be creating it, or has not announced all its topics.
        """
        making = self._table.assignments.may_be_making(server, topic)
        return topic in server.topics or not server.complete or making


CLIENTS: Final = "any client that reaches the clients' address"

ACTIONS: Final = {
    "abandon": Action(Operations.abandon, ("topic", "server"), "abandon_needs_topic_and_server", may=CLIENTS),
    "forget": Action(Operations.forget, ("store",), "forget_needs_a_store", may=CLIENTS),
    "unsubscribe": Action(
        None, ("topic", "subscriber", "number"), "unsubscribe_needs_a_pattern_its_subscriber_and_a_number", may=CLIENTS
    ),
}
