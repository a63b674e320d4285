"""Records as Arrow batches, and Arrow columns as put batches, without looking at a row.

An answer with records holds a table of ends and the bytes, which is what an Arrow binary column is made of: it is
built over the answer's own bytes. A sink's column goes the other way: its offsets, less the first, are a batch's table
of ends. What is the same for a whole run is repeated by Arrow or by `array`, never row by row.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from pubsub.errors import DecodeError, TooLarge
from pubsub.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.protocol import Status
from pubsub.protocol.batch import batch_size
from pubsub.protocol.records import Tables, read_tables

SCHEMA: Final = "topic string, log string, offset bigint, message_id string, publisher string, counter bigint, " + (
    "stamp timestamp, value binary"
)
"""The source's columns."""

ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("log", pa.string()),
        ("offset", pa.int64()),
        ("message_id", pa.string()),
        ("publisher", pa.string()),
        ("counter", pa.int64()),
        ("stamp", pa.timestamp("us", tz="UTC")),
        ("value", pa.binary()),
    ]
)

STAGE_ROWS: Final = 20_000
STAGE_BYTES: Final = 4 * 1024 * 1024
"""Rows and bytes of one staged piece, at most; one row always fits."""

_HEAD: Final = struct.Struct("<BBHI")


def record_batch(topic: str, status: Status) -> pa.RecordBatch:
    """The records of an answer, as rows of the source.

    Raises:
        DecodeError: the answer is not what it says.
    """
    body = bytes(status.body)
    if crc32(body) != status.checksum:
        raise DecodeError("checksum does not match the records")
    tables = read_tables(body)
    try:
        return _batch(topic, body, tables)
    except (pa.ArrowInvalid, pa.ArrowIndexError, IndexError, OverflowError) as error:
        raise DecodeError(f"records that are not in order: {error}") from None


def _batch(topic: str, body: bytes, tables: Tables) -> pa.RecordBatch:
    offsets, counters, stamps, bases, _, sizes, logs, publishers = tables.columns
    if sum(sizes) != tables.records:
        raise DecodeError("runs do not add up to the records announced")
    offset, counter = array("q"), array("q")
    for first, number, size in zip(offsets, counters, sizes, strict=True):
        offset.extend(range(first, first + size))
        counter.extend(range(number, number + size))
    rows = _row_of_run(sizes)
    log = pa.array(tables.logs, pa.string()).take(_repeated(logs, rows))
    offset_column = _integers(offset)
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), tables.records),
        log,
        offset_column,
        pc.binary_join_element_wise(log, offset_column.cast(pa.string()), "."),
        pa.array(tables.publishers, pa.string()).take(_repeated(publishers, rows)),
        _integers(counter),
        _repeated(stamps, rows).cast(ARROW_SCHEMA.field("stamp").type),
        _values(body, tables, _repeated(bases, rows)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _row_of_run(sizes: tuple[int, ...]) -> pa.Array | None:
    """For each record the index of its run; None where there is one run for each record."""
    if len(sizes) == sum(sizes):
        return None
    out = array("q")
    for index, size in enumerate(sizes):
        out.extend([index] * size)
    return _integers(out)


def _repeated(values: tuple[int, ...], rows: pa.Array | None) -> pa.Array:
    """A run's value for each of its records."""
    column = _integers(array("q", values))
    return column if rows is None else column.take(rows)


def _integers(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _values(body: bytes, tables: Tables, bases: pa.Array) -> pa.Array:
    table = pa.py_buffer(body[tables.ends_at : tables.data_at])  # A copy, since Arrow wants it aligned.
    ends = pa.Array.from_buffers(pa.uint32(), tables.records, [None, table])
    shifted = pc.add(ends.cast(pa.int64()), bases).cast(pa.int32())
    begins = pa.concat_arrays([pa.array([0], pa.int32()), shifted])
    data = pa.py_buffer(body).slice(tables.data_at)
    values = pa.Array.from_buffers(pa.binary(), tables.records, [None, begins.buffers()[1], data])
    values.validate(full=True)
    return values


def pieces(column: pa.Array) -> Iterator[tuple[int, bytes]]:
    """A column of binary values as put batches, each with its number of records.

    Raises:
        TooLarge: one value alone is.
        ValueError: one is null.
    """
    if column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} values are null; a message is bytes, if only none")
    begins = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset)
    data = memoryview(column.buffers()[2] or b"")
    place = 0
    while place < len(column):
        stop = _stop(begins, place, len(column))
        first = begins[place].as_py()
        ends = pc.subtract(begins.slice(place + 1, stop - place), pa.scalar(first, pa.int32()))
        table = memoryview(ends.buffers()[1])[4 * ends.offset : 4 * (ends.offset + stop - place)]
        yield stop - place, b"".join((_HEAD.pack(1, 0, 0, stop - place), table, data[first : begins[stop].as_py()]))
        place = stop


def _stop(begins: pa.Array, place: int, count: int) -> int:
    """Where the piece that begins at a row ends."""
    stop = min(count, place + min(STAGE_ROWS, BATCH_RECORDS_MAX))
    first = begins[place].as_py()
    while stop > place + 1 and begins[stop].as_py() - first > STAGE_BYTES:
        stop = place + (stop - place + 1) // 2
    size = batch_size(stop - place, begins[stop].as_py() - first)
    if size > BATCH_BYTES_MAX:
        raise TooLarge("message", size, BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
    return stop


def values_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column as binary values: bytes as they are, text as UTF-8.

    Raises:
        ValueError: it is neither.
    """
    column: Any = batch.column(name)
    if pa.types.is_binary(column.type):
        return column
    if (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_large_binary(column.type)
    ):
        return column.cast(pa.binary())
    raise ValueError(f"column {name} is {column.type}; it must be binary or string")
