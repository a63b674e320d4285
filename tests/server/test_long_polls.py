"""GETs that wait."""

from __future__ import annotations

from collections import Counter

from pubsub.protocol import Get, Outcome
from pubsub.server.state.long_polls import LongPolls, Poll
from pubsub.server.state.replies import Origin, Replies
from pubsub.server.topic.subscription import SubscriptionRow, subscription_of


def poll(topic: str, who: str, expires: float, wait_ms: int = 1000, subscription: str = "") -> Poll:
    return Poll(Origin(0, b"c", 1), Get(who, topic, None, 5, 5, wait_ms=wait_ms), subscription or who, expires)


def ready(polls: LongPolls) -> dict[str, set[str]]:
    return {topic: {poll.get.sender for poll in waiting} for topic, waiting in polls.ready()}


def test_a_parked_poll_is_checked_at_once_and_when_a_message_comes() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    assert polls.deadline() == float("-inf")
    assert ready(polls) == {"t": {"bob"}}
    assert not polls.has_ready()
    polls.appended("u")
    assert not polls.has_ready()
    polls.appended("t")
    assert ready(polls) == {"t": {"bob"}}


def test_a_poll_whose_wait_is_over_is_checked() -> None:
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


def test_a_later_poll_of_the_same_subscriber_replaces_the_earlier_one() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    later = poll("t", "bob", 20.0)
    polls.park(later)
    assert [waiting for _, waiting in polls.ready()] == [[later]]
    polls.tick(10.0)
    assert not polls.has_ready()
    assert polls.waits("t", "bob")
    polls.take(later)
    assert not polls.waits("t", "bob")
    polls.take(later)
    assert len(polls) == 0


def test_consumers_of_one_subscription_wait_beside_each_other() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    bob, carol = (poll("t", who, 10.0, subscription="@archive") for who in ("bob", "carol"))
    own = poll("t", "bob", 12.0)
    for one in (bob, carol, own):
        polls.park(one)
    assert [waiting for _, waiting in polls.ready()] == [[bob, carol, own]]
    polls.take(bob)
    assert polls.waits("t", "@archive")
    assert polls.waits("t", "bob")
    polls.take(carol)
    assert not polls.waits("t", "@archive")
    assert len(polls) == 1


def test_a_replaced_poll_removes_nothing() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    earlier, later = poll("t", "bob", 10.0), poll("t", "bob", 20.0)
    polls.park(earlier)
    polls.park(later)
    polls.take(earlier)
    assert [waiting for _, waiting in polls.ready()] == [[later]]


def test_polls_that_a_newer_subscription_outdates_are_answered() -> None:
    replies = Replies("s1", Counter())
    polls = LongPolls(replies)
    for who in ("bob", "carol"):
        polls.park(poll("t", who, 10.0, subscription="bob"))
    polls.park(poll("t", "dan", 10.0))
    row = SubscriptionRow(6, 6, True, 0, ("a" * 16, 0), ())
    polls.end_outdated("t", "bob", subscription_of("bob", row))
    assert [answer.outcome for _, answer in replies.take()] == [Outcome.SUPERSEDED] * 2
    assert ready(polls) == {"t": {"dan"}}


def test_a_topic_not_served_to_the_end_is_checked_again() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    polls.park(poll("t", "bob", 10.0))
    for topic, _ in polls.ready():
        polls.look_again(topic)
    assert ready(polls) == {"t": {"bob"}}


def test_a_subscriber_with_endless_polls_costs_no_memory() -> None:
    polls = LongPolls(Replies("s1", Counter()))
    for number in range(10_000):
        polls.park(poll("t", "bob", 1000.0 + number))
        other = poll(f"u{number}", "bob", 1000.0)
        polls.park(other)
        polls.take(other)
        ready(polls)
    assert len(polls._expiries) < 200
    assert polls._count == 1
    assert set(polls._waiting) == {"t"}
