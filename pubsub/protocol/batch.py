"""The put batch: one body that holds many records, built by one join and forwarded untouched.

    format 1 byte | flags 1 byte | reserved 2 bytes | count 4 bytes | count x end offset (4 bytes) | the records' bytes
    where the flag KEYED is set, behind it: count x end offset of a key (4 bytes) | the keys' bytes

All little-endian. An end is counted from the start of the records' bytes, so record k is data[end[k-1]:end[k]]; keys
likewise, and one of no bytes is none. A flag that is not known refuses the batch. Its CRC-32 rides in the message's
header (docs/architecture.md, *Batches*).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final
from zlib import crc32

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.errors import DecodeError, TooLarge

Buffer = bytes | memoryview

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BBHI")
HEAD_BYTES: Final = _HEAD.size
END_BYTES: Final = 4

RECORD_BYTES_MAX: Final = BATCH_BYTES_MAX - HEAD_BYTES - END_BYTES
"""Bytes of the largest message: it fills a batch."""
KEYED: Final = 1
"""The flag of a batch whose records have keys."""


def batch_size(records: int, data_bytes: int) -> int:
    """Bytes of a batch of so many records with so many bytes in all."""
    return HEAD_BYTES + END_BYTES * records + data_bytes


def encode_batch(bodies: Sequence[bytes], keys: Sequence[bytes] = ()) -> bytes:
    """One batch of these records.

    Args:
        bodies: 1 to BATCH_RECORDS_MAX records, together at most BATCH_BYTES_MAX bytes with their table.
        keys: none, or one for each record.

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
    key_ends = list(accumulate(map(len, keys))) if any(keys) else []
    size = batch_size(count, ends[-1]) + (END_BYTES * count + key_ends[-1] if key_ends else 0)
    if size > BATCH_BYTES_MAX:
        raise TooLarge("batch", size, BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
    if key_ends:
        head, table = _HEAD.pack(FORMAT, KEYED, 0, count), struct.pack(f"<{count}I", *ends)
        return b"".join((head, table, *bodies, struct.pack(f"<{count}I", *key_ends), *keys))
    return b"".join((_HEAD.pack(FORMAT, 0, 0, count), struct.pack(f"<{count}I", *ends), *bodies))


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
    if version != FORMAT or flags & ~KEYED or reserved:
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
        last += _checked_keys(body, start + last, count)
    if start + last != size:
        raise DecodeError(f"batch of {size} bytes whose table ends at {start + last}")
    if crc32(body) != checksum:
        raise DecodeError("checksum does not match the batch")


def _checked_keys(body: Buffer, place: int, count: int) -> int:
    """Bytes of the table of keys that begins at `place`, and of the keys."""
    if len(body) < place + END_BYTES * count:
        raise DecodeError("batch shorter than its table of keys")
    ends = struct.unpack_from(f"<{count}I", body, place)
    if list(ends) != sorted(ends):
        raise DecodeError("table of keys is not in order")
    return END_BYTES * count + int(ends[-1])


def batch_keys(body: Buffer) -> tuple[tuple[int, ...], int]:
    """Of a batch that was checked before: where each key ends, and where the keys begin; nothing where it has none."""
    if not body[1] & KEYED:
        return (), 0
    count = batch_count(body)
    (last,) = struct.unpack_from("<I", body, HEAD_BYTES + END_BYTES * (count - 1))
    place = data_start(count) + last
    return struct.unpack_from(f"<{count}I", body, place), place + END_BYTES * count


def decode_keys(body: Buffer) -> list[bytes]:
    """The records' keys, of a batch that was checked before; none where it has none."""
    ends, start = batch_keys(body)
    data = bytes(body)[start:]
    return [data[a:b] for a, b in zip((0, *ends), ends, strict=False)]


def decode_batch(body: Buffer) -> list[bytes]:
    """The records of a batch that was checked before."""
    ends = batch_ends(body)
    data = bytes(body)[HEAD_BYTES + END_BYTES * len(ends) :]
    starts = (0, *ends[:-1])
    return [data[a:b] for a, b in zip(starts, ends, strict=True)]
