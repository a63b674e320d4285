"""The patterns of subscribers, as proxies and servers keep them, and the form in which they tell each other.

A row is the latest wish of one subscriber about one pattern. The higher number counts. Of two rows with one number, an
end counts before a subscription, and the earlier stamp counts. So rows can be told late, twice and in any order, and
all tables become equal. Two tables with one digest have the same rows.

    subscriber pattern number on stamp      one line for each row, separated by line feeds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_id, is_topic, parse_number
from pubsub.protocol.patterns import ONE, REST, is_pattern, matches
from pubsub.protocol.rows import Digest, split_rows

PATTERNS_MAX: Final = 1_000
"""Limit of the patterns of all clients together."""

CLIENT_PATTERNS_MAX: Final = 16
"""Limit of the patterns of one client."""

ENDED_MAX: Final = 10_000
"""Limit of the ended patterns. They stay as numbers, so that a late request does not bring a pattern back."""

NO_PATTERNS: Final = str(Digest())
"""The digest of a table without rows."""

Key = tuple[str, str]
"""Subscriber and pattern."""


class PatternRow(NamedTuple):
    """The latest wish of a subscriber about a pattern.

    Attributes:
        number: of the request, from the subscriber's allocator. The highest number counts.
        on: False if the pattern was ended.
        stamp: messages with an earlier timestamp are not sent (microseconds since 1970); 0: all stored ones are.
    """

    subscriber: str
    pattern: str
    number: int
    on: bool
    stamp: int

    @property
    def key(self) -> Key:
        return self.subscriber, self.pattern

    def line(self) -> str:
        """Return the row as text."""
        return f"{self.subscriber} {self.pattern} {self.number} {int(self.on)} {self.stamp}"


class PatternTable:
    """Patterns by subscriber and pattern.

    Args:
        rows: the rows at the beginning.
    """

    def __init__(self, rows: Iterable[PatternRow] = ()) -> None:
        self.rows: dict[Key, PatternRow] = {}
        self._digest = Digest()
        self._live = 0
        self._by_token: dict[str, dict[str, set[str]]] = {}
        """By first token the patterns that are on, with their subscribers."""
        for row in rows:
            self.admit(row)

    def __len__(self) -> int:
        """Return the number of patterns that are on."""
        return self._live

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def digest(self) -> str:
        """16 hex digits that depend on the rows alone."""
        return str(self._digest)

    @property
    def ended(self) -> int:
        """The number of ended patterns."""
        return len(self.rows) - self._live

    def copy(self) -> PatternTable:
        return PatternTable(self.rows.values())

    def of(self, subscriber: str) -> int:
        """Return the number of patterns of a subscriber that are on."""
        return sum(row.on for row in self.rows.values() if row.subscriber == subscriber)

    def admit(self, row: PatternRow) -> PatternRow | None:
        """Take in a row; return the row that is in force if it changed, otherwise None."""
        mine = self.rows.get(row.key)
        if mine is not None:
            if row.number < mine.number:
                return None
            if row.number == mine.number:
                row = row._replace(on=row.on and mine.on, stamp=min(row.stamp, mine.stamp))
            if row == mine:
                return None
            self._count(mine, -1)
        self.rows[row.key] = row
        self._count(row, 1)
        return row

    def replace(self, row: PatternRow | None, key: Key) -> None:
        """Set or remove a row without a comparison, to undo a change."""
        mine = self.rows.pop(key, None)
        if mine is not None:
            self._count(mine, -1)
        if row is not None:
            self.rows[key] = row
            self._count(row, 1)

    def _count(self, row: PatternRow, sign: int) -> None:
        self._digest.toggle(row)
        if not row.on:
            return
        self._live += sign
        first = row.pattern.partition(".")[0]
        named = self._by_token.setdefault(first, {}).setdefault(row.pattern, set())
        if sign > 0:
            named.add(row.subscriber)
            return
        named.discard(row.subscriber)
        if not named:
            del self._by_token[first][row.pattern]
        if not self._by_token[first]:
            del self._by_token[first]

    def matching(self, topic: str) -> Iterator[PatternRow]:
        """Yield the patterns that are on and match a topic, in a fixed order."""
        if not self._live:
            return
        for token in dict.fromkeys((topic.partition(".")[0], ONE, REST)):
            for pattern in sorted(self._by_token.get(token, ())):
                if matches(pattern, topic):
                    for subscriber in sorted(self._by_token[token][pattern]):
                        yield self.rows[subscriber, pattern]

    def excess(self, subscriber: str, pattern: str) -> str:
        """Return the name of the limit that one more pattern would exceed, "" if there is room."""
        mine = self.rows.get((subscriber, pattern))
        if mine is not None and mine.on:
            return ""
        if self._live >= PATTERNS_MAX:
            return "PATTERNS_MAX"
        if mine is None and self.ended >= ENDED_MAX:
            return "ENDED_MAX"
        return "CLIENT_PATTERNS_MAX" if self.of(subscriber) >= CLIENT_PATTERNS_MAX else ""


def split_patterns(body: Buffer) -> tuple[PatternRow, ...]:
    """Return the rows of a body.

    Raises:
        DecodeError: the body has another form, or more rows than a table may have.
    """
    return split_rows(body, read_pattern, PATTERNS_MAX + ENDED_MAX, "patterns")


def read_pattern(line: str) -> PatternRow:
    """Return the row of a line.

    Raises:
        DecodeError: the line is no row.
    """
    words = line.split(" ")
    if len(words) != 5 or not is_id(words[0]) or not is_topic(words[1]) or not is_pattern(words[1]):
        raise DecodeError(f"not a pattern: {line[:100]!r}")
    if words[3] not in {"0", "1"}:
        raise DecodeError(f"not a pattern: {line[:100]!r}")
    try:
        number, stamp = parse_number(words[2]), parse_number(words[4])
    except ValueError as error:
        raise DecodeError(str(error)) from None
    return PatternRow(words[0], words[1], number, words[3] == "1", stamp)
