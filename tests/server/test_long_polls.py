"""GETs that wait."""

from __future__ import annotations

from collections import Counter

from pubsub.protocol import Get
from pubsub.server.state.long_polls import LongPolls, Poll
from pubsub.server.state.replies import Origin, Replies


def poll(topic: str, who: str, expires: float, wait_ms: int = 1000) -> Poll:
    return Poll(Origin(0, b"c", 1), Get(who, topic, None, 5, 5, wait_ms=wait_ms), expires)


def ready(polls: LongPolls) -> dict[str, set[str]]:
    return {topic: {poll.get.sender for poll in waiting} for topic, waiting in polls.ready()}


def test_one_that_is_parked_is_looked_at_at_once_and_then_when_something_comes() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    assert polls.deadline() == float("-inf")
    assert ready(polls) == {"t": {"bob"}}
    assert not polls.has_ready()
    polls.appended("u")
    assert not polls.has_ready()
    polls.appended("t")
    assert ready(polls) == {"t": {"bob"}}


def test_one_whose_wait_is_over_is_looked_at() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    polls.park(poll("t", "carol", 12.0))
    ready(polls)
    assert polls.deadline() == 10.0
    polls.tick(9.9)
    assert not polls.has_ready()
    polls.tick(10.0)
    assert ready(polls) == {"t": {"bob", "carol"}}
    assert polls.deadline() == 12.0


def test_a_later_one_of_the_same_subscriber_takes_the_place() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    later = poll("t", "bob", 20.0)
    polls.park(later)
    assert [waiting for _, waiting in polls.ready()] == [[later]]
    polls.tick(10.0)
    assert not polls.has_ready()
    assert polls.take("t", "bob") is later
    assert polls.take("t", "bob") is None
    assert not polls.waits("t", "bob")


def test_a_topic_that_was_not_served_to_the_end_is_looked_at_again() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    for topic, _ in polls.ready():
        polls.look_again(topic)
    assert ready(polls) == {"t": {"bob"}}


def test_a_subscriber_that_asks_for_ever_costs_no_memory() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    for number in range(10_000):
        polls.park(poll("t", "bob", 1000.0 + number))
        polls.park(poll(f"u{number}", "bob", 1000.0))
        polls.take(f"u{number}", "bob")
        ready(polls)
    assert len(polls._expiries) < 200
    assert polls._count == 1
    assert set(polls._waiting) == {"t"}
