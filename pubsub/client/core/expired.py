"""Separate messages with a time to live that has ended from the others (docs/explanation/ttl.md, TL2)."""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.client.core.message import RunSlice
from pubsub.protocol.time_to_live import is_over


def separated(pieces: Sequence[RunSlice], now: int) -> tuple[list[RunSlice], list[RunSlice]]:
    """Return the records to deliver, and those with a time to live that has ended, each in order.

    Args:
        now: the client's clock (microseconds since 1970).
    """
    live: list[RunSlice] = []
    expired: list[RunSlice] = []
    for piece in pieces:
        if not piece.run.headers:
            live.append(piece)
            continue
        start, before = piece.start, False
        for index in range(piece.start, piece.stop):
            over = is_over(piece.run.headers[index], piece.run.stamp, now)
            if over is not before:
                if start < index:
                    (expired if before else live).append(piece._replace(start=start, stop=index))
                start, before = index, over
        (expired if before else live).append(piece._replace(start=start))
    return live, expired
