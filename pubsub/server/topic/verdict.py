"""The decision about a put batch: new, a duplicate, or too early (docs/explanation/put.md, P1 and P2)."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """The treatment of a batch."""

    TAKE = "take"
    DUPLICATE = "duplicate"
    GAP = "gap"


def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
    """Decide whether a batch is new, a duplicate, or too early.

    Args:
        last: the highest counter of the publisher that is held.
        counter, count: of the batch.
        previous: the publisher's counter before the batch.
    """
    if counter + count - 1 <= last:
        return Verdict.DUPLICATE
    # If `last` lies inside the batch, it was cut differently before. The client gets a gap and resolves that.
    if previous > last or counter <= last:
        return Verdict.GAP
    return Verdict.TAKE
