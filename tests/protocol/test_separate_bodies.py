"""A body in a frame of its own is neither copied nor read beyond its limit."""

import tracemalloc

import pytest

from pubsub.base.limits import BODY_BYTES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import decode, encode
from tests.protocol.test_codec import HEAD


def test_a_body_above_the_limit_is_refused_before_it_is_read():
    huge = memoryview(bytearray(BODY_BYTES_MAX + 1))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="body of"):
            decode(HEAD, huge)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_body_is_handed_on_uncopied():
    body = memoryview(bytearray(1_000_000))
    assert decode(HEAD, body).body is body
    message = decode(HEAD, body)
    assert encode(message)[1] is body
