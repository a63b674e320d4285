"""Message IDs and the header Idempotency-Key, as draft 07 and RFC 9651 have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.http.core.keys import (
    BadKey,
    check_key,
    fingerprint,
    make_id,
    read_finished,
    read_key,
    session_of,
    write_key,
)
from pubsub.http.core.limits import KEY_LENGTH_MAX

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=KEY_LENGTH_MAX)


@given(PRINTABLE)
def test_a_key_comes_back_as_it_was_written(key: str) -> None:
    assert read_key([write_key(key)]) == key


@given(st.text(max_size=400))
def test_of_any_text_only_a_key_or_that_it_is_none_comes(text: str) -> None:
    try:
        key = read_key([text])
    except BadKey:
        return
    assert check_key(key) == key


@pytest.mark.parametrize("value", ["8e03978e-40d5-43dd-bc93-6894a57f9324", "k", "a.b_c~d:e/f+g=h@i*j"])
def test_one_word_without_quotes_is_the_same_key(value: str) -> None:
    assert read_key([value]) == read_key([f'"{value}"']) == value


@pytest.mark.parametrize(
    "values", [[], ["", "a"], ["a", "a"], [""], ['""'], ['"a'], ["a b"], ['"ä"'], ['"a";b=1'], ["x" * 256], ['"\\a"']]
)
def test_what_is_no_key_is_refused(values: list[str]) -> None:
    with pytest.raises(BadKey):
        read_key(values)


def test_an_id_of_ours_has_a_session_and_a_number_and_no_other_key_has() -> None:
    assert session_of(make_id("0" * 16, 12, "f" * 32)) == ("0" * 16, 12)
    for other in ("8e03978e-40d5-43dd-bc93-6894a57f9324", "order-17", f"{'0' * 16}-x-{'f' * 32}", ""):
        assert session_of(other) is None


@pytest.mark.parametrize(("value", "number"), [("17", 17), (None, 0), ("", 0), ("-1", 0), ("x", 0), ("9" * 16, 0)])
def test_what_is_finished_is_a_number_or_nothing(value: str | None, number: int) -> None:
    assert read_finished(value) == number


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.binary()), min_size=2, max_size=2, unique=True))
def test_different_requests_have_different_fingerprints(two: list[tuple[str, str, str, bytes]]) -> None:
    first, second = two
    assert fingerprint(*first) != fingerprint(*second)
    assert fingerprint(*first) == fingerprint(*first)
