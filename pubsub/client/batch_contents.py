"""Split the contents of a put (bodies, keys and headers) into batches within the limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.protocol import batch_size
from pubsub.protocol.batch import DUE_BYTES, END_BYTES


class BatchContents(NamedTuple):
    """The contents of one batch.

    Attributes:
        bodies: one for each message.
        keys: empty, or one for each message, b"" if it has none.
        headers: empty, or one for each message, as encoded by `encode_headers`.
        due: the time of the delivery (microseconds since 1970); 0: at once.
    """

    bodies: Sequence[bytes]
    keys: Sequence[bytes] = ()
    headers: Sequence[bytes] = ()
    due: int = 0


def split(contents: BatchContents) -> list[BatchContents]:
    """Split messages into batches within the limits; a batch of a single message may exceed them."""
    bodies, keys, headers, _ = contents
    columns, tables, total = [bodies], 0, sum(map(len, bodies))
    for column in (keys, headers) if keys or headers else ():
        if column:
            columns.append(column)
            tables += END_BYTES
            total += sum(map(len, column)) + END_BYTES * len(bodies)
    room = BATCH_BYTES_MAX - (DUE_BYTES if contents.due else 0)
    if len(bodies) <= BATCH_RECORDS_MAX and batch_size(len(bodies), total) <= room:
        return [contents] if bodies else []
    out: list[BatchContents] = []
    start = size = 0
    for index, lengths in enumerate(zip(*[map(len, column) for column in columns], strict=True)):
        its = sum(lengths) + tables
        size += its
        if index > start and (index - start == BATCH_RECORDS_MAX or batch_size(index - start + 1, size) > room):
            out.append(_part(contents, start, index))
            start, size = index, its
    out.append(_part(contents, start, len(bodies)))
    return out


def _part(contents: BatchContents, start: int, stop: int) -> BatchContents:
    bodies, keys, headers, due = contents
    return BatchContents(bodies[start:stop], keys[start:stop], headers[start:stop], due)
