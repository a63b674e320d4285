"""Message IDs, and the common parts of a request and its repeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.http.core.keys import fingerprint, make_id, read_finished, session_of


def test_only_ids_of_the_package_have_a_session_and_a_number() -> None:
    assert session_of(make_id("0" * 16, 12, "f" * 32)) == ("0" * 16, 12)
    for other in ("8e03978e-40d5-43dd-bc93-6894a57f9324", "order-17", f"{'0' * 16}-x-{'f' * 32}", ""):
        assert session_of(other) is None


@pytest.mark.parametrize(("value", "number"), [("17", 17), (None, 0), ("", 0), ("-1", 0), ("x", 0), ("9" * 16, 0)])
def test_a_finished_header_is_a_number_or_nothing(value: str | None, number: int) -> None:
    assert read_finished(value) == number


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.binary()), min_size=2, max_size=2, unique=True))
def test_different_requests_have_different_fingerprints(two: list[tuple[str, str, str, bytes]]) -> None:
    first, second = two
    assert fingerprint(*first) != fingerprint(*second)
    assert fingerprint(*first) == fingerprint(*first)
