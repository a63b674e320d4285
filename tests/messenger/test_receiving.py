"""Whole messages as copied bytes, bounded."""

from __future__ import annotations

import pytest
import zmq

from pubsub.messenger.receiving import receive_copied


@pytest.fixture
def pair():
    with zmq.Context() as context:
        one, two = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        one.bind("inproc://pair")
        two.connect("inproc://pair")
        yield one, two
        context.destroy(0)


def test_received_frames_are_copies(pair):
    one, two = pair
    one.send_multipart([b"a", b"", b"b" * 100_000])
    assert receive_copied(two, 3, 100_001) == [b"a", b"", b"b" * 100_000]
    assert receive_copied(two, 3, 100_001) is None


@pytest.mark.parametrize("frames", [[b"a"] * 4, [b"a" * 11], [b"a" * 6, b"b" * 5]], ids=range(3))
def test_a_too_large_message_is_taken_completely_and_dropped(pair, frames):
    one, two = pair
    one.send_multipart(frames)
    one.send(b"next")
    assert receive_copied(two, 3, 10) == []
    assert receive_copied(two, 3, 10) == [b"next"]
