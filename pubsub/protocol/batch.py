"""The put batch: one body with many records, built by one join and forwarded unchanged.

    format 1 byte | flags 1 byte | reserved 2 bytes | count 4 bytes | count x end offset (4 bytes) | the records' bytes
    if the flag KEYED is set, after it: count x end offset of a key (4 bytes) | the keys' bytes
    if the flag HEADED is set, after that: count x end offset of a message's headers (4 bytes) | the headers' bytes
    if the flag DUE is set, at the end: due time 8 bytes, microseconds since 1970
    if the flag DELAYED is set, at the end: publisher | counter of the first record 8 bytes | bytes of publisher 2 bytes

All numbers are little-endian. An end is counted from the start of the records' bytes, so record k is
data[end[k-1]:end[k]]. Keys and headers (`headers`) have the same form, and an empty one is none. A batch with an
unknown flag is refused, so an earlier release never delivers a delayed batch early. A put may have DUE, and no other
batch may. A server replaces it by DELAYED when it appends the batch under another publisher. The message's header has
the CRC-32 of the batch (docs/explanation/batches.md, *Batches*).

The rules are those of docs/explanation/batches.md, B1 and B3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final
from zlib import crc32

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, NUMBER_MAX, ORIGIN_BYTES_MAX
from pubsub.errors import DecodeError, TooLarge
from pubsub.protocol.headers import decode_headers
from pubsub.protocol.names import is_publisher

Buffer = bytes | memoryview

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BBHI")
HEAD_BYTES: Final = _HEAD.size
END_BYTES: Final = 4

RECORD_BYTES_MAX: Final = BATCH_BYTES_MAX - HEAD_BYTES - END_BYTES
"""Bytes of the largest message. It fills a batch."""
KEYED: Final = 1
"""The flag of a batch with keys."""
HEADED: Final = 2
"""The flag of a batch with headers."""
DUE: Final = 4
"""The flag of a put that waits for a time."""
DELAYED: Final = 8
"""The flag of a batch that was delayed: it names its publisher, because it is stored under another one."""
_DUE: Final = struct.Struct("<Q")
DUE_BYTES: Final = _DUE.size
_ORIGIN: Final = struct.Struct("<QH")

Table = tuple[tuple[int, ...], int]
"""The end of each key (or of each record's headers), and the start of the first in the batch; () and 0 for none."""

_NONE: Final[Table] = ((), 0)


def batch_size(records: int, data_bytes: int) -> int:
    """Return the bytes of a batch with this number of records and data bytes."""
    return HEAD_BYTES + END_BYTES * records + data_bytes


def encode_batch(
    bodies: Sequence[bytes], keys: Sequence[bytes] = (), headers: Sequence[bytes] = (), due: int = 0
) -> bytes:
    """Encode records as one batch.

    Args:
        bodies: 1 to BATCH_RECORDS_MAX records, together at most BATCH_BYTES_MAX bytes with their table.
        keys: none, or one for each record.
        headers: none, or one block for each record, as `encode_headers` returns it.
        due: the time before which no subscriber may receive it (microseconds since 1970); 0: none.

    Raises:
        TooLarge: there are too many records or bytes, or no record.
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
    if due:
        flags |= DUE
        size += _DUE.size
        behind = (*behind, _DUE.pack(due))
    if size > BATCH_BYTES_MAX:
        raise TooLarge("batch", size, BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
    return b"".join((_HEAD.pack(FORMAT, flags, 0, count), struct.pack(f"<{count}I", *ends), *bodies, *behind))


def _tables_behind(keys: Sequence[bytes], headers: Sequence[bytes], count: int) -> tuple[int, Sequence[bytes]]:
    """Return the flags, and the parts that follow the records' bytes."""
    flags = 0
    parts: list[bytes] = []
    for flag, values in ((KEYED, keys), (HEADED, headers)):
        if any(values):
            flags |= flag
            parts += (struct.pack(f"<{count}I", *accumulate(map(len, values))), *values)
    return flags, parts


def due_of(body: Buffer) -> int:
    """Return the due time of a put (microseconds since 1970); 0 if it has none. The batch may be malformed."""
    if len(body) < HEAD_BYTES + _DUE.size or not body[1] & DUE:
        return 0
    (due,) = _DUE.unpack_from(body, len(body) - _DUE.size)
    return int(due)


def with_origin(body: Buffer, publisher: str, counter: int) -> bytes:
    """Return a checked put as it is appended when it is due: with its publisher and counter, and no due time."""
    name, stop = publisher.encode("ascii"), len(body) - (_DUE.size if body[1] & DUE else 0)
    head = bytes((body[0], body[1] & ~DUE | DELAYED))
    return b"".join((head, body[2:stop], name, _ORIGIN.pack(counter, len(name))))


def origin_of(body: Buffer) -> tuple[str, int] | None:
    """Return the publisher and the first counter under which a checked batch was put; None if it was not delayed."""
    if not body[1] & DELAYED:
        return None
    stop = len(body) - _ORIGIN.size
    counter, size = _ORIGIN.unpack_from(body, stop)
    return bytes(body[stop - size : stop]).decode("ascii"), counter


def batch_count(body: Buffer) -> int:
    """Return the number of records that a batch of at least HEAD_BYTES claims to hold."""
    (count,) = struct.unpack_from("<I", body, 4)
    return int(count)


def batch_ends(body: Buffer) -> tuple[int, ...]:
    """Return the table of ends of a batch that was checked before."""
    return struct.unpack_from(f"<{batch_count(body)}I", body, HEAD_BYTES)


def data_start(records: int) -> int:
    """Return the start of the records' bytes in a batch of this number of records."""
    return HEAD_BYTES + END_BYTES * records


def check_batch(body: Buffer, count: int, checksum: int, *, delays: int = 0) -> None:
    """Check that `body` is a batch of `count` records with this CRC-32.

    Args:
        delays: DUE for a put, which may have a due time; DELAYED for a batch of a log; 0: neither.

    Raises:
        DecodeError: it is not; the text has the reason.
    """
    size = len(body)
    if size < HEAD_BYTES:
        raise DecodeError("batch shorter than its head")
    if size > BATCH_BYTES_MAX + (ORIGIN_BYTES_MAX if delays & DELAYED else 0):
        raise DecodeError(f"batch of {size} bytes, above {BATCH_BYTES_MAX}")
    version, flags, reserved, held = _HEAD.unpack_from(body)
    if version != FORMAT or flags & ~(KEYED | HEADED | delays) or reserved:
        raise DecodeError(f"batch format {version} with flags {flags:#x} is not known")
    if held != count or not 0 < count <= BATCH_RECORDS_MAX:
        raise DecodeError(f"batch of {held} records, but the header announces {count}")
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
        if flags & DUE:
            size -= _DUE.size
        elif flags & DELAYED:
            size = _checked_origin(body)
        last = _checked_behind(body, flags, start + last, count) - start
    if start + last != size:
        raise DecodeError(f"batch of {size} bytes whose table ends at {start + last}")
    if crc32(body) != checksum:
        raise DecodeError("checksum does not match the batch")


def _checked_origin(body: Buffer) -> int:
    """Check the publisher at the end of a delayed batch, and return the bytes of the batch before it."""
    with suppress(struct.error, UnicodeDecodeError):
        publisher, counter = origin_of(body) or ("", 0)
        size = len(body) - _ORIGIN.size - len(publisher)
        if is_publisher(publisher) and 0 < counter <= NUMBER_MAX and size >= HEAD_BYTES:
            return size
    raise DecodeError("delayed batch does not name its publisher")


def _checked_behind(body: Buffer, flags: int, place: int, count: int) -> int:
    """Check the tables that begin at `place`, and return the end of their bytes."""
    if flags & KEYED:
        place += _checked_table(body, place, count, "keys")
    if flags & HEADED:
        headers, place = place, place + _checked_table(body, place, count, "headers")
        if place <= len(body):  # Otherwise the caller refuses the batch, and the bytes may be missing.
            _check_headers(body, headers, count)
    return place


def _checked_table(body: Buffer, place: int, count: int, what: str) -> int:
    """Check the table that begins at `place`, and return the bytes of the table and its values."""
    if len(body) < place + END_BYTES * count:
        raise DecodeError(f"batch shorter than its table of {what}")
    ends = struct.unpack_from(f"<{count}I", body, place)
    if list(ends) != sorted(ends):
        raise DecodeError(f"table of {what} is not in order")
    return END_BYTES * count + int(ends[-1])


def _check_headers(body: Buffer, place: int, count: int) -> None:
    """Check each record's headers. Equal headers of consecutive records are checked once."""
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
    """Return the tables of keys and of headers of a batch that was checked before."""
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
    """Return the records' keys of a batch that was checked before; empty if it has none."""
    return _values(body, batch_tables(body)[0])


def decode_blocks(body: Buffer) -> list[bytes]:
    """Return each record's headers as bytes, of a batch that was checked before; empty if it has none."""
    return _values(body, batch_tables(body)[1])


def decode_batch(body: Buffer) -> list[bytes]:
    """Return the records of a batch that was checked before."""
    ends = batch_ends(body)
    data = bytes(body)[HEAD_BYTES + END_BYTES * len(ends) :]
    starts = (0, *ends[:-1])
    return [data[a:b] for a, b in zip(starts, ends, strict=True)]
