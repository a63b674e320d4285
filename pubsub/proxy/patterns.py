"""Subscriptions to patterns at one proxy: the table, its exchange with servers, and the lists of matching topics.

The rules are those of docs/explanation/families.md, FA2, FA3, FA5 and FA6.

A pattern is answered when it is on this proxy's disk and when a live server has it on its own disk. The client asks
every proxy. So a proxy that loses its file learns each pattern from a server again. Until then the digest in its
answers about sole ownership differs from that of the servers, and no server lets go of anything by these answers.

The client asks for matching topics again and again. A question waits here until there is a new topic to name. Only
topics that the client may get at present are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from pubsub.base.clock import Stamps
from pubsub.messenger.framing import Prefix
from pubsub.protocol import Outcome
from pubsub.protocol.batch import Buffer
from pubsub.protocol.families import Matching, Pattern, Patterns
from pubsub.protocol.names import is_topic
from pubsub.protocol.pattern_table import Key, PatternRow, PatternTable
from pubsub.protocol.patterns import is_pattern, matches
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

TOPICS_MAX: Final = 10_000
"""Limit of the topics that one answer names."""

WAITING_MAX: Final = 2_000
"""Limit of the questions that wait. Beyond it a question is answered at once."""

WAIT_MS_MAX: Final = 60_000
"""Limit of the time that a question waits, in milliseconds."""


@dataclass(slots=True)
class _Waiting:
    """A question about matching topics that waits for a new topic."""

    prefix: Prefix
    message: Matching
    until: float


class ProxyPatterns:
    """The patterns that one proxy knows.

    Args:
        table: the routing table, with the changes to write.
        rows: the rows of the routes file.
        stamps: the proxy's clock for timestamps.

    Attributes:
        may_get: returns whether a client may get from a topic; a proxy without keys allows everything.
    """

    def __init__(self, table: RoutingTable, replies: Replies, stamps: Stamps, rows: Iterable[PatternRow]) -> None:
        self._table, self._replies, self._stamps = table, replies, stamps
        self.known = PatternTable(rows)
        self.may_get: Callable[[str, str], bool] = lambda client, topic: True
        self._waiting: dict[tuple[bytes, str], _Waiting] = {}
        self._held: dict[tuple[bytes, Key], tuple[Prefix, PatternRow]] = {}
        """By client and pattern, requests that wait until a server has stored the row."""

    @property
    def digest(self) -> str:
        """The digest for an answer about sole ownership; "" without patterns, which costs no byte."""
        return self.known.digest if self.known else ""

    def request(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...], now: float) -> None:
        """Answer a client's PATTERN or MATCHING. A witness forwards nothing, but it keeps patterns.

        Args:
            frames: head and body.
        """
        message = self._replies.read(client, prefix, frames)
        if message is None:
            return
        if isinstance(message, Pattern):
            self.asked(client, prefix, message, now)
        else:
            assert isinstance(message, Matching)
            self.listed(client, prefix, message, now)
            self._table.watched = bool(self._waiting)

    def look(self) -> None:
        """Answer the questions about matching topics if the table has new topics."""
        if self._table.fresh:
            self.begun()
            self._table.watched = bool(self._waiting)

    # Patterns

    def asked(self, client: bytes, prefix: Prefix, message: Pattern, now: float) -> None:
        """Handle a PATTERN of a client."""
        if not message.number or not is_pattern(message.pattern) or message.pattern.startswith("$"):
            self._replies.refuse(client, prefix, "not_a_pattern_of_topics")
            return
        limit = "" if message.end else self.known.excess(message.sender, message.pattern)
        mine = self.known.rows.get((message.sender, message.pattern))
        if limit and (mine is None or mine.number <= message.number):
            self._replies.answer(client, prefix, Outcome.FULL, limit)
            return
        stamp = 0 if message.end else message.stamp or max(1, self._stamps.reading(now))
        if message.end and mine is None and self._nothing_to_end(message):
            self._answer(client, prefix, Outcome.SUCCESS, PatternRow(*self._key(message), message.number, False, 0))
            return
        row = PatternRow(*self._key(message), message.number, not message.end, stamp)
        self._admit([row], now)
        self._held[client, row.key] = prefix, row
        self._answer_stored(now)
        if len(self._held) > WAITING_MAX:
            del self._held[client, row.key]
            self._replies.answer(client, prefix, Outcome.UNAVAILABLE, "no_server_has_stored_the_pattern_yet")

    def _answer_stored(self, now: float) -> None:
        """Answer the requests that wait for a server, if one has stored all that this proxy knows."""
        if not self._held or not any(server.patterns == self.known.digest for server in self._table.alive(now)):
            return
        held, self._held = self._held, {}
        for (client, key), (prefix, row) in held.items():
            mine = self.known.rows[key]
            same = (mine.number, mine.on) == (row.number, row.on)
            self._answer(client, prefix, Outcome.SUCCESS if same else Outcome.SUPERSEDED, mine)

    @staticmethod
    def _key(message: Pattern) -> tuple[str, str]:
        return message.sender, message.pattern

    def _nothing_to_end(self, message: Pattern) -> bool:
        """Return whether an end can be answered without a row, because there is no room for one."""
        return self.known.excess(message.sender, message.pattern) == "ENDED_MAX"

    def _answer(self, client: bytes, prefix: Prefix, outcome: Outcome, row: PatternRow) -> None:
        self._replies.answer(client, prefix, outcome, number=row.number, stamp=row.stamp)

    def _admit(self, rows: Iterable[PatternRow], now: float, but: Server | None = None) -> None:
        """Take in rows, and tell those that are new here to the servers, except the one that told them."""
        changed = [one for row in rows if (one := self.known.admit(row)) is not None]
        for row in changed:
            self._table.changes.patterns[row.key] = row
            if not row.on:
                self._ended(row)
        if changed:
            for server in self._table.alive(now):
                if server is not but and server.patterns:
                    self._tell(server, changed)

    def _tell(self, server: Server, rows: Iterable[PatternRow]) -> None:
        self._replies.patterns(server, self.known.digest, tuple(rows))

    # Servers

    def announced(self, server: Server, digest: str) -> None:
        """Handle the digest in a server's full announcement, "" from an earlier release: tell it all that is known."""
        server.patterns = digest
        if digest and digest != self.known.digest:
            self._tell(server, self.known.rows.values())

    def told(self, server: Server, message: Patterns, now: float) -> None:
        """Handle a server's answer: its digest, and the rows that this proxy may lack."""
        server.patterns = message.digest
        self._admit(message.rows or (), now, but=server)
        self._answer_stored(now)

    def denied(self, server: Server, topics: Iterable[str]) -> bytes:
        """Return the end of an answer about sole ownership: the subscribers that may not get a topic that they match.

        A server of an earlier release could not read it.
        """
        if not self.known or not server.patterns:
            return b""
        lines: dict[str, dict[str, None]] = {}
        for topic in topics:
            for row in self.known.matching(topic):
                if not self.may_get(row.subscriber, topic):
                    lines.setdefault(row.subscriber, {})[topic] = None
        return "".join(f"\n{client} {' '.join(denied)}" for client, denied in lines.items()).encode("ascii")

    # Topics

    def listed(self, client: bytes, prefix: Prefix, message: Matching, now: float) -> None:
        """Handle a MATCHING of a client: answer it, or let it wait for a new topic.

        A pattern that was ended has no topics. The answer has the number of the end, because this proxy may not know a
        later wish yet.
        """
        if not is_pattern(message.pattern) or not is_topic(message.pattern):
            self._replies.refuse(client, prefix, "not_a_pattern_of_topics")
            return
        self._waiting.pop((client, message.pattern), None)
        mine = self.known.rows.get((message.sender, message.pattern))
        if mine is not None and not mine.on:
            self._answer(client, prefix, Outcome.SUPERSEDED, mine)
            return
        body = self._list(message)
        if message.known != crc32(body) or not message.wait_ms or len(self._waiting) >= WAITING_MAX:
            self._send(client, prefix, message, body)
            return
        until = now + min(message.wait_ms, WAIT_MS_MAX) / 1000
        self._waiting[client, message.pattern] = _Waiting(prefix, message, until)

    def _ended(self, row: PatternRow) -> None:
        """Answer the waiting questions about a pattern that was ended."""
        for key, one in list(self._waiting.items()):
            if (one.message.sender, one.message.pattern) == row.key:
                del self._waiting[key]
                self._answer(key[0], one.prefix, Outcome.SUPERSEDED, row)

    def _list(self, message: Matching) -> bytes:
        found: list[str] = []
        for topic, _ in self._table.topics():
            if matches(message.pattern, topic) and self.may_get(message.sender, topic):
                found.append(topic)
                if len(found) >= TOPICS_MAX:
                    break
        return " ".join(sorted(found)).encode("ascii")

    def _send(self, client: bytes, prefix: Prefix, message: Matching, body: bytes) -> None:
        checksum = crc32(body)
        outcome = Outcome.EMPTY if checksum == message.known else Outcome.SUCCESS
        self._replies.answer(client, prefix, outcome, body=b"" if outcome is Outcome.EMPTY else body, checksum=checksum)

    def begun(self) -> None:
        """Answer the waiting questions about topics that are new in the routing table."""
        fresh, self._table.fresh = self._table.fresh, []
        for (client, pattern), one in list(self._waiting.items()) if fresh else ():
            if any(matches(pattern, topic) and self.may_get(one.message.sender, topic) for topic in fresh):
                del self._waiting[client, pattern]
                self._send(client, one.prefix, one.message, self._list(one.message))

    def tick(self, now: float) -> None:
        """Answer the questions that have waited long enough."""
        if not self._waiting:
            return
        for key, one in [(key, one) for key, one in self._waiting.items() if one.until <= now]:
            del self._waiting[key]
            self._send(key[0], one.prefix, one.message, self._list(one.message))

    @property
    def deadline(self) -> float:
        """The monotonic time of the next call of `tick`."""
        return min(one.until for one in self._waiting.values()) if self._waiting else float("inf")
