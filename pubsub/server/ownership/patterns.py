"""Subscriptions to patterns at one server: before it lets go of anything, a topic gets an entry for each that matches.

The rules are those of docs/explanation/families.md, FA1, FA3, FA4, FA7 and FA8.

Proxies tell the server their patterns, and it keeps them as notes. Its answer tells a proxy those that the proxy lacks.
So all proxies and servers come to know the same rows. An answer about sole ownership has the digest of the proxy's
rows. The server lets go of a topic's records only after enough proxies have shown the digest of its own rows.

An entry is a subscription under a key of its own, which no client can name. It begins at the pattern's stamp, less the
bound on skew, with all spans of the history. The client joins the topic under its own ID and a number of its own. Its
subscription then takes the place of the entry. If that subscription ends while the pattern lasts, the entry is made
again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import DecodeError, StoreDamaged
from pubsub.protocol.families import Patterns
from pubsub.protocol.pattern_table import PatternRow, PatternTable, read_pattern
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.consumers import PATTERN_KEY, Session, pattern_key
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.notes import PATTERN
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic


class ServerPatterns:
    """The patterns that one server knows.

    Args:
        proxies: told what they lack.
        notes: the facts in the server's store.

    Attributes:
        known: the patterns, those of this loop included.
    """

    def __init__(self, state: State, proxies: Proxies, notes: Mapping[str, object]) -> None:
        self._state, self._proxies = state, proxies
        rows = []
        for note, value in notes.items():
            if note.startswith(PATTERN):
                try:
                    rows.append(read_pattern(f"{note.removeprefix(PATTERN)} {value}"))
                except DecodeError:  # The proxies tell it again.
                    state.counters["patterns_unreadable"] += 1
        self.known = PatternTable(rows)
        self._owed: dict[int, str] = {}
        """By proxy that gets an answer after the commit: the digest of its own patterns."""
        self._announced = proxies.patterns = self.known.digest

    # What proxies tell

    def told(self, proxy: int, message: Patterns) -> list[str]:
        """Take in the patterns of a proxy; the answer follows the commit.

        Returns:
            The topics with an entry of a pattern that ended, or that was made anew.
        """
        uncommitted, ended = self._state.uncommitted, set()
        for row in message.rows or ():
            before = self.known.rows.get(row.key)
            changed = self.known.admit(row)
            if changed is None:
                continue
            uncommitted.undo(lambda key=row.key, before=before: self.known.replace(before, key))  # type: ignore[misc]
            value = f"{changed.number} {int(changed.on)} {changed.stamp}"
            uncommitted.rows.append(c.NoteKept(f"{PATTERN}{changed.subscriber} {changed.pattern}", value))
            if before is not None:
                ended.add(pattern_key(*row.key))
        self._owed[proxy] = message.digest
        uncommitted.undo(self._owed.clear)
        if not ended:
            return []
        topics = self._state.topics
        return [name for name, topic in topics.items() if not ended.isdisjoint(topic.subscriptions)]

    def committed(self, now: float) -> None:
        """Answer the proxies that have told something, because it is stored now."""
        if not self._owed:
            return
        self._announced = self._proxies.patterns = self.known.digest
        owed, self._owed = self._owed, {}
        for proxy, digest in owed.items():
            rows = () if digest == self._announced else tuple(self.known.rows.values())
            self._proxies.tell_patterns(proxy, self._announced, rows, now)

    def is_equal(self, digest: str) -> bool:
        """Return True if a proxy with this digest, "" for none, has the patterns that this server has."""
        return digest == self.known.digest or (not digest and not self.known)

    def may_lack(self, topic: str) -> bool:
        """Return True if a pattern matches a topic, so that it must not lose records without an answer of a proxy."""
        return next(self.known.matching(topic), None) is not None

    # Entries

    def settle(self, topic: Topic) -> None:
        """End the entries that nobody needs: of ended patterns, and those that the client's own subscription covers."""
        for key, entry in list(topic.subscriptions.items()) if self.known else ():
            if not entry.on or not key.startswith(PATTERN_KEY):
                continue
            subscriber, _, pattern = key.removeprefix(PATTERN_KEY).partition(":")
            row = self.known.rows.get((subscriber, pattern))
            if row is None:
                continue
            if not row.on and entry.number <= row.number:
                self._end(topic, key, row.number)
            elif row.on and self._covers(topic, row):
                self._end(topic, key, row.number - 1)

    def prepare(self, topic: Topic, denied: Collection[str], informed: bool, sole_owner: bool) -> bool:
        """Make the entries before a topic loses records or bodies; return False if nothing may go yet.

        While another server may hold the topic, bodies go beyond the limit for consumed batches. Without an answer of a
        proxy, none go from a topic that a known pattern matches: the proxy may know another pattern, too.
        """
        if not sole_owner and not informed:
            return not self.may_lack(topic.name)
        try:
            self.enter(topic, denied)
        except StoreDamaged:
            self._state.found_damaged(topic)
            return False
        return True

    def enter(self, topic: Topic, denied: Collection[str] = ()) -> None:
        """Make an entry for each pattern that matches a topic and has none.

        Args:
            denied: subscribers that may not get from the topic, as proxies have answered.

        Raises:
            StoreDamaged: the history cannot be read.
        """
        self.settle(topic)
        made = False
        for row in self.known.matching(topic.name):
            key = pattern_key(*row.key)
            entry = topic.subscriptions.get(key)
            if row.subscriber in denied:
                if entry is not None and entry.on:
                    self._end(topic, key, row.number - 1)
            elif (entry is None or entry.number < row.number) and not self._covers(topic, row):
                cursor = self._cursor(topic, row)
                topic.enter(key, Subscription(row.number, True, cursor, Session(0)))
                self._state.counters["pattern_entries_made"] += 1
                made = True
        if made:
            self._state.measure(topic)

    def _cursor(self, topic: Topic, row: PatternRow) -> Cursor:
        state = self._state
        cursor = cursor_at(topic, max(0, row.stamp - self._skew), 0, self._skew, state.reader)
        assert cursor is not None  # A start at a timestamp is always held.
        return cursor

    def _covers(self, topic: Topic, row: PatternRow) -> bool:
        """Return True if the client's own subscription has all that the pattern's entry would hold."""
        own = topic.subscriptions.get(row.subscriber)
        return own is not None and own.on and own.cursor.since <= max(0, row.stamp - self._skew)

    def _end(self, topic: Topic, key: str, number: int) -> None:
        cursor = topic.subscriptions[key].cursor
        ended = Subscription(number, False, Cursor(cursor.since, cursor.acknowledged, ()), Session(0))
        topic.enter(key, ended)
        self._state.counters["pattern_entries_ended"] += 1

    @property
    def _skew(self) -> int:
        return int(self._state.settings.skew_seconds * MICROSECONDS)
