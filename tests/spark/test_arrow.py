"""Answers become Arrow batches and Arrow columns become put batches: the same records, in any runs."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import ConfigurationError, DecodeError, PubsubError, TooLarge
from pubsub.protocol import Outcome, Records, RecordsBuilder, Status, decode_headers, encode_batch, encode_headers
from pubsub.protocol.batch import check_batch, decode_batch, decode_blocks, decode_keys
from pubsub.spark import arrow

LOGS = ("00000000000000aa", "00000000000000bb")
PUBLISHERS = ("alice/0123456789abcdef", "bob/0123456789abcdef")

runs = st.lists(
    st.tuples(
        st.sampled_from(LOGS),
        st.integers(1, 1 << 39),
        st.sampled_from(PUBLISHERS),
        st.integers(1, 1 << 62),
        st.integers(0, 1 << 52),
        st.lists(st.binary(max_size=20), min_size=1, max_size=9),
        st.integers(0, 8),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=6,
)


def answer(body: bytes) -> Status:
    return Status("s1", Outcome.SUCCESS, checksum=crc32(body), body=body)


def build(parts: list[Any]) -> bytes:
    builder = RecordsBuilder()
    for log, offset, publisher, counter, stamp, bodies, first, count in parts:
        begin = min(first, len(bodies) - 1)
        stop = min(len(bodies), begin + count)
        headers = [encode_headers({"h": body, "i": b""} if body else {}) for body in bodies] if count % 3 else ()
        batch = encode_batch(bodies, [body[:3] for body in bodies[::-1]] if count % 2 else (), headers)
        builder.add(log, offset, publisher, counter, stamp, batch, begin, stop)
    return builder.build()


@given(runs)
def test_a_batch_has_the_content_of_the_records(parts: list[Any]) -> None:
    body = build(parts)
    rows = arrow.record_batch("t", answer(body)).to_pylist()
    expected = []
    records = Records(body)
    values = list(records.bodies())
    for run in records.runs:
        for index in range(len(run.ends)):
            expected.append(
                (
                    "t",
                    run.log,
                    run.offset + index,
                    f"{run.log}.{run.offset + index}",
                    run.publisher,
                    run.counter + index,
                    run.stamp,
                    values[len(expected)],
                    (run.keys[index] or None) if run.keys else None,
                    run.stamp,
                )
            )
    for row in rows:
        row |= {name: round(row[name].timestamp() * 1e6) for name in ("stamp", "timestamp")}
    assert [tuple(row.values()) for row in rows] == expected


@given(runs, st.lists(st.sampled_from([*arrow.COLUMNS, "headers"]), min_size=1, unique=True))
def test_a_row_has_the_requested_columns_in_their_order(parts: list[Any], columns: list[str]) -> None:
    body = build(parts)
    every = arrow.record_batch("t", answer(body), (*arrow.COLUMNS, "headers"))
    assert arrow.record_batch("t", answer(body), columns).equals(every.select(columns))


def test_a_schema_of_the_user_has_columns_of_the_source_with_their_types() -> None:
    assert arrow.check_schema({"value": "binary", "timestamp": "timestamp"}) == ("value", "timestamp")
    assert arrow.check_schema({"headers": "array<struct<key:string,value:binary>>"}) == ("headers",)
    with pytest.raises(ConfigurationError, match="the source has no column body; it has topic, log, offset"):
        arrow.check_schema({"body": "binary"})
    with pytest.raises(ConfigurationError, match="column value is binary, not string; cast it in the query"):
        arrow.check_schema({"value": "string"})


@given(runs)
def test_headers_are_a_column_on_request_and_null_if_absent(parts: list[Any]) -> None:
    body = build(parts)
    plain, headed = (
        arrow.record_batch("t", answer(body), columns) for columns in (arrow.COLUMNS, (*arrow.COLUMNS, "headers"))
    )
    assert headed.select(plain.schema.names).equals(plain)
    blocks = [block for run in Records(body).runs for block in (run.headers or [b""] * len(run.ends))]
    assert headed.column("headers").to_pylist() == [
        [{"key": key, "value": value} for key, value in decode_headers(block).items()] or None for block in blocks
    ]


HEADERS = st.dictionaries(st.text("abc.-", min_size=1, max_size=5), st.binary(max_size=20), max_size=3)


@given(st.lists(st.tuples(st.binary(max_size=30), st.none() | st.binary(max_size=9), st.none() | HEADERS), min_size=1))
def test_headers_are_put_into_the_batches_with_their_values(rows: list[tuple[bytes, bytes | None, Any]]) -> None:
    values, keys, headers = (list(column) for column in zip(*rows, strict=True))
    lists = [None if row is None else [{"key": k, "value": v} for k, v in row.items()] for row in headers]
    batch = pa.record_batch({"headers": pa.array(lists, arrow.HEADERS_TYPE)})
    found: list[tuple[bytes, bytes, dict[str, bytes]]] = []
    metadata = pa.array(keys, pa.binary()), arrow.headers_of(batch)
    for count, body in arrow.pieces(pa.array(values, pa.binary()), *metadata):
        check_batch(body, count, crc32(body))
        none = [b""] * count
        columns = decode_batch(body), decode_keys(body) or none, map(decode_headers, decode_blocks(body) or none)
        found += zip(*columns, strict=True)
    assert found == [(value, key or b"", row or {}) for value, key, row in rows]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array(["a=1"]), "it must be array<struct"),
        (pa.array([[{"key": "a", "other": b"1"}]]), "it must be array<struct"),
        (pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]]), "occur once"),
        (pa.array([[{"key": None, "value": b"1"}]], arrow.HEADERS_TYPE), "None does not"),
        (pa.array([[None]], arrow.HEADERS_TYPE), "None does not"),
        (pa.array([[{"key": "a b", "value": b"1"}]]), "header name 'a b' is not allowed"),
        (pa.array([[{"key": f"h{n}", "value": b"1"} for n in range(17)]]), "MESSAGE_HEADERS_MAX"),
    ],
)
def test_headers_that_no_message_can_have_are_refused(column: pa.Array, said: str) -> None:
    with pytest.raises((ValueError, PubsubError), match=said):
        arrow.headers_of(pa.record_batch({"headers": column}))


def test_headers_may_be_text_null_or_missing() -> None:
    rows = pa.array([[{"key": "a", "value": "text"}, {"key": "b", "value": None}], None, []])
    found = arrow.headers_of(pa.record_batch({"headers": rows}))
    assert found is not None
    assert found.to_pylist() == [encode_headers({"a": b"text", "b": b""}), None, None]
    assert arrow.headers_of(pa.record_batch({"headers": pa.nulls(2)})) is None
    assert arrow.headers_of(pa.record_batch({"value": rows})) is None


@given(runs, st.data())
def test_invalid_records_raise_only_decode_error(parts: list[Any], data: st.DataObject) -> None:
    raw = bytearray(build(parts))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    try:
        columns = data.draw(st.lists(st.sampled_from([*arrow.COLUMNS, "headers"]), min_size=1, unique=True))
        batch = arrow.record_batch("t", answer(bytes(raw)), columns)
    except DecodeError:
        return
    batch.validate(full=True)


def test_a_wrong_checksum_is_refused() -> None:
    body = build([(LOGS[0], 1, PUBLISHERS[0], 1, 0, [b"a"], 0, 1)])
    with pytest.raises(DecodeError, match="checksum"):
        arrow.record_batch("t", Status("s1", Outcome.SUCCESS, checksum=1, body=body))


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=50), st.integers(0, 10), st.integers(1, 60))
def test_a_column_or_a_slice_of_one_becomes_batches_that_a_server_takes(
    values: list[bytes], start: int, length: int
) -> None:
    column = pa.array(values, pa.binary()).slice(min(start, len(values) - 1), length)
    out: list[bytes] = []
    for count, body in arrow.pieces(column):
        check_batch(body, count, crc32(body))
        out += decode_batch(body)
    assert out == column.to_pylist()


@given(st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=5)), min_size=1), st.integers(0, 10))
def test_keys_are_put_into_the_batches_with_their_values(pairs: list[tuple[bytes, bytes | None]], start: int) -> None:
    rows = pa.record_batch(
        {
            "value": pa.array([value for value, _ in pairs], pa.binary()),
            "key": pa.array([key for _, key in pairs], pa.binary()),
        }
    ).slice(min(start, len(pairs) - 1))
    out: list[tuple[bytes, bytes]] = []
    for count, body in arrow.pieces(rows.column("value"), rows.column("key")):
        check_batch(body, count, crc32(body))
        out += zip(decode_batch(body), decode_keys(body) or [b""] * count, strict=True)
    assert out == [(row["value"], row["key"] or b"") for row in rows.to_pylist()]


def test_the_bytes_of_keys_count_for_the_size_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "STAGE_BYTES", 100)
    values, keys = pa.array([b"v"] * 10, pa.binary()), pa.array([b"k" * 40] * 10, pa.binary())
    assert [count for count, _ in arrow.pieces(values, keys)] == [2, 2, 2, 2, 2]
    monkeypatch.setattr(arrow, "BATCH_BYTES_MAX", 50)
    with pytest.raises(TooLarge, match="BATCH_BYTES_MAX"):
        list(arrow.pieces(values, keys))


def test_a_long_column_is_split_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "STAGE_ROWS", 10)
    monkeypatch.setattr(arrow, "STAGE_BYTES", 100)
    values = [b"x" * size for size in (1,) * 25 + (60, 60, 500, 1)]
    cut = list(arrow.pieces(pa.array(values, pa.binary())))
    assert [value for _, body in cut for value in decode_batch(body)] == values
    assert max(count for count, _ in cut) == 10
    assert all(count == 1 or len(body) <= 100 + 8 + 4 * count for count, body in cut)


def test_a_value_that_fits_no_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_BYTES_MAX", 100)
    with pytest.raises(TooLarge, match="BATCH_BYTES_MAX"):
        list(arrow.pieces(pa.array([b"a", b"x" * 100], pa.binary())))


def test_null_is_no_message() -> None:
    with pytest.raises(ValueError, match="1 of 2 values are null"):
        list(arrow.pieces(pa.array([b"a", None], pa.binary())))


def test_text_is_utf8_and_other_columns_are_refused() -> None:
    batch = pa.record_batch({"a": pa.array(["ä"]), "b": pa.array([1]), "c": pa.array([b"x"], pa.large_binary())})
    assert arrow.values_of(batch, "a").to_pylist() == ["ä".encode()]
    assert arrow.values_of(batch, "c").to_pylist() == [b"x"]
    with pytest.raises(ValueError, match="column b is int64"):
        arrow.values_of(batch, "b")
