"""The put batch: round trip, damage, forged counts, limits."""

import struct
import tracemalloc
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.errors import DecodeError, TooLarge
from pubsub.protocol import batch_ends, batch_size, check_batch, decode_batch, encode_batch
from pubsub.protocol.batch import HEADED, decode_blocks, decode_keys
from pubsub.protocol.headers import decode_headers, encode_headers

records = st.lists(st.binary(max_size=30), min_size=1, max_size=30)
keyed = st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=9)), min_size=1, max_size=30)


@given(records)
def test_a_batch_round_trips(bodies):
    batch = encode_batch(bodies)
    check_batch(batch, len(bodies), crc32(batch))
    check_batch(memoryview(batch), len(bodies), crc32(batch))
    assert decode_batch(batch) == decode_batch(memoryview(batch)) == bodies
    assert len(batch) == batch_size(len(bodies), sum(map(len, bodies)))
    assert batch_ends(batch)[-1] == sum(map(len, bodies))


@given(keyed)
def test_a_batch_with_keys_round_trips(pairs):
    bodies, keys = [body for body, _ in pairs], [key for _, key in pairs]
    batch = encode_batch(bodies, keys)
    check_batch(batch, len(bodies), crc32(batch))
    check_batch(memoryview(batch), len(bodies), crc32(batch))
    assert decode_batch(batch) == decode_batch(memoryview(batch)) == bodies
    assert decode_keys(batch) == decode_keys(memoryview(batch)) == (keys if any(keys) else [])
    assert (batch == encode_batch(bodies)) == (not any(keys))


