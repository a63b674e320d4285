"""The train: several rows of one chain in one PUT (docs/explanation/batches.md, *Trains*).

    PUT … !rows=N     counter, previous: of the first row; count: records of all rows; crc: CRC-32 of the table
    N x (counter 8 bytes | previous 8 | count 4 | checksum 4 | size 4), little-endian | N batches, one after the other

Each row is a put with its own counter, previous, count and checksum. Its batch is unchanged: a batch is never cut or
joined. A train that contradicts its own header or table is refused completely. Each batch is checked, and each row
answered, by itself, as with single puts.

The rule is docs/explanation/batches.md, B9.
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
"""Bytes of a row in the table of a train."""


class Row(Protocol):
    """A row in the table of a train.

    Attributes:
        counter, previous, count, checksum: as in `Put`.
        size: bytes of its batch.
    """

    counter: int
    previous: int
    count: int
    checksum: int
    size: int


def join_table(rows: Sequence[Row]) -> bytes:
    """Return the table of a train, which precedes the batches of its rows."""
    return b"".join([_ROW.pack(row.counter, row.previous, row.count, row.checksum, row.size) for row in rows])


def split_train(train: Put) -> list[Put]:
    """Return the rows of a train, each as a put of its own.

    Args:
        train: a decoded put with `rows`.

    Raises:
        DecodeError: the train contradicts its header or table, or its rows are not one chain.
    """
    if train.sole_owner:
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
        raise DecodeError(f"train of {len(view)} bytes with batches that end at {start}")
    first = rows[0]
    if (train.counter, train.previous, train.count) != (first.counter, first.previous, records):
        raise DecodeError("header of a train does not match its table")
    # `avoid` claims that all puts before a row were acknowledged. Only the first row may claim that.
    first.avoid = train.avoid
    return rows
