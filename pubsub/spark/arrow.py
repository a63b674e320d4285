"""Converts records to Arrow batches, and Arrow columns to put batches, without looking at single rows.

An answer with records holds a table of ends and the bytes, like an Arrow binary column. So the column is built over
the answer's own bytes. A sink's column goes the other way: its offsets, minus the first, are the batch's table of
ends. Values that are equal for a whole run are repeated by Arrow or by `array`, never row by row.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.errors import ConfigurationError, DecodeError, TooLarge
from pubsub.protocol import Status
from pubsub.protocol.batch import END_BYTES, HEADED, KEYED, Buffer, batch_size
from pubsub.protocol.headers import decode_headers, encode_headers
from pubsub.protocol.records import Tables, read_tables

_STAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_TYPES: Final[dict[str, tuple[str, pa.DataType]]] = {
    "topic": ("string", pa.string()),
    "log": ("string", pa.string()),
    "offset": ("bigint", pa.int64()),
    "message_id": ("string", pa.string()),
    "publisher": ("string", pa.string()),
    "counter": ("bigint", pa.int64()),
    "stamp": ("timestamp", _STAMP),
    "value": ("binary", pa.binary()),
    "key": ("binary", pa.binary()),
    "timestamp": ("timestamp", _STAMP),
    "headers": ("array<struct<key: string, value: binary>>", HEADERS_TYPE),
}
"""The columns that the source can have, with their types in SQL and in Arrow."""

COLUMNS: Final = tuple(name for name in _TYPES if name != "headers")
"""Columns of the source; `timestamp` is `stamp` under the name of Kafka's source."""


def schema_of(columns: Sequence[str]) -> str:
    """Return the schema of these columns as Spark's SQL."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in columns)


SCHEMA: Final = schema_of([name for name in COLUMNS if name != "timestamp"])
HEADED_SCHEMA: Final = f"{SCHEMA}, {schema_of(['headers'])}"
"""Columns of a pipeline's source, as of every earlier release, without and with those of headers."""

SOURCE_SCHEMA: Final = schema_of(COLUMNS)
HEADERS_SCHEMA: Final = schema_of((*COLUMNS, "headers"))
"""Columns of the source without and with the option includeHeaders, as in Kafka's connector."""


def check_schema(columns: Mapping[str, str]) -> tuple[str, ...]:
    """Check a schema that the user gave; return the names of its columns.

    Args:
        columns: types in SQL by name.

    Raises:
        ConfigurationError: a column does not exist, or has another type.
    """
    for name, kind in columns.items():
        if name not in _TYPES:
            raise ConfigurationError(f"the source has no column {name}; it has {', '.join(_TYPES)}")
        if kind.replace(" ", "") != _TYPES[name][0].replace(" ", ""):
            raise ConfigurationError(f"column {name} is {_TYPES[name][0]}, not {kind}; cast it in the query")
    return tuple(columns)


STAGE_ROWS: Final = 20_000
STAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum rows and bytes of one staged piece; a single row may exceed the bytes."""

_HEAD: Final = struct.Struct("<BBHI")


def record_batch(topic: str, status: Status, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Return the records of an answer as rows of the source, with these columns.

    Raises:
        DecodeError: the answer is malformed.
    """
    body = bytes(status.body)
    if crc32(body) != status.checksum:
        raise DecodeError("checksum does not match the records")
    try:
        rows = _Rows(topic, body, read_tables(body))
        arrays = [getattr(rows, name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, _TYPES[name][1]) for name in columns]))
    except (pa.ArrowInvalid, pa.ArrowIndexError, IndexError, OverflowError) as error:
        raise DecodeError(f"records that are not in order: {error}") from None


