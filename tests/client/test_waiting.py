"""Messages that were put aside: which one is next, and how many there may be."""

from __future__ import annotations

from math import inf

import pytest

from pubsub.client.core import waiting as module
from pubsub.client.core.changes import WaitingDropped
from pubsub.client.core.outcomes import LATER_SECONDS_MAX, Later, Reject
from pubsub.client.core.waiting import Waiting, WaitingMessages, backoff, check_hold, seconds_left
from pubsub.errors import CallerError


def row(number: int, *, lane: bytes = b"", due: float = 0.0, topic: str = "t", size: int = 1) -> Waiting:
    return Waiting(number, topic, lane, size, 0, 0, due)


def drain(found: WaitingMessages, now: float, topic: str = "t") -> list[int]:
    """Take everything that is due, in order."""
    order = []
    while (one := found.next(topic, now)) is not None:
        order.append(one.number)
        found.ended(one)
    return order


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (10**6, 60.0)]
)
def test_the_wait_doubles_up_to_the_longest(failures: int, seconds: float) -> None:
    assert backoff(failures, 1.0, 60.0) == seconds


def test_a_wait_of_nothing_stays_nothing_and_the_first_one_obeys_the_longest() -> None:
    assert [backoff(failures, 0.0, 60.0) for failures in (1, 5, 2000)] == [0.0] * 3
    assert backoff(1, 90.0, 60.0) == 60.0


def test_a_wrong_clock_prolongs_no_wait() -> None:
    assert seconds_left(due=130.0, seconds=30.0, wall=110.0) == 20.0
    assert seconds_left(due=130.0, seconds=30.0, wall=140.0) == 0.0
    assert seconds_left(due=130.0, seconds=30.0, wall=-1e9) == 30.0


def test_the_first_that_is_due_is_next_and_none_before() -> None:
    found = WaitingMessages()
    for number, due in ((1, 3.0), (2, 1.0), (3, 2.0)):
        found.add(row(number, due=due))
    assert (found.due("t"), found.next("t", 0.9)) == (1.0, None)
    assert drain(found, 2.5) == [2, 3]
    assert drain(found, 3.0) == [1]
    assert (found.due("t"), len(found), found.size, "t" in found) == (inf, 0, 0, False)


def test_a_lane_keeps_its_order_and_holds_up_no_other() -> None:
    found = WaitingMessages()
    for number, lane, due in ((1, b"a", 9.0), (2, b"a", 0.0), (3, b"b", 0.0), (4, b"", 0.0)):
        found.add(row(number, lane=lane, due=due))
    assert (found.holds("t", b"a"), found.holds("t", b"c"), found.holds("t", b""), found.holds("u", b"a")) == (
        True, False, False, False,
    )  # fmt: skip
    assert drain(found, 1.0) == [3, 4]
    assert drain(found, 9.0) == [1, 2]
    assert not found.holds("t", b"a")


def test_a_message_that_is_put_off_again_is_due_then_and_not_before() -> None:
    found = WaitingMessages()
    first = row(1, lane=b"a")
    found.add(first)
    found.add(row(2, lane=b"a"))
    found.put_off(first, 5.0, 2)
    assert (found.next("t", 4.9), first.later) == (None, 2)
    found.put_off(first, 1.0, 2)
    assert drain(found, 1.0) == [1, 2]


def test_there_is_room_up_to_a_number_and_to_bytes_and_always_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 10)
    found = WaitingMessages()
    assert found.has_room(1000)
    found.add(row(1, size=8))
    assert (found.has_room(2), found.has_room(3)) == (True, False)
    found.add(row(2, size=1))
    assert not found.has_room(1)


def test_a_topic_without_room_goes_on_once_a_message_has_left() -> None:
    found = WaitingMessages()
    first = row(1)
    found.add(first)
    found.block("t")
    assert (found.is_blocked("t"), found.is_blocked("u")) == (True, False)
    found.ended(first)
    assert not found.is_blocked("t")


def test_the_messages_of_a_topic_are_given_up_together() -> None:
    found = WaitingMessages()
    for number, topic in ((1, "t"), (2, "u"), (3, "t")):
        found.add(row(number, topic=topic, size=number))
    assert (found.dropping("t"), found.dropping("v")) == ([WaitingDropped("t")], [])
    found.drop("t")
    found.drop("t")
    assert ([one.number for one in found.rows()], found.size, found.count("t")) == ([2], 2, 0)
    assert found.next_number() == 4, "a number is not given out again in one life"


@pytest.mark.parametrize("hold", ["", "ALL", None, 1, b"all", ["all"]])
def test_other_values_of_hold_are_refused(hold: object) -> None:
    with pytest.raises(CallerError, match='hold is "all", "key" or "none"'):
        check_hold(hold)


@pytest.mark.parametrize("seconds", [-1, LATER_SECONDS_MAX + 1, float("nan"), float("inf"), "1", None, True])
def test_a_message_is_put_off_by_an_allowed_time_only(seconds: object) -> None:
    with pytest.raises(CallerError, match="Later takes 0 to 7,776,000 seconds"):
        Later(seconds)  # type: ignore[arg-type]


def test_what_a_handler_raises_says_what_it_asks_for() -> None:
    assert (str(Later(1.5)), Later(2).seconds, str(Reject("no such customer"))) == (
        "again in 1.5 s", 2.0, "no such customer",
    )  # fmt: skip
    with pytest.raises(CallerError, match="reason as text, not int"):
        Reject(5)  # type: ignore[arg-type]
