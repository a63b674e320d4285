"""Pending messages: the same bytes again and again, ever more slowly, until they are retired."""

import random

import pytest

from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.peer import Link, Peer
from pubsub.messenger.pending import PendingMessages

LIMITS = MessengerLimits(retry_seconds=1.0, retry_seconds_max=8.0)


class Middle:
    """No jitter."""

    def random(self) -> float:
        return 0.5


@pytest.fixture
def peer() -> Peer:
    return Peer(Link("inproc://a", None, idempotent=False, opened=False), b"")


@pytest.fixture
def pending() -> PendingMessages:
    return PendingMessages(LIMITS, Middle())


def test_delays_double_up_to_the_limit(pending, peer):
    pending.add(peer, 1, b"head", (), 0, now=0.0)
    times = []
    for _ in range(6):
        now = pending.deadline()
        times.append(now)
        assert len(list(pending.due(now))) == 1
    assert times == [1.0, 3.0, 7.0, 15.0, 23.0, 31.0]


def test_no_message_is_due_before_its_time(pending, peer):
    pending.add(peer, 1, b"head", (), 0, now=0.0)
    assert not list(pending.due(0.99))
    assert list(pending.due(1.0))


def test_a_retry_is_the_same_bytes(pending, peer):
    body = memoryview(b"body")
    pending.add(peer, 1, b"head", (body,), 0, now=0.0)
    for now in (1.0, 3.0):
        (message,) = pending.due(now)
        assert (message.head, message.parts) == (b"head", (body,))
        assert message.parts[0] is body


def test_a_retired_message_is_not_sent_again_and_frees_its_bytes(pending, peer):
    message = pending.add(peer, 1, b"head", (b"body",), 0, now=0.0)
    assert (pending.count, pending.size) == (1, 8)
    pending.retire(message)
    pending.retire(message)
    assert (pending.count, pending.size) == (0, 0)
    assert message.parts == ()
    assert not peer.pending
    assert pending.deadline() is None
    assert not list(pending.due(100.0))


def test_a_message_retired_while_due_is_not_scheduled_again(pending, peer):
    pending.add(peer, 1, b"head", (), 0, now=0.0)
    for message in pending.due(1.0):
        pending.retire(message)
    assert pending.deadline() is None


def test_the_deadline_is_that_of_the_earliest(pending, peer):
    early = pending.add(peer, 1, b"", (), 0, now=0.0)
    pending.add(peer, 2, b"", (), 0, now=0.5)
    assert pending.deadline() == 1.0
    pending.retire(early)
    assert pending.deadline() == 1.5


def test_jitter_moves_each_delay_by_up_to_a_quarter_and_comes_from_the_seed(peer):
    def times(seed: int) -> list[float]:
        pending = PendingMessages(LIMITS, random.Random(seed))
        for message_id in range(200):
            pending.add(peer, message_id, b"", (), 0, now=0.0)
        return [time for time, _, _ in pending._queue]

    assert times(1) == times(1) != times(2)
    assert 0.75 <= min(times(1)) < 0.8
    assert 1.2 < max(times(1)) <= 1.25
