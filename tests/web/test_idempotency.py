"""The header Idempotency-Key, as draft 07 and RFC 9651 have it, and as gateways have stored it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.web.idempotency import KEY_LENGTH_MAX, BadKey, check_key, read_key, write_key

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=KEY_LENGTH_MAX)


@given(PRINTABLE)
def test_a_written_key_is_read_back(key: str) -> None:
    assert read_key(write_key(key)) == key


@given(st.text(max_size=400))
def test_any_text_gives_a_valid_key_or_an_error(text: str) -> None:
    try:
        key = read_key(text)
    except BadKey:
        return
    assert check_key(key) == key


@pytest.mark.parametrize("value", ["8e03978e-40d5-43dd-bc93-6894a57f9324", "k", "a.b_c~d:e/f+g=h@i*j"])
def test_one_word_without_quotes_is_the_same_key(value: str) -> None:
    assert read_key(value) == read_key(f'"{value}"') == value


@pytest.mark.parametrize("value", ["", '""', '"a', "a b", '"ä"', '"a";b=1', "x" * 256, '"\\a"'])
def test_an_invalid_key_is_refused(value: str) -> None:
    with pytest.raises(BadKey):
        read_key(value)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=250))
def test_a_verbatim_key_may_be_in_quotes(key: str) -> None:
    if key.strip() == key and not (len(key) > 1 and key[0] == key[-1] == '"'):
        assert read_key(f' "{key}" ', verbatim=True) == read_key(key, verbatim=True) == key


@pytest.mark.parametrize("header", ["", '""', "x" * 256, "a\tb", "ü"])
def test_an_invalid_verbatim_key_is_refused(header: str) -> None:
    with pytest.raises(BadKey) as raised:
        read_key(header, verbatim=True)
    assert raised.value.status == 400
