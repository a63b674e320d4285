"""The messages between two members: lists of entries round-trip, and invalid ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import decode
from pubsub.protocol.standby import (
    ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    IDS_MAX,
    ROOT,
    EntryId,
    Listed,
    join_entries,
    join_ids,
    split_entries,
    split_ids,
)

numbers = st.integers(0, NUMBER_MAX)
ids = st.builds(EntryId, numbers, numbers)


def chain(count: int) -> list[Listed]:
    return [Listed(EntryId(3, n), EntryId(3, n - 1) if n > 1 else ROOT, n, n) for n in range(1, count + 1)]


@given(st.lists(ids, min_size=1, max_size=20))
def test_ids_round_trip(some: list[EntryId]) -> None:
    assert split_ids(join_ids(some)) == some


@given(st.lists(st.tuples(numbers, st.integers(1, ENTRY_BYTES_MAX), st.integers(0, 2**32 - 1)), max_size=9))
def test_entries_round_trip(some: list[tuple[int, int, int]]) -> None:
    places = [EntryId(term, number) for number, term in enumerate(sorted(term for term, _, _ in some), 1)]
    listed = [
        Listed(place, before, size, checksum)
        for place, before, (_, size, checksum) in zip(places, [ROOT, *places], some, strict=False)
    ]
    assert split_entries(join_entries(listed)) == listed


@pytest.mark.parametrize("count", [ENTRIES_MAX, ENTRIES_MAX + 1])
def test_a_list_of_entries_has_a_limit(count: int) -> None:
    body = join_entries(chain(count))
    if count > ENTRIES_MAX:
        with pytest.raises(DecodeError, match="1001 entries, above 1000"):
            split_entries(body)
    else:
        assert len(split_entries(body)) == count


def test_a_list_of_ids_has_a_limit() -> None:
    some = [one.id for one in chain(IDS_MAX + 2)]
    assert split_ids(join_ids(some[:-1])) == some[:-1]
    with pytest.raises(DecodeError):
        split_ids(join_ids(some))


@pytest.mark.parametrize(
    "body",
    [
        b"1.1=0.0,0,5",  # of no bytes
        b"1.1=0.0,%d,5" % (ENTRY_BYTES_MAX + 1),
        b"1.1=0.0,1,4294967296",
        b"1.1=1.1,1,5",  # follows itself
        b"1.1=2.0,1,5",  # follows a later one
        b"1.1=0.0,1,5 1.3=1.2,1,5",  # one is missing between them
        b"1.1=0.0,1",
        b"1.1=0.0,1,5,6",
        b"1.1",
        b"11=0.0,1,5",
        b"1.01=0.0,1,5",
        b"1.1=0.0,1,5  ",
        b"\xff",
    ],
)
def test_an_invalid_list_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        split_entries(body)


@pytest.mark.parametrize("body", [b"", b"1", b"1.", b"-1.2", b"1.1,", b"1.1 ", b"1.%d" % 2**63, b"\xc3\xa4"])
def test_invalid_ids_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        split_ids(body)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_a_refusal(body: bytes) -> None:
    for split in (split_ids, split_entries):
        try:
            split(body)
        except DecodeError:
            continue


MEMBER = b"s1 " + b"0" * 16 + b" " + b"a" * 16


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"ENTRY %b term=1 loop=1 end=1 committed=0.0", "not an entry"),
        (b"ENTRY %b term=1 loop=1 committed=0.0", "without end"),
        (b"ENTRY %b term=1 loop=1 end=1.1 committed=0.0 hand=2", "not 0 or 1"),
        (b"ENTRY s1 x %b term=1", "16 hex digits"),
        (b"ACK %b term=1 loop=1", "without durable"),
        (b"COPY %b steal token=1", "not a step of a copy"),
        (b"REPAIR %b steal term=1 log=1 offset=1", "not a step of a repair"),
        (b"REPAIR %b wanted term=1 log=1", "without offset"),
        (b"FOLLOW %b known=1", "without token"),
    ],
)
def test_an_invalid_header_is_refused(header: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode(header % MEMBER + b" !v=1\r\n\r\n")
