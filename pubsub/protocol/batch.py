"""The put batch: one body that holds many records, built by one join and forwarded untouched.

    format 1 byte | flags 1 byte | reserved 2 bytes | count 4 bytes | count x end offset (4 bytes) | the records' bytes
    where the flag KEYED is set, behind it: count x end offset of a key (4 bytes) | the keys' bytes
    where the flag HEADED is set, behind that: count x end offset of a message's headers (4 bytes) | the headers' bytes

All little-endian. An end is counted from the start of the records' bytes, so record k is data[end[k-1]:end[k]]; keys
and headers (`headers`) likewise, and one of no bytes is none. A flag that is not known refuses the batch. Its CRC-32
rides in the message's header (docs/architecture.md, *Batches*).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final
from zlib import crc32

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.errors import DecodeError, TooLarge
from pubsub.protocol.headers import decode_headers

Buffer = bytes | memoryview

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BBHI")
HEAD_BYTES: Final = _HEAD.size
END_BYTES: Final = 4

RECORD_BYTES_MAX: Final = BATCH_BYTES_MAX - HEAD_BYTES - END_BYTES
"""Bytes of the largest message: it fills a batch."""
KEYED: Final = 1
"""The flag of a batch whose records have keys."""
HEADED: Final = 2
"""The flag of a batch whose records have headers."""

Table = tuple[tuple[int, ...], int]
"""Where each key, or each record's headers, end, and where the first begins in the batch; () and 0: there are none."""

_NONE: Final[Table] = ((), 0)


def batch_size(records: int, data_bytes: int) -> int:
    """Bytes of a batch of so many records with so many bytes in all."""
    return HEAD_BYTES + END_BYTES * records + data_bytes


