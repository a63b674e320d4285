from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from pubsub.gateway.webhooks.signing import format_secret, parse_secret, signature


@given(st.binary(min_size=24, max_size=64), st.text("0123456789abcdef-", min_size=1), st.integers(0, 4_000_000_000))
def test_the_standards_own_library_signs_alike(secret: bytes, message_id: str, timestamp: int) -> None:
    body = '{"a": "ü"}'
    theirs = Webhook(format_secret(secret)).sign(message_id, datetime.fromtimestamp(timestamp, UTC), body)
    assert signature([secret], message_id, timestamp, body.encode()) == theirs


@given(st.binary(min_size=24, max_size=64))
def test_a_written_secret_is_read_back(secret: bytes) -> None:
    assert parse_secret(format_secret(secret)) == secret


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_AAAA", "whsec_!!!!", "AAAA" * 10, "whsec_" + "A" * 200, "whsec_AAA"]
)
def test_an_invalid_secret_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_secret(text)
    assert len(text) < 7 or text not in str(raised.value)
