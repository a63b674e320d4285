"""Outgoing rows become batches: each topic's in the order of their numbers, with what each row asks for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_RECORDS_MAX, DELAY_SECONDS_MAX
from pubsub.client.outgoing.packing import OutgoingRow, decoded_headers, encoded_headers, pack
from pubsub.errors import CallerError
from pubsub.protocol import decode_headers, encode_headers

WALL = 1_000_000.0


def row(id_: int, **facts: Any) -> OutgoingRow:
    values = {"topic": "orders", "key": b"", "headers": None, "body": b"", "due": None, "ttl": None} | facts
    return OutgoingRow(id_, **values)


def test_rows_of_a_topic_are_one_batch_in_the_order_of_their_numbers() -> None:
    rows = [row(3, body=b"c"), row(1, body=b"a"), row(2, topic="bills", body=b"x"), row(4, body=b"d", key=b"k")]
    packed = pack(rows, WALL)
    assert [(topic, [one.bodies for one in batches]) for topic, batches in packed.batches] == [
        ("orders", [[b"a", b"c", b"d"]]),
        ("bills", [[b"x"]]),
    ]
    assert packed.batches[0][1][0].keys == [b"", b"", b"k"]
    assert packed.batches[1][1][0].keys == ()
    assert not packed.refused


def test_a_delay_and_a_time_to_live_become_those_of_the_message() -> None:
    far = int((WALL + DELAY_SECONDS_MAX) * 1e6)
    rows = [row(1, due=5), row(2, due=5), row(3), row(4, due=far + 1), row(5, due=-9)]
    ((_, batches),) = pack(rows, WALL).batches
    assert [(one.due, len(one.bodies)) for one in batches] == [(5, 2), (0, 1), (far, 1), (1, 1)]
    ((_, (batch,)),) = pack([row(1, ttl=1.5, headers='{"a": "b"}'), row(2)], WALL).batches
    assert [decode_headers(block) for block in batch.headers] == [{"a": b"b", "$ttl": b"1.5"}, {}]


def test_a_row_that_cannot_be_a_message_is_refused_and_holds_up_no_other() -> None:
    bad = [
        row(1, topic="$x"), row(2, headers="[]"), row(3, headers='{"a": 1}'), row(4, headers='{"a": {"hex": "x"}}'),
        row(5, headers='{"a b": "c"}'), row(6, ttl=0.0), row(7, body=b"b" * 16_760_833), row(8, headers="nonsense"),
        row(9, headers='{"a": {"hex": "00", "b": ""}}'),
    ]  # fmt: skip
    packed = pack([*bad, row(10, body=b"good")], WALL)
    assert [number for number, _ in packed.refused] == list(range(1, 10))
    assert all(reason and "\n" not in reason for _, reason in packed.refused)
    ((topic, (batch,)),) = packed.batches
    assert (topic, batch.bodies) == ("orders", [b"good"])


def test_many_rows_are_split_into_batches_within_the_limits() -> None:
    packed = pack([row(n) for n in range(BATCH_RECORDS_MAX + 1)], WALL)
    ((_, batches),) = packed.batches
    assert [len(one.bodies) for one in batches] == [BATCH_RECORDS_MAX, 1]


@given(st.dictionaries(st.text("abc-$", min_size=1, max_size=5), st.binary(max_size=20), max_size=5))
def test_headers_come_back_from_a_row(headers: dict[str, bytes]) -> None:
    assert decoded_headers(encoded_headers(headers)) == headers
    encode_headers(headers)


@given(st.text())
def test_only_an_error_of_the_caller_escapes_from_bad_headers(text: str) -> None:
    with suppress(CallerError):
        decoded_headers(text)


def test_bytes_that_postgresql_takes_as_no_text_become_digits() -> None:
    assert encoded_headers({"a": b"\0", "b": b"\xff", "c": "é".encode()}) == (
        '{"a": {"hex": "00"}, "b": {"hex": "ff"}, "c": "é"}'
    )
    with pytest.raises(CallerError, match="headers are an object whose values are texts"):
        decoded_headers("{}}")