@given(keyed, st.data())
def test_a_forged_batch_with_keys_is_refused_or_sound(pairs, data):
    batch = bytearray(encode_batch([body for body, _ in pairs], [b"k", *(key for _, key in pairs[1:])]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(batch[: data.draw(st.integers(0, len(batch)))])
    try:
        check_batch(raw, len(pairs), crc32(raw))
    except DecodeError:
        return
    keys = decode_keys(raw)
    assert len(keys) in {0, len(pairs)}
    tables = batch_size(len(pairs), 0) + 4 * len(keys)
    assert sum(map(len, decode_batch(raw))) + sum(map(len, keys)) == len(raw) - tables


blocks = st.dictionaries(st.sampled_from("abc"), st.binary(max_size=9), max_size=3).map(encode_headers)
headed = st.lists(
    st.tuples(st.binary(max_size=30), st.just(b"") | st.binary(max_size=9), blocks), min_size=1, max_size=30
)


@given(headed)
def test_a_batch_with_keys_and_headers_round_trips(records):
    bodies, keys, headers = (list(column) for column in zip(*records, strict=True))
    batch = encode_batch(bodies, keys, headers)
    check_batch(batch, len(bodies), crc32(batch))
    check_batch(memoryview(batch), len(bodies), crc32(batch))
    assert decode_batch(batch) == bodies
    assert decode_keys(batch) == (keys if any(keys) else [])
    assert decode_blocks(batch) == decode_blocks(memoryview(batch)) == (headers if any(headers) else [])
    assert (batch == encode_batch(bodies)) == (not any(keys) and not any(headers))


@given(headed, st.data())
def test_a_forged_batch_with_headers_is_refused_or_sound(records, data):
    bodies, keys, headers = (list(column) for column in zip(*records, strict=True))
    batch = bytearray(encode_batch(bodies, keys, [encode_headers({"a": b"1"}), *headers[1:]]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(batch[: data.draw(st.integers(0, len(batch)))]) + data.draw(st.binary(max_size=4))
    try:
        check_batch(raw, len(bodies), crc32(raw))
    except DecodeError:
        return
    found = [decode_headers(block) for block in decode_blocks(raw)]
    assert len(found) in {0, len(bodies)}
    assert len(decode_batch(raw)) == len(bodies)


def test_invalid_headers_are_refused_with_the_batch():
    batch = bytearray(encode_batch([b"x", b"y"], (), [encode_headers({"a": b"1"})] * 2))
    assert batch[1] == HEADED
    batch[-2] = ord("=")
    with pytest.raises(DecodeError, match="invalid name"):
        check_batch(bytes(batch), 2, crc32(batch))


def test_a_table_of_headers_out_of_order_or_missing_is_refused():
    batch = encode_batch([b"x", b"y"], (), [encode_headers({"a": b"1"})] * 2)
    at = batch_size(2, 2)
    for raw in (batch[:at], batch[:at] + struct.pack("<2I", 5, 4) + batch[at + 8 :], batch[:-1], batch + b"x"):
        with pytest.raises(DecodeError):
            check_batch(raw, 2, crc32(raw))


def test_keys_count_for_the_limit():
    with pytest.raises(TooLarge):
        encode_batch([b"x"], [bytes(BATCH_BYTES_MAX - 12)])


@given(records, st.data())
def test_a_damaged_batch_raises_only_decode_error(bodies, data):
    batch = bytearray(encode_batch(bodies))
    checksum = crc32(batch)
    place = data.draw(st.integers(0, len(batch) - 1))
    flip = data.draw(st.integers(1, 255))
    batch[place] ^= flip
    with pytest.raises(DecodeError):
        check_batch(bytes(batch), len(bodies), checksum)


@given(records, st.data())
def test_a_forged_batch_with_a_right_checksum_is_refused_or_sound(bodies, data):
    batch = bytearray(encode_batch(bodies))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(batch[: data.draw(st.integers(0, len(batch)))]) + data.draw(st.binary(max_size=4))
    try:
        check_batch(raw, len(bodies), crc32(raw))
    except DecodeError:
        return
    assert len(decode_batch(raw)) == len(bodies)
    assert sum(map(len, decode_batch(raw))) == len(raw) - batch_size(len(bodies), 0)


@given(st.binary(max_size=100), st.integers(0, 2**63 - 1))
def test_arbitrary_bytes_raise_only_decode_error(raw, count):
    try:
        check_batch(raw, count, crc32(raw))
    except DecodeError:
        return
    assert len(decode_batch(raw)) == count


@pytest.mark.parametrize("count", [BATCH_RECORDS_MAX, BATCH_RECORDS_MAX + 1, 2**31, 2**32 - 1])
def test_a_forged_huge_count_allocates_nothing(count):
    raw = struct.pack("<BBHI", 1, 0, 0, count) + b"x" * 100
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            check_batch(raw, count, crc32(raw))
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("place", "value"), [(0, 2), (1, 4), (1, 7), (1, 128), (2, 1), (3, 1)])
def test_an_unknown_format_or_flag_refuses_the_batch(place, value):
    batch = bytearray(encode_batch([b"a", b"b"]))
    batch[place] = value
    with pytest.raises(DecodeError, match="not known"):
        check_batch(bytes(batch), 2, crc32(batch))


def test_an_empty_batch_is_refused_on_both_sides():
    with pytest.raises(TooLarge):
        encode_batch([])
    raw = struct.pack("<BBHI", 1, 0, 0, 0)
    with pytest.raises(DecodeError):
        check_batch(raw, 0, crc32(raw))


def test_too_many_records_or_bytes_are_refused_with_the_limit_named():
    with pytest.raises(TooLarge, match="BATCH_RECORDS_MAX"):
        encode_batch([b""] * (BATCH_RECORDS_MAX + 1))
    with pytest.raises(TooLarge, match="BATCH_BYTES_MAX"):
        encode_batch([bytes(BATCH_BYTES_MAX)])


def test_the_largest_batches_go_through():
    for bodies in ([b""] * BATCH_RECORDS_MAX, [bytes(BATCH_BYTES_MAX - batch_size(1, 0))]):
        batch = encode_batch(bodies)
        check_batch(batch, len(bodies), crc32(batch))


def test_the_largest_batch_with_keys_goes_through_and_one_byte_more_is_refused():
    body, key = bytes(BATCH_BYTES_MAX - batch_size(1, 0) - 4 - 3), b"key"
    batch = encode_batch([body], [key])
    assert len(batch) == BATCH_BYTES_MAX
    check_batch(batch, 1, crc32(batch))
    with pytest.raises(TooLarge, match="BATCH_BYTES_MAX"):
        encode_batch([body], [key + b"s"])


def test_a_batch_above_the_limit_is_refused_by_the_server_too():
    raw = memoryview(bytearray(BATCH_BYTES_MAX + 1))
    with pytest.raises(DecodeError, match="above"):
        check_batch(raw, 1, 0)
