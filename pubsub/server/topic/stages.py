"""What a sink has staged: rows that are on the disk and that nobody sees (docs/architecture.md, *Sinks*).

A stage is what one attempt wrote of one batch: pieces, each a batch of rows as it came, in the order of their rows. Its
bytes stay where they were staged; publishing makes records that refer to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

StageKey = tuple[int, int, str]
"""Publisher (by its number in the store), batch, attempt."""


@dataclass(slots=True)
class Piece:
    """A batch of staged rows.

    Attributes:
        id: of its bytes in the store.
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
    """What one attempt has staged.

    Attributes:
        number: its number in this store.
        heard: when rows of it last came, microseconds since 1970.
        size: bytes of its pieces.
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
        """What it is known by."""
        return self.publisher, self.batch, self.attempt

    @property
    def rows(self) -> int:
        """How many rows it has; the next one's number."""
        return self.pieces[-1].first + self.pieces[-1].count if self.pieces else 0

    def add(self, piece: Piece) -> None:
        """Take the next piece."""
        self.pieces.append(piece)
        self.size += piece.size
