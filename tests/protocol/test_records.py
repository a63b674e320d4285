"""The body of an answer: parts of stored batches joined, and taken apart again."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_RECORDS_MAX, BODY_BYTES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Records, RecordsBuilder, encode_batch, encode_headers
from pubsub.protocol.records import check_publisher

LOGS = ["0123456789abcdef", "fedcba9876543210"]
PUBLISHERS = ["billing/0123456789abcdef", "shop/00000000000000ff"]


@st.composite
def parts(draw):
    bodies = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=12))
    first = draw(st.integers(0, len(bodies) - 1))
    stop = draw(st.integers(first + 1, len(bodies)))
    place = draw(st.integers(0, 2**40)), draw(st.integers(1, 2**62)), draw(st.integers(0, 2**62))
    return draw(st.sampled_from(LOGS)), draw(st.sampled_from(PUBLISHERS)), *place, bodies, first, stop


answers = st.lists(parts(), min_size=1, max_size=8)


def keys_of(bodies: list[bytes]) -> list[bytes]:
    """Keys for some batches and not for others, of all or some of their records."""
    return [body[:2] for body in bodies] if len(bodies) % 3 == 0 else []


def headers_of(bodies: list[bytes]) -> list[bytes]:
    """Headers for some batches and not for others, of all or some of their records."""
    return [encode_headers({"h": body} if len(body) > 9 else {}) for body in bodies] if len(bodies) % 2 == 0 else []


def build(answer, keyed: bool = False, headed: bool = False) -> bytes:
    builder = RecordsBuilder()
    for log, publisher, offset, counter, stamp, bodies, first, stop in answer:
        batch = encode_batch(bodies, keys_of(bodies) if keyed else (), headers_of(bodies) if headed else ())
        builder.add(log, offset, publisher, counter, stamp, batch, first, stop)
    return builder.build()


@given(answers)
def test_keys_are_read_with_their_records(answer):
    body = build(answer, keyed=True)
    records = Records(body)
    assert list(records.bodies()) == list(Records(build(answer)).bodies())
    expected = [(keys_of(bodies) or [b""] * len(bodies))[first:stop] for *_, bodies, first, stop in answer]
    assert [list(run.keys) or [b""] * len(run.ends) for run in records.runs] == expected
    assert (body == build(answer)) == (not any(map(any, expected)))


@given(answers, st.booleans())
def test_headers_are_read_with_their_records_with_and_without_keys(answer, keyed):
    body = build(answer, keyed=keyed, headed=True)
    records, without = Records(body), Records(build(answer, keyed=keyed))
    assert list(records.bodies()) == list(without.bodies())
    assert [list(run.keys) for run in records.runs] == [list(run.keys) for run in without.runs]
    expected = [(headers_of(bodies) or [b""] * len(bodies))[first:stop] for *_, bodies, first, stop in answer]
    assert [list(run.headers) or [b""] * len(run.ends) for run in records.runs] == expected
    assert (body == build(answer, keyed=keyed)) == (not any(map(any, expected)))


@given(answers)
def test_parts_of_batches_are_read_back_unchanged(answer):
    records = Records(build(answer))
    assert records.count == sum(part[-1] - part[-2] for part in answer)
    assert list(records.bodies()) == [body for *_, bodies, first, stop in answer for body in bodies[first:stop]]
    assert len(records.runs) == len(answer)
    for run, (log, publisher, offset, counter, stamp, _, first, stop) in zip(records.runs, answer, strict=True):
        assert (run.log, run.offset, run.publisher, run.counter, run.stamp) == (log, offset, publisher, counter, stamp)
        assert run.last == (log, offset + stop - first - 1)


@given(answers)
def test_the_builder_knows_its_size(answer):
    builder = RecordsBuilder()
    for log, publisher, offset, counter, stamp, bodies, first, stop in answer:
        builder.add(log, offset, publisher, counter, stamp, memoryview(encode_batch(bodies)), first, stop)
    records = Records(builder.build())
    assert builder.records == records.count
    assert builder.data_bytes == records.size


@given(answers, st.booleans(), st.booleans(), st.data())
def test_a_mutated_body_raises_only_decode_error(answer, keyed, headed, data):
    raw = bytearray(build(answer, keyed, headed))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    mutated = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)
    try:
        records = Records(mutated)
    except DecodeError:
        return
    assert sum(map(len, records.bodies())) == records.size
    assert len(list(records.bodies())) == records.count


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_decode_error(raw):
    with pytest.raises(DecodeError):
        Records(b"\x00" + raw)
    with contextlib.suppress(DecodeError):
        Records(raw)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=5), st.binary(max_size=60))
def test_forged_counts_raise_only_decode_error(counts, rest):
    with pytest.raises(DecodeError):
        Records(struct.pack("<BBHIIIII", 2, 0, 0, *counts) + rest)


@pytest.mark.parametrize("count", [BATCH_RECORDS_MAX, 2**32 - 1])
@pytest.mark.parametrize("place", range(5))
def test_a_forged_huge_count_allocates_nothing(place, count):
    counts = [1, 1, 1, 1, 41]
    counts[place] = count
    if place == 0:
        counts[1] = count
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            Records(struct.pack("<BBHIIIII", 2, 0, 0, *counts) + bytes(200))
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_a_body_above_the_limit_is_refused():
    with pytest.raises(DecodeError):
        Records(bytes(BODY_BYTES_MAX + 1))


def test_ten_thousand_small_puts_become_one_body():
    builder = RecordsBuilder()
    batch = encode_batch([b"x" * 10])
    for offset in range(1, 10_001):
        builder.add(LOGS[0], offset, PUBLISHERS[0], offset, offset, batch, 0, 1)
    records = Records(builder.build())
    assert records.count == 10_000
    assert records.runs[-1].last == (LOGS[0], 10_000)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "billing",
        "billing/",
        "a b/0123456789abcdef",
        "../0123456789abcdef",
        "billing/0123456789abcdeg",
        "x/y/0123456789abcdef",
        "billing/0123456789abcdef/x",
    ],
)
def test_an_invalid_publisher_is_refused(name):
    with pytest.raises(DecodeError):
        check_publisher(name)


def test_a_publisher_is_a_client_and_its_store():
    assert check_publisher(PUBLISHERS[0]) == PUBLISHERS[0]
