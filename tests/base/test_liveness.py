"""Heartbeats both ways: the time after which a peer counts as dead, and the time of the next heartbeat."""

import pytest

from pubsub.base.liveness import Liveness


@pytest.fixture
def peer() -> Liveness:
    return Liveness(interval=1.0, liveness=3, now=100.0)


def test_a_new_peer_counts_as_alive(peer):
    assert peer.alive(100.0)
    assert peer.alive(102.9)


def test_a_peer_is_dead_after_liveness_intervals_of_silence(peer):
    assert not peer.alive(103.0)
    assert peer.expiry() == 103.0
    assert peer.silence(104.5) == 4.5


def test_any_sign_of_life_restarts_the_patience(peer):
    peer.received(102.5)
    assert peer.alive(105.4)
    assert not peer.alive(105.5)


def test_a_dead_peer_lives_again_after_a_message(peer):
    assert not peer.alive(200.0)
    peer.received(200.0)
    assert peer.alive(200.0)


def test_a_forgotten_peer_is_dead_at_once_until_its_next_message(peer):
    peer.forget()
    assert not peer.alive(100.0)
    peer.received(100.1)
    assert peer.alive(100.1)


def test_the_first_heartbeat_is_due_at_once(peer):
    assert peer.due(100.0)
    assert peer.deadline() == 100.0


def test_a_busy_link_carries_no_heartbeat(peer):
    for now in (100.0, 100.9, 101.8, 102.7):
        peer.sent(now)
        assert not peer.due(now + 0.5)
    assert peer.due(103.7)
    assert peer.deadline() == 103.7


def test_a_link_is_due_at_its_deadline_despite_rounding() -> None:
    for thousandths in range(5000):
        link = Liveness(0.1, 3, thousandths / 1000)
        link.sent(thousandths / 1000)
        assert link.due(link.deadline())
