"""The train: several rows of one chain in one PUT (docs/architecture.md, *Trains*).

    PUT … !rows=N     counter, previous: of the first row; count: records of all rows; crc: CRC-32 of the table
    N x (counter 8 bytes | previous 8 | count 4 | checksum 4 | size 4), little-endian | N batches, one after the other

Each row is the put that it would be alone, with its own counter, previous, count and checksum, and its batch lies
there as it was made: a batch is never cut or joined. A message that lies about itself is refused whole. Whether a
row's batch is sound, and what becomes of the row, is found out row by row, as with single puts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Protocol
from zlib import crc32

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX, TRAIN_BYTES_MAX, TRAIN_ROWS_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.messages import Put

_ROW: Final = struct.Struct("<QQIII")
ROW_BYTES: Final = _ROW.size
"""What a row takes in a train besides its batch."""


class Row(Protocol):
    """What a train tells of a row besides its batch.

    Attributes:
        counter, previous, count, checksum: as of `Put`.
        size: of its batch in bytes.
    """

    counter: int
    previous: int
    count: int
    checksum: int
    size: int


def join_table(rows: Sequence[Row]) -> bytes:
    """The table of a train, which stands before the batches of its rows."""
    return b"".join([_ROW.pack(row.counter, row.previous, row.count, row.checksum, row.size) for row in rows])


def split_train(train: Put) -> list[Put]:
    """The rows of a train, each as a put of its own that is answered with the others.

    Args:
        train: as decoded, with its `rows`.

    Raises:
        DecodeError: it says something of itself that is not so, or its rows cannot be of one chain.
    """
    if train.whole:
        raise DecodeError("a train is marked whole")
    if len(train.body) > TRAIN_BYTES_MAX or not 0 < train.rows <= TRAIN_ROWS_MAX:
        raise DecodeError(f"train of {train.rows} rows and {len(train.body)} bytes")
    start = ROW_BYTES * train.rows
    view = memoryview(train.body)
    if len(view) < start or crc32(view[:start]) != train.checksum:
        raise DecodeError("checksum does not match the table of a train")
    rows, records, last = [], 0, 0
    for counter, previous, count, checksum, size in _ROW.iter_unpack(view[:start]):
        if counter <= last or previous >= counter:
            raise DecodeError(f"row {counter} of a train comes after {max(last, previous)}")
        last = counter + count - 1
        if not 0 < count <= BATCH_RECORDS_MAX or last >= NUMBER_MAX:
            raise DecodeError(f"row of {count} records from {counter} in a train")
        records += count
        body = view[start : start + size]
        start += size
        row = Put(train.sender, train.topic, counter, train.publisher, count, previous, checksum, log=train.log)
        row.body = body
        rows.append(row)
    if start != len(view):
        raise DecodeError(f"train of {len(view)} bytes whose batches end at {start}")
    first = rows[0]
    if (train.counter, train.previous, train.count) != (first.counter, first.previous, records):
        raise DecodeError("header of a train does not match its table")
    first.avoid = train.avoid  # Only of the first it is said that all before it was acknowledged.
    return rows
