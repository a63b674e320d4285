"""Headers of a message: round trip, limits, and arbitrary bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import MESSAGE_HEADER_NAME_LENGTH_MAX, MESSAGE_HEADERS_BYTES_MAX, MESSAGE_HEADERS_MAX
from pubsub.errors import DecodeError, InvalidName, TooLarge
from pubsub.protocol import decode_headers, encode_headers

names = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="="),
    min_size=1,
    max_size=MESSAGE_HEADER_NAME_LENGTH_MAX,
)
headers = st.dictionaries(names, st.binary(max_size=300), max_size=MESSAGE_HEADERS_MAX)


@given(headers)
def test_headers_round_trip_in_their_order(found):
    block = encode_headers(found)
    assert list(decode_headers(block).items()) == list(found.items())
    assert (block == b"") == (found == {})


@given(headers, st.data())
def test_forged_headers_are_refused_or_sound(found, data):
    block = bytearray(encode_headers(found | {"a": b"1"}) if len(found) < 16 else encode_headers(found))
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(block[: data.draw(st.integers(0, len(block)))]) + data.draw(st.binary(max_size=4))
    with contextlib.suppress(DecodeError):
        assert encode_headers(decode_headers(raw)) == raw


@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_only_decode_error(raw):
    with contextlib.suppress(DecodeError):
        assert encode_headers(decode_headers(raw)) == raw


@pytest.mark.parametrize("name", ["", "a b", "a=b", "é", "tab\t", "x" * (MESSAGE_HEADER_NAME_LENGTH_MAX + 1), "line\n"])
def test_an_invalid_name_is_refused(name):
    with pytest.raises(InvalidName, match="header name"):
        encode_headers({name: b""})


def test_too_many_headers_are_refused_and_so_are_too_large_ones():
    with pytest.raises(TooLarge, match="MESSAGE_HEADERS_MAX"):
        encode_headers({f"h{n}": b"" for n in range(MESSAGE_HEADERS_MAX + 1)})
    fits = MESSAGE_HEADERS_BYTES_MAX - 4
    assert decode_headers(encode_headers({"h": bytes(fits)})) == {"h": bytes(fits)}
    with pytest.raises(TooLarge, match="MESSAGE_HEADERS_BYTES_MAX"):
        encode_headers({"h": bytes(fits + 1)})


def test_a_repeated_name_is_refused_by_the_decoder():
    one = encode_headers({"h": b"1"})
    with pytest.raises(DecodeError, match="each name once"):
        decode_headers(one + one)
    with pytest.raises(DecodeError, match="at most"):
        decode_headers(b"".join(encode_headers({f"h{n}": b""}) for n in range(MESSAGE_HEADERS_MAX + 1)))
