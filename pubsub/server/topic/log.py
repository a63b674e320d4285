"""A log of a topic, as its server holds it (docs/explanation/logs.md)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Log:
    """A sequence of records with one writer; its offsets begin at 1 and are never used twice.

    Attributes:
        number: the log's number in this store.
        id: a random ID of 16 hex digits, unique in all stores.
        low: the first offset that is still stored.
        end: one above the last offset.
        total: bytes of all batches ever appended.
        unknown: number of offsets before `end`, from `low` on, that count as lost because a restored copy ended there.
        expired: the offset below which all batches are known to be too old for delivery, in memory only.
        bare: the offset below which all batches are known to have lost their bytes, in memory only; 0: not looked up.
    """

    number: int
    id: str
    low: int = 1
    end: int = 1
    total: int = 0
    unknown: int = 0
    bare: int = field(default=0, compare=False)
    expired: int = field(default=0, compare=False)

    def begin_at(self, low: int) -> None:
        """Raise `low`, because no offset below it is stored any more.

        `low` may then lie among the offsets that count as lost, since a subscriber acknowledges offsets received before
        the copy was restored. `unknown` counts only the offsets that are left, as it does after a load from the store.
        """
        self.low = max(self.low, low)
        self.unknown = min(self.unknown, self.end - self.low)
