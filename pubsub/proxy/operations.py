"""What operators have a proxy do: OPERATE with the target "-", action by action (docs/operations.md says what each
gives up).

    action    needs            who may                    what it does
    abandon   topic, server    who reaches the clients'   forgets a holder that will not come back; its log must not
                               address
    forget    store            the same                   takes a store out of the roster: nobody waits for it

Any other target is a server's ID, and the request is passed on to it. Each action is answered at once, and a repeat
finds it done. An action of a server that is heard is `busy`: what it holds is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pubsub.messenger.framing import Prefix
from pubsub.protocol import Operate, Outcome
from pubsub.proxy.notices import Notices
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.servers import STARTING, Servers


class Answer(NamedTuple):
    """What an operator is told."""

    outcome: Outcome
    reason: str = ""
    server: str = ""


class Action(NamedTuple):
    """One row of the table.

    Attributes:
        does: called with what was asked and the monotonic time.
        needs: fields of the request without which it is refused.
        refusal: what is said then.
        may: who may ask for it.
    """

    does: Callable[[Operations, Operate, float], Answer]
    needs: tuple[str, ...]
    refusal: str
    may: str


class Operations:
    """What one proxy is told by operators.

    Args:
        table: who holds what.
        servers: the conversation with the servers.
        replies: where answers go.
        notices: where what was done is said.
    """

    def __init__(self, table: RoutingTable, servers: Servers, replies: Replies, notices: Notices) -> None:
        self._table, self._servers, self._replies, self._notices = table, servers, replies, notices

    def handle(self, client: bytes, prefix: Prefix, asked: Operate, now: float) -> None:
        """OPERATE: do it, and answer."""
        action = ACTIONS.get(asked.action)
        if action is None:
            self._replies.refuse(client, prefix, f"{asked.action}_is_no_action_of_a_proxy")
        elif not all(getattr(asked, name) for name in action.needs):
            self._replies.refuse(client, prefix, action.refusal)
        elif self._replies.suspended:
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, self._replies.suspended)
        else:
            self._replies.answer(client, prefix, *action.does(self, asked, now))

    def abandon(self, asked: Operate, now: float) -> Answer:
        """A holder of a topic will not come back: forget it, and remember that its log must not either."""
        if now < self._servers.starts_at:
            return Answer(Outcome.UNAVAILABLE, STARTING)
        if any(
            self._may_hold(server, asked.topic)
            if asked.server == server.id or asked.store == server.store
            else server.topics.get(asked.topic) == asked.log
            for server in self._table.alive(now)
        ):
            return Answer(Outcome.BUSY, f"server_{asked.server}_is_heard", asked.server)
        lost = AbandonedLog(asked.topic, asked.log, asked.server, asked.store, asked.address)
        if not self._table.abandon(lost):
            return Answer(Outcome.FULL, "too_many_logs_were_given_up")
        for server in self._table.alive(now):  # They believe it of proxies only, who have seen that nobody hears it.
            if server.link is not None:
                self._replies.abandoned(server, lost)
        text = f"topic {asked.topic} of server {asked.server} was given up, with log {asked.log or 'unknown'}"
        self._notices.say(f"dead {asked.log}", text, now)
        return Answer(Outcome.SUCCESS)

    def forget(self, asked: Operate, now: float) -> Answer:
        """A store will not come back: nobody is to wait for it."""
        server = self._table.servers.get(asked.store)
        if server is None:
            known = asked.store in self._table.gone
            return Answer(Outcome.SUCCESS) if known else Answer(Outcome.UNKNOWN, "store_is_not_known")
        if server.alive(now):
            return Answer(Outcome.BUSY, f"server_{server.id}_is_heard", server.id)
        # What it held beyond topics_max is known to nobody, and can be given up in no other way.
        if server.topics or server.assigned:
            return Answer(Outcome.BUSY, f"it_holds_{len(server.topics)}_topics", server.id)
        self._table.detach(server)
        self._servers.roster.forget(server)
        self._notices.say(f"forgot {asked.store}", f"store {asked.store} of server {server.id} was forgotten", now)
        self._servers.announcements.tell_roster()
        return Answer(Outcome.SUCCESS)

    def _may_hold(self, server: Server, topic: str) -> bool:
        """Whether a server that is heard holds a topic, or may be making it: it says so, or has not said all."""
        making = self._table.assignments.may_be_making(server, topic)
        return topic in server.topics or not server.complete or making


CLIENTS: Final = "who reaches the clients' address"

ACTIONS: Final = {
    "abandon": Action(Operations.abandon, ("topic", "server"), "abandon_needs_topic_and_server", may=CLIENTS),
    "forget": Action(Operations.forget, ("store",), "forget_needs_a_store", may=CLIENTS),
}
