"""The deletions of topics, as proxies and servers keep them, and the form in which they tell each other.

A row is the number of the last deletion of one name. The higher number counts, so rows can be told late, twice and in
any order, and all tables become equal. Two tables with one digest have the same rows.

    topic number      one line for each row, separated by line feeds
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import is_topic, parse_number
from pubsub.protocol.rows import Digest, split_rows

DELETED_MAX: Final = 10_000
"""Limit of the names that were ever deleted. A row stays, so that no late copy of the topic comes back."""


class Deletion(NamedTuple):
    """The last deletion of a name.

    Attributes:
        number: rises with each deletion of the name (microseconds since 1970, or more).
    """

    topic: str
    number: int

    def line(self) -> str:
        """Return the row as text."""
        return f"{self.topic} {self.number}"


class DeletionTable:
    """Deletions by topic.

    Args:
        rows: the rows at the beginning.

    Attributes:
        numbers: the number of the last deletion, by topic.
    """

    def __init__(self, rows: Iterable[Deletion] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self._digest = Digest()
        for row in rows:
            self.admit(row)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def digest(self) -> str:
        """16 hex digits that depend on the rows alone."""
        return str(self._digest)

    @property
    def rows(self) -> tuple[Deletion, ...]:
        return tuple(Deletion(topic, number) for topic, number in self.numbers.items())

    def number(self, topic: str) -> int:
        """Return the number of the last deletion of a name; 0: it was never deleted."""
        return self.numbers.get(topic, 0)

    def admit(self, row: Deletion) -> bool:
        """Take in a row; return True if it changed the table."""
        if row.number <= self.number(row.topic):
            return False
        self.replace(row.topic, row.number)
        return True

    def replace(self, topic: str, number: int) -> None:
        """Set a row without a comparison, or remove it with number 0, to undo a change."""
        for one in (self.numbers.pop(topic, 0), number):
            if one:
                self._digest.toggle(Deletion(topic, one))
        if number:
            self.numbers[topic] = number

    def has_room_for(self, topic: str) -> bool:
        """Return True if the limit allows a deletion of this name."""
        return topic in self.numbers or len(self.numbers) < DELETED_MAX


def split_deletions(body: Buffer) -> tuple[Deletion, ...]:
    """Return the rows of a body.

    Raises:
        DecodeError: the body has another form, or more rows than a table may have.
    """
    return split_rows(body, read_deletion, DELETED_MAX, "deletions")


def read_deletion(line: str) -> Deletion:
    """Return the row of a line.

    Raises:
        DecodeError: the line is no row.
    """
    topic, _, number = line.partition(" ")
    try:
        row = Deletion(topic, parse_number(number))
    except ValueError as error:
        raise DecodeError(str(error)) from None
    if not is_topic(topic) or not row.number:
        raise DecodeError(f"not a deletion: {line[:100]!r}")
    return row
