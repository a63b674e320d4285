"""The time for which a GET may be held, and the time of the next one."""

from __future__ import annotations

import pytest

from pubsub.client.core.long_poll import ACKNOWLEDGE_SECONDS, WAIT_SECONDS, WAIT_SECONDS_MAX, LongPoll


@pytest.fixture
def poll() -> LongPoll:
    """A GET sent at 10 s, which may be held for a second."""
    made = LongPoll()
    made.sent(10.0, WAIT_SECONDS, asks=True)
    return made


def test_empty_polls_double_their_wait_up_to_a_limit(poll: LongPoll) -> None:
    waits = []
    for _ in range(5):
        waits.append(poll.wait)
        poll.sent(10.0, poll.wait, asks=True)
        poll.answered(empty=True)
        assert not poll.hungry
    assert waits == [1.0, 2.0, 4.0, 8.0, WAIT_SECONDS_MAX]


def test_a_poll_with_messages_is_followed_at_once_by_a_short_one(poll: LongPoll) -> None:
    poll.answered(empty=True)
    poll.answered(empty=False)
    assert (poll.hungry, poll.wait) == (True, WAIT_SECONDS)


def test_an_unheld_poll_does_not_count_for_the_quietness_of_a_topic(poll: LongPoll) -> None:
    poll.answered(empty=True)
    poll.sent(11.0, 0.0, asks=False)
    poll.answered(empty=True)
    assert (poll.asks, poll.wait) == (False, WAIT_SECONDS)


@pytest.mark.parametrize(
    ("until", "now", "beyond"),
    [(19.0, 11.5, True), (19.0, 11.0, False), (20.0, 11.5, False), (21.0, 15.0, False)],
)
def test_a_poll_held_beyond_a_call_is_known(until: float, now: float, beyond: bool) -> None:
    poll = LongPoll()
    poll.sent(10.0, 10.0, asks=True)
    assert poll.held_beyond(until, now) is beyond


def test_safe_messages_are_acknowledged_soon_and_at_once_at_the_end(poll: LongPoll) -> None:
    poll.answered(empty=False)
    assert poll.acknowledge_at() == 10.0 + ACKNOWLEDGE_SECONDS
    poll.stop()
    assert poll.acknowledge_at() == float("-inf")
    assert not poll.hungry


def test_an_unanswered_poll_stops_polling_and_a_new_subscription_restarts(poll: LongPoll) -> None:
    poll.answered(empty=False)
    poll.unanswered()
    assert not poll.hungry
    poll.answered(empty=True)
    poll.restart()
    assert (poll.hungry, poll.wait) == (False, WAIT_SECONDS)