class _Rows:
    """The rows of an answer; each column is made when it is read."""

    def __init__(self, topic: str, body: bytes, tables: Tables) -> None:
        self._topic, self._body, self._tables = topic, body, tables
        self._offsets, counters, self._stamps, self._bases, _, self._sizes, self._logs, publishers = tables.columns
        if sum(self._sizes) != tables.records:
            raise DecodeError("runs do not add up to the records announced")
        if tables.origins:  # Delayed records belong to the publisher that put them.
            counters = tuple(put or own for (put, _), own in zip(tables.origins, counters, strict=True))
            publishers = tuple(by - 1 if by else own for (_, by), own in zip(tables.origins, publishers, strict=True))
        self._counters, self._publishers = counters, publishers
        self._ends = tuple(accumulate(self._sizes))

    def _repeated(self, values: pa.Array) -> pa.Array:
        """Repeat each run's value for all of its records."""
        if len(values) == self._tables.records:
            return values
        runs = pa.RunEndEncodedArray.from_arrays(pa.array(self._ends, pa.int32()), values)
        runs.validate(full=True)
        return pc.run_end_decode(runs)

    def _counted(self, firsts: tuple[int, ...]) -> pa.Array:
        """Count up from the first number of each run."""
        begins = (end - size for end, size in zip(self._ends, self._sizes, strict=True))
        ahead = array("q", [first - begin for first, begin in zip(firsts, begins, strict=True)])
        return pc.add(_places(self._tables.records), self._repeated(_integers(ahead)))

    def _numbers(self, values: tuple[int, ...]) -> pa.Array:
        return self._repeated(_integers(array("q", values)))

    def _named(self, names: Sequence[str], numbers: tuple[int, ...]) -> pa.Array:
        return self._repeated(pa.array(names, pa.string()).take(_integers(array("q", numbers))))

    @property
    def topic(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._topic, pa.string()), self._tables.records)

    @cached_property
    def log(self) -> pa.Array:
        return self._named(self._tables.logs, self._logs)

    @cached_property
    def offset(self) -> pa.Array:
        return self._counted(self._offsets)

    @property
    def message_id(self) -> pa.Array:
        return pc.binary_join_element_wise(self.log, self.offset.cast(pa.string()), ".")

    @property
    def publisher(self) -> pa.Array:
        return self._named(self._tables.publishers, self._publishers)

    @property
    def counter(self) -> pa.Array:
        return self._counted(self._counters)

    @cached_property
    def stamp(self) -> pa.Array:
        return self._numbers(self._stamps).cast(_STAMP)

    @property
    def timestamp(self) -> pa.Array:
        return self.stamp

    @property
    def value(self) -> pa.Array:
        return _values(self._body, self._tables, self._numbers(self._bases))

    @property
    def key(self) -> pa.Array:
        return _keys(self._body, self._tables)

    @property
    def headers(self) -> pa.Array:
        return _headers(self._body, self._tables)


@lru_cache(maxsize=1)
def _all_places(count: int) -> pa.Array:
    return _integers(array("q", range(count)))


def _places(count: int) -> pa.Array:
    """Return 0, 1, 2 and so on. An answer has no more records than the largest batch."""
    return _all_places(max(count, BATCH_RECORDS_MAX)).slice(0, count)


