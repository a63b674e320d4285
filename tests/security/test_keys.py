"""Keys as text: one spelling each, and no error that repeats a secret."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import InvalidKey
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import format_public, format_secret, parse_public, parse_secret
from pubsub.security.pairs import new_pair, pair_of
from tests.security.keyring import key, pk, public_keys

DIGITS = string.ascii_letters + string.digits + "-_"


@given(public_keys)
def test_a_written_public_key_is_read_back(raw: bytes) -> None:
    text = format_public(raw)
    assert len(text) == 46
    assert parse_public(text) == raw


@given(st.binary(min_size=32, max_size=32))
def test_a_written_secret_key_is_read_back(raw: bytes) -> None:
    assert parse_secret(format_secret(raw)) == raw


@given(st.one_of(st.text(), st.text(DIGITS, min_size=43, max_size=43).map("pk_".__add__)))
def test_any_text_is_the_one_spelling_of_a_key_or_is_refused(text: str) -> None:
    try:
        raw = parse_public(text)
    except InvalidKey:
        return
    assert format_public(raw) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not begin with pk_"),
        (pk("a")[3:], "does not begin with pk_"),
        (pk("a").upper(), "does not begin with pk_"),
        (pk("a")[:-1], "43 characters"),
        (pk("a") + "A", "43 characters"),
        (pk("a") + "\n", "43 characters"),
        (pk("a")[:-1] + "=", "43 characters"),
        (pk("a")[:-2] + "+/", "43 characters"),
        (pk("a")[:-1] + "é", "43 characters"),
        (pk("a")[:-1] + "B", "last character"),
        (format_public(b"\xff" * 32), "no valid"),
        (format_public(key("a")[:31] + bytes([key("a")[31] | 0x80])), "no valid"),
        (format_public(bytes(32)), "no valid"),
        (format_public(b"\x01" + bytes(31)), "no valid"),
        (format_public(bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")), "no valid"),
        (format_public(bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157")), "no valid"),
        (format_public(bytes.fromhex("ec" + "ff" * 30 + "7f")), "no valid"),
        (format_secret(key("a")), "it is a secret key"),
    ],
)
def test_an_invalid_public_key_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        parse_public(text)


@pytest.mark.parametrize(
    "text", [pk("a"), format_secret(key("a"))[:-1], "sk_" + "!" * 43, format_secret(key("a"))[:-1] + "B"]
)
def test_an_invalid_secret_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidKey) as raised:
        parse_secret(text)
    assert text[3:20] not in str(raised.value)
    assert text[3:20] not in repr(raised.value)


def test_a_secret_key_in_the_place_of_a_public_one_is_not_repeated() -> None:
    secret = format_secret(key("a"))
    with pytest.raises(InvalidKey) as raised:
        parse_public(secret)
    assert secret[3:20] not in f"{raised.value}{raised.value!r}"


def test_invalid_bytes_of_a_key_have_no_text() -> None:
    with pytest.raises(InvalidKey, match="31 bytes"):
        format_public(bytes(31))


def test_a_fingerprint_is_eight_hex_digits_that_differ_from_key_to_key() -> None:
    found = {fingerprint(key(str(number))) for number in range(1000)}
    assert len(found) == 1000
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in found)


def test_a_pair_is_new_each_time_and_its_public_half_follows_from_the_secret_one() -> None:
    pair, other = new_pair(), new_pair()
    assert pair != other
    assert pair_of(pair.secret) == pair
    assert parse_public(format_public(pair.public)) == pair.public


def test_a_printed_pair_does_not_show_its_secret_half() -> None:
    pair = new_pair()
    assert repr(pair.secret) not in repr(pair)
    assert repr(pair.public) in repr(pair)
