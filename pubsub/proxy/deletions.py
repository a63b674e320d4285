"""Deletions of topics at one proxy: the table, its exchange with servers, and the requests that wait for servers.

The rules are those of docs/explanation/deletion.md, UD1, UD2, UD3 and UD8.

A deletion is a number for a name. An operator sends it to every proxy. A proxy answers when the number is on its disk,
and every live server has stored it, too. A server that stores a higher number drops its topic in the same commit.

A request goes to a server only if that server has stored the numbers of its topic that this proxy knows. So a server
that was away during the deletion takes nothing into the old topic. A proxy that lost its file learns the numbers from
the servers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pubsub.base.clock import Stamps
from pubsub.messenger.framing import Prefix
from pubsub.protocol import Outcome
from pubsub.protocol.batch import Buffer
from pubsub.protocol.deletion_table import Deletion, DeletionTable
from pubsub.protocol.deletions import Delete, Deleted
from pubsub.protocol.names import is_letters_topic
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

WAITING_MAX: Final = 2_000
"""Limit of the requests that wait for servers. Beyond it a request is answered at once."""

TELL_SECONDS: Final = 1.0
"""Time after which a server that has not answered is told the deletions again."""


class Unfinished(NamedTuple):
    """A deletion that a holder of the topic has not confirmed.

    Attributes:
        server: its ID.
        seconds: since this proxy knows both.
    """

    topic: str
    server: str
    seconds: float


class ProxyDeletions:
    """The deletions that one proxy knows.

    Args:
        table: the routing table, with the changes to write.
        stamps: the proxy's clock for timestamps.
        rows: the rows of the routes file.
    """

    def __init__(self, table: RoutingTable, replies: Replies, stamps: Stamps, rows: Iterable[Deletion]) -> None:
        self._table, self._replies, self._stamps = table, replies, stamps
        self.known = DeletionTable(rows)
        self._held: dict[tuple[bytes, str], tuple[Prefix, int]] = {}
        """By client and topic, requests with a number that wait until the live servers have stored it."""
        self._told_at: dict[str, float] = {}
        """By store, when it was told something last."""

    # Operators

    def request(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...], now: float) -> None:
        """Answer a DELETE. A witness forwards nothing, but it keeps deletions.

        Args:
            frames: head and body.
        """
        message = self._replies.read(client, prefix, frames)
        if message is None:
            return
        assert isinstance(message, Delete)
        self.asked(client, prefix, message, now)

    def asked(self, client: bytes, prefix: Prefix, message: Delete, now: float) -> None:
        """Handle a DELETE of an operator."""
        topic, number = message.topic, message.number
        if topic.startswith("$") and not is_letters_topic(topic):
            self._replies.refuse(client, prefix, "a_topic_of_the_service_cannot_be_deleted")
        elif old := next((one.id for one in self._table.alive(now) if not one.deletions), ""):
            text = f"server_{old}_needs_a_newer_release_to_delete_topics"
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, text, old)
        elif not number:
            clock = max(1, self._stamps.reading(now))
            self._replies.answer(client, prefix, Outcome.SUCCESS, number=self.known.number(topic), stamp=clock)
        elif number < self.known.number(topic):
            self._replies.answer(client, prefix, Outcome.SUPERSEDED, number=self.known.number(topic))
        elif not self.known.has_room_for(topic):
            self._replies.answer(client, prefix, Outcome.FULL, "DELETED_MAX")
        elif len(self._held) >= WAITING_MAX and (client, topic) not in self._held:
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, "too_many_deletions_wait_for_servers")
        else:
            self._admit([Deletion(topic, number)], now)
            self._held[client, topic] = prefix, number
            self._answer_stored(now)
            for server in self._table.alive(now):
                if topic in server.lacks:
                    self._tell_again(server, now)

    def _answer_stored(self, now: float) -> None:
        """Answer the requests with numbers that every live server has stored."""
        for key, (prefix, number) in list(self._held.items()) if self._held else ():
            alive = self._table.alive(now)
            if alive and not any(key[1] in server.lacks for server in alive):
                del self._held[key]
                mine = self.known.number(key[1])
                outcome = Outcome.SUCCESS if mine == number else Outcome.SUPERSEDED
                self._replies.answer(key[0], prefix, outcome, number=mine)

    def tick(self, now: float) -> None:
        """Answer what no server holds up any more, because it counts as gone."""
        self._answer_stored(now)

    # Servers

    def forward(
        self, server: Server, client: bytes, prefix: Prefix, topic: str, frames: tuple[Buffer, ...], now: float
    ) -> None:
        """Forward a request, if the server has stored the deletion of its topic; otherwise answer it."""
        if reason := self.refuses(server, topic, now):
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, reason, server.id)
        else:
            self._replies.forward(server, client, frames, now)

    def refuses(self, server: Server, topic: str, now: float) -> str:
        """Return the reason why a request about a topic must not go to a server; "" if it may."""
        if topic not in server.lacks:
            return ""
        self._tell_again(server, now)
        what = "has_not_stored_that_yet" if server.deletions else "needs_a_newer_release_to_store_that"
        return f"the_topic_was_deleted_and_server_{server.id}_{what}"

    def announced(self, server: Server, digest: str, now: float) -> None:
        """Handle the digest in a server's full announcement, "" from an earlier release: tell it all that is known."""
        server.deletions = digest
        if digest == self.known.digest:
            server.lacks = {}
            self._answer_stored(now)
            return
        server.lacks = {topic: server.lacks.get(topic, now) for topic in self.known.numbers}
        self._tell(server, now)

    def told(self, server: Server, message: Deleted, now: float) -> None:
        """Handle a server's answer: its digest, and its rows if they differ from those that it was told of."""
        server.deletions = message.digest
        self._admit(message.rows or (), now)
        stored = {row.topic: row.number for row in message.rows or ()}
        if message.digest == self.known.digest:
            server.lacks = {}
        elif stored:
            server.lacks = {
                topic: server.lacks.get(topic, now)
                for topic, number in self.known.numbers.items()
                if stored.get(topic, 0) < number
            }
            self._tell_again(server, now)
        else:
            self._tell_again(server, now)
        self._answer_stored(now)

    def _admit(self, rows: Iterable[Deletion], now: float) -> None:
        """Take in rows, and tell the servers those that are new here."""
        changed = [row for row in rows if self.known.admit(row)]
        if not changed:
            return
        for row in changed:
            self._table.changes.deletions[row.topic] = row.number
            for holder in self._table.holders(row.topic):
                self._table.assignments.preferred[row.topic] = holder.store
        self._replies.counters["deletions_learned"] += len(changed)
        for server in self._table.servers.values():
            server.lacks.update((row.topic, now) for row in changed)
        for server in self._table.alive(now):
            self._tell(server, now, changed)

    def _tell_again(self, server: Server, now: float) -> None:
        if now >= self._told_at.get(server.store, float("-inf")) + TELL_SECONDS:
            self._tell(server, now)

    def _tell(self, server: Server, now: float, rows: Iterable[Deletion] | None = None) -> None:
        """Tell a server rows, by default all that are known; an earlier release could not read them."""
        if server.deletions and server.link is not None:
            self._told_at[server.store] = now
            self._replies.deletions(server, self.known.digest, self.known.rows if rows is None else tuple(rows))

    def unfinished(self, now: float) -> list[Unfinished]:
        """Return the deletions that a holder of the topic, alive or not, has not confirmed, the oldest first.

        After a start of the proxy a silent server counts only when it has announced itself.
        """
        found = [
            Unfinished(topic, server.id, now - server.lacks[topic])
            for server in self._table.servers.values()
            for topic in server.lacks.keys() & server.topics.keys()
        ]
        return sorted(found, key=lambda one: (-one.seconds, one.topic, one.server))
