"""The put batch: one body that holds many records, built by one join and forwarded untouched.

    format 1 byte | flags 1 byte | reserved 2 bytes | count 4 bytes | count x end offset (4 bytes) | the records' bytes

All little-endian. An end is counted from the start of the records' bytes, so record k is data[end[k-1]:end[k]]. The
flags leave room for a table of attributes per record; a flag that is not known refuses the batch. Its CRC-32 rides in
the message's header (DESIGN section 4).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final
from zlib import crc32

from pubsub.errors import DecodeError, TooLarge
from pubsub.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX

Buffer = bytes | memoryview

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BBHI")
HEAD_BYTES: Final = _HEAD.size
END_BYTES: Final = 4


def batch_size(records: int, data_bytes: int) -> int:
    """Bytes of a batch of so many records with so many bytes in all."""
    return HEAD_BYTES + END_BYTES * records + data_bytes


def encode_batch(bodies: Sequence[bytes]) -> bytes:
    """One batch of these records.

    Args:
        bodies: 1 to BATCH_RECORDS_MAX records, together at most BATCH_BYTES_MAX bytes with their table.

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
    if batch_size(count, ends[-1]) > BATCH_BYTES_MAX:
        raise TooLarge("batch", batch_size(count, ends[-1]), BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
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
    if version != FORMAT or flags or reserved:
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
    if start + last != size:
        raise DecodeError(f"batch of {size} bytes whose table ends at {start + last}")
    if crc32(body) != checksum:
        raise DecodeError("checksum does not match the batch")


def decode_batch(body: Buffer) -> list[bytes]:
    """The records of a batch that was checked before."""
    ends = batch_ends(body)
    data = bytes(body)[HEAD_BYTES + END_BYTES * len(ends) :]
    starts = (0, *ends[:-1])
    return [data[a:b] for a, b in zip(starts, ends, strict=True)]
