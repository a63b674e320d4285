"""The body of an answer with records: runs of stored batches, joined.

A run is one put batch, or a part of it: consecutive offsets of one log, consecutive counters of one publisher, one
timestamp. The server copies the tables of ends and the bytes of the batches as they are stored. So its cost is per
batch, whatever the number of records, and ten thousand small puts become one body:

    format, flags, reserved | runs, records, logs, publishers (4 bytes each) | bytes of the name table (4)
    names: log IDs, then publishers, each ended by a line feed
    columns, `runs` entries each: offset 8, counter 8, stamp 8, base 8 (signed), begin 4, records 4, log 4, publisher 4
    if the flag DELAYED is set, two more columns: counter 8, publisher 4, under which the run was put; 0: the same ones
    ends: `records` entries of 4 bytes          | the records' bytes
    between the two if the flag KEYED is set: ends of keys, `records` entries of 4 bytes | the keys' bytes
    and after that if the flag HEADED is set: ends of headers, as many entries | the headers' bytes (`headers`)

All numbers are little-endian. Record k of a run ends at base + end[k] in the bytes and begins at the end of the record
before. The first record of a run begins at `begin`. (`base` is negative if a run starts inside a stored batch.) Keys
and headers are rare, so their ends have no base: key k is keys[end[k-1]:end[k]], and an empty one is none. A reader
that does not know a flag refuses the body, so that no subscriber receives a message without its headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.base.limits import BATCH_RECORDS_MAX, BODY_BYTES_MAX, NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import (
    DELAYED,
    END_BYTES,
    HEAD_BYTES,
    HEADED,
    KEYED,
    Buffer,
    Table,
    batch_tables,
    data_start,
    origin_of,
)
from pubsub.protocol.names import Position, is_hex, is_publisher

FORMAT: Final = 2
_HEAD: Final = struct.Struct("<BBHIIIII")
_FLAGS_AND_COUNT: Final = struct.Struct("<xBxxI")
"""Flags and count in the head of a batch."""


@dataclass(slots=True)
class Run:
    """Records of one put batch that are delivered together.

    Attributes:
        log, offset: the position of the first record.
        publisher, counter: the publisher, and the counter of the first record; the others follow by one.
        stamp: the time at which the server accepted the batch, in microseconds since 1970.
        ends: the end of each record in `data` of the answer.
        begin: the start of the first record there.
        keys: one for each record; empty if no record of the answer has a key.
        headers: the headers of each record as bytes (`decode_headers`); empty if no record of the answer has any.
        put_by, put_as: for delayed records, the publisher that put them, and the counter of the first one; "" and 0 for
            others. `publisher` and `counter` are then those of the log's delayed records, which recognise repeats.
    """

    log: str
    offset: int
    publisher: str
    counter: int
    stamp: int
    begin: int
    ends: Sequence[int]
    keys: Sequence[bytes] = ()
    headers: Sequence[bytes] = ()
    put_by: str = ""
    put_as: int = 0

    @property
    def last(self) -> Position:
        return self.log, self.offset + len(self.ends) - 1


class _Metadata:
    """The keys, or the headers, of the joined records.

    Attributes:
        size: their bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[int, int, list[int], bytes]] = []

    def add(self, record: int, batch: Buffer, table: Table, first: int, stop: int) -> None:
        """Add those of records [first, stop) of a batch; the first of them is record `record` of the answer."""
        ends, start = table
        if not ends:
            return
        begin = ends[first - 1] if first else 0
        values = bytes(batch[start + begin : start + ends[stop - 1]])
        shift = self.size - begin
        self._parts.append((record, self.size, [end + shift for end in ends[first:stop]], values))
        self.size += len(values)

    def joined(self, records: int) -> list[bytes]:
        """Return the table of ends for all records, and the bytes; an empty list if no record has any."""
        if not self.size:
            return []
        ends: list[int] = []
        for record, before, own, _ in self._parts:
            ends += [before] * (record - len(ends))
            ends += own
        ends += [self.size] * (records - len(ends))
        return [struct.pack(f"<{records}I", *ends), *(values for *_, values in self._parts)]


