"""Trains: their bytes; every false train is refused completely.

The rule is docs/explanation/batches.md, B9.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX, TRAIN_BYTES_MAX, TRAIN_ROWS_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Put, decode, encode, encode_batch
from pubsub.protocol.train import ROW_BYTES, join_table, split_train

STORE = "0123456789abcdef"
GOLDEN_HEAD = b"PUT billing orders 7 publisher=0123456789abcdef count=3 previous=5 crc=906382967 !rows=2 !v=1\r\n\r\n"
GOLDEN_BODY = bytes.fromhex(
    "0700000000000000" "0500000000000000" "02000000" "a62d7714" "12000000"  # counter 7, previous 5, 2 records, 18 bytes
    "0a00000000000000" "0800000000000000" "01000000" "1692422c" "0d000000"  # counter 10, previous 8, 1 record, 13 bytes
    "0100000002000000" "01000000" "02000000" "6162"
    "0100000001000000" "01000000" "63"
)  # fmt: skip


@dataclass
class Row:
    """One row, as the client's outbox has it."""

    counter: int
    previous: int
    batch: bytes
    count: int = 1
    checksum: int = -1
    size: int = -1

    def __post_init__(self) -> None:
        self.checksum = crc32(self.batch) if self.checksum < 0 else self.checksum
        self.size = len(self.batch) if self.size < 0 else self.size


def train(made_of: list[Row], /, **changed: object) -> Put:
    """A train of these rows."""
    rows = made_of
    table = join_table(rows)
    facts = {
        "counter": rows[0].counter if rows else 1,
        "count": sum(row.count for row in rows),
        "previous": rows[0].previous if rows else 0,
        "checksum": crc32(table),
        "body": table + b"".join(row.batch for row in rows),
        "rows": len(rows),
    }
    return Put("billing", "orders", publisher=STORE, **(facts | changed))  # type: ignore[arg-type]


def two() -> list[Row]:
    return [Row(7, 5, encode_batch([b"a", b"b"]), 2), Row(10, 8, encode_batch([b"c"]))]


def test_a_train_has_its_golden_bytes() -> None:
    assert encode(train(two())) == (GOLDEN_HEAD, GOLDEN_BODY)
    assert decode(GOLDEN_HEAD, GOLDEN_BODY) == train(two())


def test_each_row_equals_a_single_put() -> None:
    one, other = split_train(train(two(), log="a" * 16, avoid="b" * 16))
    rows = two()
    assert one == Put(
        "billing", "orders", 7, STORE, 2, 5, rows[0].checksum, log="a" * 16, avoid="b" * 16, body=rows[0].batch
    )
    assert other == Put("billing", "orders", 10, STORE, 1, 8, rows[1].checksum, log="a" * 16, body=rows[1].batch)


@pytest.mark.parametrize("rows", [b"0", b"65", b"-1", b"x", b"", b"9" * 20])
def test_an_impossible_number_of_rows_is_refused_with_the_header(rows: bytes) -> None:
    assert TRAIN_ROWS_MAX == 64
    with pytest.raises(DecodeError):
        decode(GOLDEN_HEAD.replace(b"!rows=2", b"!rows=" + rows), GOLDEN_BODY)


def test_a_release_without_trains_refuses_one_and_does_not_ignore_it() -> None:
    with pytest.raises(DecodeError, match="insists"):
        decode(GOLDEN_HEAD.replace(b"!rows=2", b"!trucks=2"), GOLDEN_BODY)


def spoilt(changes: dict[int, dict[str, int]], /, **header: object) -> Put:
    """The two rows with other values in their table, whose checksum is right."""
    return train([replace(row, **changes.get(index, {})) for index, row in enumerate(two())], **header)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lying",
    [
        spoilt({}, sole_owner=1),
        spoilt({}, rows=1),
        spoilt({}, rows=3),
        spoilt({}, rows=TRAIN_ROWS_MAX),
        spoilt({}, checksum=1),
        spoilt({}, counter=8),
        spoilt({}, previous=4),
        spoilt({}, count=2),
        spoilt({0: {"counter": 0, "previous": 0}}, counter=0, previous=0),
        spoilt({0: {"previous": 7}}, previous=7),
        spoilt({0: {"count": 0}}, count=1),
        spoilt({0: {"count": 4}}, count=5),
        spoilt({1: {"counter": 8}}),
        spoilt({1: {"counter": 7}}),
        spoilt({1: {"previous": 10}}),
        spoilt({1: {"count": BATCH_RECORDS_MAX + 1}}, count=BATCH_RECORDS_MAX + 3),
        spoilt({1: {"counter": NUMBER_MAX}}),
        spoilt({1: {"size": 12}}),
        spoilt({1: {"size": 14}}),
        spoilt({0: {"size": 19}, 1: {"size": 13}}),
        spoilt({0: {"size": 2**32 - 1}}),
        train(two(), body=b""),
        train(two(), body=GOLDEN_BODY[: 2 * ROW_BYTES]),
        train(two(), body=GOLDEN_BODY + b"x"),
        train(two(), body=GOLDEN_BODY + bytes(TRAIN_BYTES_MAX)),
        train([]),
    ],
)
def test_a_false_train_is_refused_completely(lying: Put) -> None:
    with pytest.raises(DecodeError):
        split_train(lying)


def test_an_unsound_batch_concerns_only_its_row() -> None:
    rows = split_train(spoilt({1: {"checksum": 1}}))
    assert [row.checksum for row in rows] == [crc32(two()[0].batch), 1]


chains = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.lists(st.binary(max_size=30), min_size=1, max_size=4)),
    min_size=1,
    max_size=8,
)


def chained(drawn: list[tuple[int, int, list[bytes]]]) -> list[Row]:
    """Rows, each naming the one before, or one before that."""
    rows, last = [], 0
    for gap, back, records in drawn:
        counter = last + 1 + gap
        rows.append(Row(counter, max(0, last - back), encode_batch(records), len(records)))
        last = counter + len(records) - 1
    return rows


@given(chains)
def test_every_train_round_trips(drawn: list[tuple[int, int, list[bytes]]]) -> None:
    rows = chained(drawn)
    found = split_train(decode(*encode(train(rows))))  # type: ignore[arg-type]
    assert [(row.counter, row.previous, row.count, row.checksum, bytes(row.body)) for row in found] == [
        (row.counter, row.previous, row.count, row.checksum, row.batch) for row in rows
    ]


@given(chains, st.data())
def test_mutated_bytes_give_rows_of_one_chain_or_decode_error(
    drawn: list[tuple[int, int, list[bytes]]], data: st.DataObject
) -> None:
    made = train(chained(drawn))
    table, body = made.rows * ROW_BYTES, bytearray(made.body)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "number"])):
            case "flip":
                body[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del body[place : place + data.draw(st.integers(1, 40))]
            case "number" if len(body) > place + 8:
                body[place : place + 8] = struct.pack("<Q", data.draw(st.integers(0, 2**64 - 1)))
        if not body:
            break
    made.body, made.rows = bytes(body), data.draw(st.sampled_from([made.rows, 1, TRAIN_ROWS_MAX]))
    if data.draw(st.booleans()):
        made.checksum = crc32(made.body[:table])
    try:
        rows = split_train(made)
    except DecodeError:
        return
    assert len(rows) == made.rows
    assert sum(len(row.body) for row in rows) == len(body) - made.rows * ROW_BYTES
    last = 0
    for row in rows:
        assert row.previous < row.counter > last
        assert 0 < row.count <= BATCH_RECORDS_MAX
        last = row.counter + row.count - 1
    assert last < NUMBER_MAX