def encode_batch(bodies: Sequence[bytes], keys: Sequence[bytes] = (), headers: Sequence[bytes] = ()) -> bytes:
    """One batch of these records.

    Args:
        bodies: 1 to BATCH_RECORDS_MAX records, together at most BATCH_BYTES_MAX bytes with their table.
        keys: none, or one for each record.
        headers: none, or each record's, as `encode_headers` writes them.

    Raises:
        TooLarge: there are more, or none.
    """
    count = len(bodies)
    if not 0 < count <= BATCH_RECORDS_MAX:
        raise TooLarge("number of records in a batch", count, BATCH_RECORDS_MAX, "BATCH_RECORDS_MAX")
    if count == 1:
        ends: Sequence[int] = (len(bodies[0]),)
    else:
        ends = list(accumulate(map(len, bodies)))
    size, flags = batch_size(count, ends[-1]), 0
    behind: Sequence[bytes] = ()
    if keys or headers:
        flags, behind = _tables_behind(keys, headers, count)
        size += sum(map(len, behind))
    if size > BATCH_BYTES_MAX:
        raise TooLarge("batch", size, BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
    return b"".join((_HEAD.pack(FORMAT, flags, 0, count), struct.pack(f"<{count}I", *ends), *bodies, *behind))


def _tables_behind(keys: Sequence[bytes], headers: Sequence[bytes], count: int) -> tuple[int, Sequence[bytes]]:
    """The flags of what the records have, and what stands behind them for it."""
    flags = 0
    parts: list[bytes] = []
    for flag, values in ((KEYED, keys), (HEADED, headers)):
        if any(values):
            flags |= flag
            parts += (struct.pack(f"<{count}I", *accumulate(map(len, values))), *values)
    return flags, parts


def batch_count(body: Buffer) -> int:
    """How many records a batch says it holds; of at least HEAD_BYTES."""
    (count,) = struct.unpack_from("<I", body, 4)
    return int(count)


def batch_ends(body: Buffer) -> tuple[int, ...]:
    """The table of ends of a batch that was checked before."""
    return struct.unpack_from(f"<{batch_count(body)}I", body, HEAD_BYTES)


def data_start(records: int) -> int:
    """Where the records' bytes begin in a batch of so many records."""
    return HEAD_BYTES + END_BYTES * records


def check_batch(body: Buffer, count: int, checksum: int) -> None:
    """See that `body` is a batch of `count` records with this CRC-32.

    Raises:
        DecodeError: it is not; the text says why.
    """
    size = len(body)
    if size < HEAD_BYTES:
        raise DecodeError("batch shorter than its head")
    if size > BATCH_BYTES_MAX:
        raise DecodeError(f"batch of {size} bytes, above {BATCH_BYTES_MAX}")
    version, flags, reserved, held = _HEAD.unpack_from(body)
    if version != FORMAT or flags & ~(KEYED | HEADED) or reserved:
        raise DecodeError(f"batch format {version} with flags {flags:#x} is not known")
    if held != count or not 0 < count <= BATCH_RECORDS_MAX:
        raise DecodeError(f"batch of {held} records where {count} are announced")
    start = HEAD_BYTES + END_BYTES * count
    if size < start:
        raise DecodeError("batch shorter than its table of ends")
    if count == 1:
        (last,) = struct.unpack_from("<I", body, HEAD_BYTES)
    else:
        ends = struct.unpack_from(f"<{count}I", body, HEAD_BYTES)
        last = ends[-1]
        if list(ends) != sorted(ends):
            raise DecodeError("table of ends is not in order")
    if flags:
        last = _checked_behind(body, flags, start + last, count) - start
    if start + last != size:
        raise DecodeError(f"batch of {size} bytes whose table ends at {start + last}")
    if crc32(body) != checksum:
        raise DecodeError("checksum does not match the batch")


def _checked_behind(body: Buffer, flags: int, place: int, count: int) -> int:
    """Where the tables that begin at `place`, and what they tell of, end."""
    if flags & KEYED:
        place += _checked_table(body, place, count, "keys")
    if flags & HEADED:
        headers, place = place, place + _checked_table(body, place, count, "headers")
        if place == len(body):  # Else the batch is refused in any case, and there may be no such bytes.
            _check_headers(body, headers, count)
    return place


def _checked_table(body: Buffer, place: int, count: int, what: str) -> int:
    """Bytes of the table of keys, or headers, that begins at `place`, and of these themselves."""
    if len(body) < place + END_BYTES * count:
        raise DecodeError(f"batch shorter than its table of {what}")
    ends = struct.unpack_from(f"<{count}I", body, place)
    if list(ends) != sorted(ends):
        raise DecodeError(f"table of {what} is not in order")
    return END_BYTES * count + int(ends[-1])


def _check_headers(body: Buffer, place: int, count: int) -> None:
    """See that each record's headers are such; those that follow one another alike are looked at once."""
    before = b""
    for block in _values(body, _table(body, place, count)):
        if block != before:
            decode_headers(block)
            before = block


def _table(body: Buffer, place: int, count: int) -> Table:
    return struct.unpack_from(f"<{count}I", body, place), place + END_BYTES * count


def _values(body: Buffer, table: Table) -> list[bytes]:
    ends, start = table
    data = bytes(body[start : start + ends[-1]]) if ends else b""
    return [data[a:b] for a, b in zip((0, *ends), ends, strict=False)]


def batch_tables(body: Buffer) -> tuple[Table, Table]:
    """The tables of keys and of headers, of a batch that was checked before."""
    flags = body[1]
    if not flags:
        return _NONE, _NONE
    count = batch_count(body)
    (last,) = struct.unpack_from("<I", body, HEAD_BYTES + END_BYTES * (count - 1))
    place = data_start(count) + last
    keys = headers = _NONE
    if flags & KEYED:
        keys = _table(body, place, count)
        place = keys[1] + keys[0][-1]
    if flags & HEADED:
        headers = _table(body, place, count)
    return keys, headers


def decode_keys(body: Buffer) -> list[bytes]:
    """The records' keys, of a batch that was checked before; none where it has none."""
    return _values(body, batch_tables(body)[0])


def decode_blocks(body: Buffer) -> list[bytes]:
    """Each record's headers as bytes, of a batch that was checked before; none where it has none."""
    return _values(body, batch_tables(body)[1])


def decode_batch(body: Buffer) -> list[bytes]:
    """The records of a batch that was checked before."""
    ends = batch_ends(body)
    data = bytes(body)[HEAD_BYTES + END_BYTES * len(ends) :]
    starts = (0, *ends[:-1])
    return [data[a:b] for a, b in zip(starts, ends, strict=True)]
