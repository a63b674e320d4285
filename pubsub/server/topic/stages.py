"""Stages of sinks: rows that are on the disk and that no reader can see (docs/explanation/spark-exchange.md, *Sinks*).

A stage holds the rows that one attempt wrote of one batch, as fragments in the order of the rows. Each fragment is a
batch of rows as it arrived. Its bytes stay in their place in the store; publishing makes records that refer to them.

The rule is docs/explanation/spark-exchange.md, K8.
"""

from __future__ import annotations

from dataclasses import dataclass, field

StageKey = tuple[int, int, str]
"""Publisher (by its number in the store), batch, attempt."""


@dataclass(slots=True)
class Piece:
    """A fragment: one batch of staged rows.

    Attributes:
        id: number of its bytes in the store.
        first, count: its rows are [first, first + count) of its stage.
        size: bytes of its body.
    """

    id: int
    first: int
    count: int
    checksum: int
    size: int


@dataclass(slots=True)
class Stage:
    """The rows staged by one attempt.

    Attributes:
        number: its number in this store.
        heard: time of its last rows, microseconds since 1970.
        size: bytes of its fragments.
    """

    number: int
    publisher: int
    batch: int
    attempt: str
    heard: int
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0

    @property
    def key(self) -> StageKey:
        return self.publisher, self.batch, self.attempt

    @property
    def rows(self) -> int:
        """The number of its rows, which is also the number of the next row."""
        return self.pieces[-1].first + self.pieces[-1].count if self.pieces else 0

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.size += piece.size