def _integers(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _values(body: bytes, tables: Tables, bases: pa.Array) -> pa.Array:
    table = pa.py_buffer(body[tables.ends_at : tables.data_at])  # A copy, because Arrow requires alignment.
    ends = pa.Array.from_buffers(pa.uint32(), tables.records, [None, table])
    shifted = pc.add(ends.cast(pa.int64()), bases).cast(pa.int32())
    begins = pa.concat_arrays([pa.array([0], pa.int32()), shifted])
    data = pa.py_buffer(body).slice(tables.data_at)
    values = pa.Array.from_buffers(pa.binary(), tables.records, [None, begins.buffers()[1], data])
    values.validate(full=True)
    return values


def _keys(body: bytes, tables: Tables) -> pa.Array:
    """Return each record's key; null for a record without one."""
    if not tables.keys_at:
        return pa.nulls(tables.records, pa.binary())
    keys = _metadata(body, tables.records, tables.keys_at, tables.keys_stop)
    return pc.if_else(pc.equal(pc.binary_length(keys), 0), pa.scalar(None, pa.binary()), keys)


def _headers(body: bytes, tables: Tables) -> pa.Array:
    """Return each record's headers; null for a record without any."""
    if not tables.headers_at:
        return pa.nulls(tables.records, HEADERS_TYPE)
    blocks = _metadata(body, tables.records, tables.headers_at, tables.data_at)
    found = [list(decode_headers(block.as_py()).items()) or None for block in blocks]
    rows = [None if pairs is None else [{"key": key, "value": value} for key, value in pairs] for pairs in found]
    return pa.array(rows, HEADERS_TYPE)


def _metadata(body: bytes, records: int, begin: int, stop: int) -> pa.Array:
    """Return the keys or headers of records; their table of ends comes just before `begin`."""
    table = pa.py_buffer(bytes(END_BYTES) + body[begin - END_BYTES * records : begin])
    values = pa.Array.from_buffers(pa.binary(), records, [None, table, pa.py_buffer(body[begin:stop])])
    values.validate(full=True)
    return values


class _Column:
    """A column of binary values without nulls, as a table of ends and bytes."""

    def __init__(self, values: pa.Array) -> None:
        _, offsets, data = values.buffers()
        self._begins = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
        self._data = memoryview(data or b"")

    def size(self, place: int, stop: int) -> int:
        """Return the bytes of the rows [place, stop)."""
        return int(self._begins[stop].as_py() - self._begins[place].as_py())

    def parts(self, place: int, stop: int) -> tuple[Buffer, Buffer]:
        """Return the ends of the rows [place, stop), counted from the first one's begin, and their bytes."""
        first = self._begins[place].as_py()
        ends = pc.subtract(self._begins.slice(place + 1, stop - place), pa.scalar(first, pa.int32()))
        table = memoryview(ends.buffers()[1])[4 * ends.offset : 4 * (ends.offset + stop - place)]
        return table, self._data[first : first + self.size(place, stop)]


def pieces(
    values: pa.Array, keys: pa.Array | None = None, headers: pa.Array | None = None
) -> Iterator[tuple[int, bytes]]:
    """Split a column of binary values into put batches; yield the number of records and the bytes of each.

    Args:
        keys: keys of the same rows; null and b"" mean no key.
        headers: headers of the same rows, from `headers_of`.

    Raises:
        TooLarge: a single value is larger than a message may be.
        ValueError: a value is null.
    """
    if values.null_count:
        raise ValueError(
            f"{values.null_count} of {len(values)} values are null; replace them, an empty value is allowed"
        )
    columns = [_Column(values)]
    metadata = [
        (flag, _Column(column.fill_null(b"")))
        for flag, column in ((KEYED, keys), (HEADED, headers))
        if column is not None and column.null_count < len(column)
    ]
    columns += [column for _, column in metadata]
    place = 0
    while place < len(values):
        stop = _stop(columns, place, len(values))
        held = [(flag, column) for flag, column in metadata if column.size(place, stop) > 0]
        parts = [part for column in (columns[0], *(column for _, column in held)) for part in column.parts(place, stop)]
        yield stop - place, b"".join((_HEAD.pack(1, sum(flag for flag, _ in held), 0, stop - place), *parts))
        place = stop


def _stop(columns: list[_Column], place: int, count: int) -> int:
    """Return the end of the piece that begins at a row."""

    def size(stop: int) -> int:
        return sum(column.size(place, stop) for column in columns)

    stop = min(count, place + min(STAGE_ROWS, BATCH_RECORDS_MAX))
    while stop > place + 1 and size(stop) > STAGE_BYTES:
        stop = place + (stop - place + 1) // 2
    whole = batch_size(stop - place, size(stop)) + END_BYTES * (stop - place) * (len(columns) - 1)
    if whole > BATCH_BYTES_MAX:
        raise TooLarge("message", whole, BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
    return stop


def values_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as binary values: bytes unchanged, text as UTF-8.

    Raises:
        ValueError: the column has another type.
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


def headers_of(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the column `headers` as encoded headers of each message; None if there is no such column.

    Raises:
        ValueError: it is not an array of (key, value), or a key is null or repeated within a message.
        InvalidName, TooLarge: a name is not allowed, or a message's headers are too large.
    """
    if "headers" not in batch.schema.names:
        return None
    column: Any = batch.column("headers")
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if not (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and {field.name for field in kind.value_type} == {"key", "value"}
    ):
        raise ValueError(f"column headers is {kind}; it must be array<struct<key: string, value: binary>>")
    return pa.array([_block(row) for row in column.to_pylist()], pa.binary())


def _block(row: list[dict[str, Any] | None] | None) -> bytes | None:
    if not row:
        return None
    found: dict[str, bytes] = {}
    for pair in row:
        key, value = (None, None) if pair is None else (pair["key"], pair["value"])
        if not isinstance(key, str) or key in found:
            raise ValueError(f"a header's key must be text and occur once in a message; {key!r} does not")
        found[key] = value.encode() if isinstance(value, str) else bytes(value or b"")
    return encode_headers(found)
