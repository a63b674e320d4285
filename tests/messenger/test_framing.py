"""The payload's prefix: three numbers, three hyphens, then anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.messenger.framing import FIRST_CALLBACK, PREFIX_LENGTH_MAX, Callback, pack, unpack

numbers = st.integers(0, NUMBER_MAX)


@given(numbers, numbers, numbers, st.binary(max_size=50))
def test_a_prefix_round_trips_and_says_where_the_contents_begin(message_id, source, destination, contents):
    payload = pack(message_id, source, destination) + contents
    for form in (payload, memoryview(payload)):
        prefix = unpack(form)
        assert prefix[:3] == (message_id, source, destination)
        assert form[prefix.length :] == contents
        assert prefix.length <= PREFIX_LENGTH_MAX


def test_a_prefix_has_the_format_of_the_messenger_document():
    assert pack(7, 16, 0) + b"hello" == b"7-16-0-hello"


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_decode_error(payload):
    try:
        prefix = unpack(payload)
    except DecodeError:
        return
    assert pack(*prefix[:3]) == payload[: prefix.length]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"1-2-3",
        b"1-2-",
        b"-1-2-3-",
        b"01-2-3-",
        b"+1-2-3-",
        b" 1-2-3-",
        b"1-2-a-",
        b"1--2-3-",
        b"9223372036854775808-0-0-",
        b"0-0-9223372036854775808-",
        b"9" * 10_000 + b"-0-0-",
        "\u0661-0-0-".encode(),
    ],
)
def test_a_prefix_without_three_numbers_of_63_bits_is_refused(payload):
    with pytest.raises(DecodeError):
        unpack(payload)


def test_the_built_in_callbacks_keep_their_numbers():
    assert (Callback.NOOP, Callback.ECHO, Callback.ACK, FIRST_CALLBACK) == (0, 1, 2, 16)