class RecordsBuilder:
    """Joins stored batches, or parts of them, into one body."""

    def __init__(self) -> None:
        self.records = 0
        self.data_bytes = 0
        self._logs: dict[str, int] = {}
        self._publishers: dict[str, int] = {}
        self._columns: tuple[list[int], ...] = tuple([] for _ in range(8))
        self._ends: list[Buffer] = []
        self._data: list[Buffer] = []
        self._keys, self._headers = _Metadata(), _Metadata()
        self._origins: dict[int, tuple[int, int]] = {}
        """By run, the counter under which it was put, and the number of the publisher plus 1."""

    @property
    def size(self) -> int:
        """Bytes of the records, their keys and their headers."""
        return self.data_bytes + self._keys.size + self._headers.size

    def add(
        self, log: str, offset: int, publisher: str, counter: int, stamp: int, batch: Buffer, first: int, stop: int
    ) -> None:
        """Append records [first, stop) of a stored batch.

        Args:
            log, offset, publisher, counter: of record `first`.
            stamp: of the batch, microseconds since 1970.
            batch: the whole batch, checked before.
            first, stop: record numbers in the batch, from 0.
        """
        flags, held = _FLAGS_AND_COUNT.unpack_from(batch)
        table = memoryview(batch)
        start = data_start(held)
        skipped = struct.unpack_from("<I", batch, HEAD_BYTES + END_BYTES * (first - 1))[0] if first else 0
        (upto,) = struct.unpack_from("<I", batch, HEAD_BYTES + END_BYTES * (stop - 1))
        begin = self.data_bytes
        if flags & DELAYED and (origin := origin_of(batch)) is not None:
            name, its = origin
            number = self._publishers.setdefault(name, len(self._publishers)) + 1
            self._origins[len(self._columns[0])] = its + first, number
        row = (
            offset,
            counter,
            stamp,
            begin - skipped,
            begin,
            stop - first,
            self._logs.setdefault(log, len(self._logs)),
            self._publishers.setdefault(publisher, len(self._publishers)),
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._ends.append(table[HEAD_BYTES + END_BYTES * first : HEAD_BYTES + END_BYTES * stop])
        self._data.append(table[start + skipped : start + upto])
        if flags:
            keys, headers = batch_tables(batch)
            self._keys.add(self.records, batch, keys, first, stop)
            self._headers.add(self.records, batch, headers, first, stop)
        self.records += stop - first
        self.data_bytes += upto - skipped

    def build(self) -> bytes:
        """Return the body."""
        keys, headers = self._keys.joined(self.records), self._headers.joined(self.records)
        names = "".join(f"{name}\n" for name in (*self._logs, *self._publishers)).encode("ascii")
        runs = len(self._columns[0])
        flags = (KEYED if keys else 0) | (HEADED if headers else 0) | (DELAYED if self._origins else 0)
        logs, publishers = len(self._logs), len(self._publishers)
        head = _HEAD.pack(FORMAT, flags, 0, runs, self.records, logs, publishers, len(names))
        formats = ("Q", "Q", "Q", "q", "I", "I", "I", "I")
        columns = [struct.pack(f"<{runs}{f}", *c) for f, c in zip(formats, self._columns, strict=True)]
        if self._origins:
            origins = [self._origins.get(run, (0, 0)) for run in range(runs)]
            columns += [struct.pack(f"<{runs}{f}", *c) for f, c in zip("QI", zip(*origins, strict=True), strict=True)]
        return b"".join((head, names, *columns, *self._ends, *keys, *headers, *self._data))


class Tables(NamedTuple):
    """The tables in front of the records' bytes in a body.

    Attributes:
        records: the number of records.
        logs, publishers: the names that the columns refer to.
        columns: for each run its offset, counter, stamp, base, begin, records, log and publisher.
        ends_at: start of the table of ends in the body.
        data_at: start of the records' bytes.
        keys_at, keys_stop: start and end of the keys' bytes, after the table of their ends; 0: there are none.
        headers_at: start of the headers' bytes, which end at `data_at`; 0: there are none.
        origins: for each run, the counter under which it was put, and the publisher plus 1; empty: no run was delayed.
    """

    records: int
    logs: list[str]
    publishers: list[str]
    columns: list[tuple[int, ...]]
    ends_at: int
    data_at: int
    keys_at: int = 0
    keys_stop: int = 0
    headers_at: int = 0
    origins: Sequence[tuple[int, int]] = ()


def read_tables(body: bytes) -> Tables:
    """Return the tables of a body. The reader has to check that they fit together.

    Raises:
        DecodeError: it is no body with records.
    """
    if not _HEAD.size <= len(body) <= BODY_BYTES_MAX:
        raise DecodeError(f"records in {len(body)} bytes")
    version, flags, reserved, runs, count, logs, publishers, name_bytes = _HEAD.unpack_from(body)
    if version != FORMAT or flags & ~(KEYED | HEADED | DELAYED) or reserved:
        raise DecodeError(f"records format {version} with flags {flags:#x} is not known")
    if not (
        0 < runs <= count <= BATCH_RECORDS_MAX
        and 0 < logs <= runs
        and 0 < publishers <= runs * (2 if flags & DELAYED else 1)
    ):
        raise DecodeError(f"{count} records in {runs} runs")
    place = _HEAD.size + name_bytes
    ends_at = place + (60 if flags & DELAYED else 48) * runs
    data_at = ends_at + END_BYTES * count
    keys_at = keys_stop = headers_at = 0
    if flags & KEYED:
        keys_at, data_at = _metadata(body, data_at, count)
        keys_stop = data_at
    if flags & HEADED:
        headers_at, data_at = _metadata(body, data_at, count)
    if data_at > len(body):
        raise DecodeError("records shorter than their tables")
    names = _names(body[_HEAD.size : place], logs, publishers)
    columns = []
    for code, width in (("Q", 8), ("Q", 8), ("Q", 8), ("q", 8), ("I", 4), ("I", 4), ("I", 4), ("I", 4)):
        columns.append(struct.unpack_from(f"<{runs}{code}", body, place))
        place += width * runs
    origins: list[tuple[int, int]] = []
    if flags & DELAYED:
        counters = struct.unpack_from(f"<{runs}Q", body, place)
        origins = list(zip(counters, struct.unpack_from(f"<{runs}I", body, place + 8 * runs), strict=True))
    return Tables(count, names[:logs], names[logs:], columns, ends_at, data_at, keys_at, keys_stop, headers_at, origins)


def _metadata(body: bytes, place: int, count: int) -> tuple[int, int]:
    """Return start and end of the bytes after the table of ends at `place`."""
    begin = place + END_BYTES * count
    return begin, begin + (struct.unpack_from("<I", body, begin - END_BYTES)[0] if begin <= len(body) else 0)


def _names(raw: bytes, logs: int, publishers: int) -> list[str]:
    try:
        names = raw.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise DecodeError("names of records are not ASCII") from None
    if names.pop() != "" or len(names) != logs + publishers:
        raise DecodeError("table of names does not hold what it announces")
    for name in names[:logs]:
        if not is_hex(name):
            raise DecodeError(f"not a log ID: {name[:40]!r}")
    for name in names[logs:]:
        check_publisher(name)
    return names


class Records:
    """The decoded body of an answer with records.

    Args:
        body: the bytes.

    Attributes:
        count, size: the number of records, and their bytes.
        data: the body itself. To cut off its tables would copy all records once more.
        runs: the records; their ends are places in `data`.

    Raises:
        DecodeError: the bytes are no such body.
    """

    __slots__ = ("count", "data", "runs", "size")

    def __init__(self, body: bytes) -> None:
        tables = read_tables(body)
        self.count, self.size, self.data = tables.records, len(body) - tables.data_at, body
        ends = struct.unpack_from(f"<{tables.records}I", body, tables.ends_at)
        self.runs = self._split(tables, ends)
        for run, (counter, number) in zip(self.runs, tables.origins, strict=False):
            if number > len(tables.publishers) or counter > NUMBER_MAX - len(run.ends):
                raise DecodeError("a run of delayed records points outside its tables")
            if number:
                run.put_by, run.put_as = tables.publishers[number - 1], counter
        if tables.keys_at:
            for run, values in self._metadata(body, tables.keys_at, tables.keys_stop, "keys"):
                run.keys = values
        if tables.headers_at:
            for run, values in self._metadata(body, tables.headers_at, tables.data_at, "headers"):
                run.headers = values

    def _split(self, tables: Tables, ends: tuple[int, ...]) -> list[Run]:
        out: list[Run] = []
        logs, publishers, start = tables.logs, tables.publishers, tables.data_at
        place, expected, total = 0, start, len(self.data)
        for offset, counter, stamp, base, first, records, log, publisher in zip(*tables.columns, strict=True):
            stop = place + records
            if not records or stop > self.count or log >= len(logs) or publisher >= len(publishers):
                raise DecodeError("a run of records points outside its tables")
            if max(offset, counter, stamp) > NUMBER_MAX - records:
                raise DecodeError("a run's numbers are above 2^63-1")
            begin, shift = start + first, start + base
            own = [shift + end for end in ends[place:stop]]
            if begin != expected or own[0] < begin or own[-1] > total or (records > 1 and own != sorted(own)):
                raise DecodeError("a run of records is not in order")
            expected = own[-1]
            out.append(Run(logs[log], offset, publishers[publisher], counter, stamp, begin, own))
            place = stop
        if place != self.count or expected != total:
            raise DecodeError("runs do not add up to the records announced")
        return out

    def _metadata(self, body: bytes, begin: int, stop: int, what: str) -> Iterator[tuple[Run, list[bytes]]]:
        """Yield each run with the keys, or headers, of its records."""
        ends = struct.unpack_from(f"<{self.count}I", body, begin - END_BYTES * self.count)
        if list(ends) != sorted(ends):
            raise DecodeError(f"table of {what} is not in order")
        data = body[begin:stop]
        values = [data[a:b] for a, b in zip((0, *ends), ends, strict=False)]
        place = 0
        for run in self.runs:
            yield run, values[place : place + len(run.ends)]
            place += len(run.ends)

    def bodies(self) -> Iterator[bytes]:
        """Yield every record's bytes, in order."""
        data = self.data
        for run in self.runs:
            begin = run.begin
            for end in run.ends:
                yield data[begin:end]
                begin = end


def check_publisher(name: str) -> str:
    """Return a valid publisher: `client ID/store ID` (docs/explanation/numbers.md, N3).

    Raises:
        DecodeError: it is none.
    """
    if not is_publisher(name):
        raise DecodeError(f"not a publisher: {name[:90]!r}")
    return name
