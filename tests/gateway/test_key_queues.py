"""The rule is docs/explanation/gateway.md, H10."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pubsub.gateway.webhooks.key_queues import Delivery, KeyQueues


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"c"]), max_size=30), st.integers(1, 5), st.integers(0, 1000))
def test_each_key_is_delivered_in_order_however_deliveries_fail(keys: list[bytes], most: int, seed: int) -> None:
    rng, lanes, now = Random(seed), KeyQueues(most), 0.0
    for number, key in enumerate(keys):
        lanes.add(Delivery(number, key))
    flying: list[Delivery] = []
    done: list[Delivery] = []
    while len(lanes):
        flying += lanes.begin(now)[0]
        assert len(flying) == lanes.flying <= most
        assert len({one.key for one in flying}) == len(flying)
        if not flying:
            seconds = lanes.begin(now)[1]
            assert seconds is not None
            now += seconds
            continue
        one = flying.pop(rng.randrange(len(flying)))
        if rng.random() < 0.3:
            lanes.failed(one, now + rng.random())
        else:
            lanes.done(one)
            done.append(one)
    for key in set(keys):
        assert [one.number for one in done if one.key == key] == [n for n, other in enumerate(keys) if other == key]


def test_a_lane_that_waits_holds_up_no_other() -> None:
    lanes = KeyQueues(8)
    for number, key in enumerate([b"a", b"b", b"a"]):
        lanes.add(Delivery(number, key))
    first, second = lanes.begin(0.0)[0]
    lanes.failed(first, 10.0)
    lanes.done(second)
    assert lanes.begin(9.0)[0] == []
    assert lanes.begin(9.0)[1] == 1.0
    assert lanes.begin(10.0)[0] == [first]
    assert first.attempts == 1


def test_a_delivery_in_its_back_off_can_be_hurried() -> None:
    lanes = KeyQueues(8)
    lanes.add(Delivery(1, b""))
    (one,) = lanes.begin(0.0)[0]
    assert lanes.hurry() == 0
    lanes.failed(one, 1e9)
    assert lanes.hurry() == 1
    assert lanes.begin(1.0)[0] == [one]


def test_every_key_gets_its_turn() -> None:
    lanes = KeyQueues(1)
    for number in range(6):
        lanes.add(Delivery(number, b"ab"[number % 2 : number % 2 + 1]))
    order = []
    while len(lanes):
        (one,) = lanes.begin(0.0)[0]
        order.append(one.key)
        lanes.done(one)
    assert order == [b"a", b"b"] * 3


def test_a_lane_that_is_long_does_not_keep_a_later_one_waiting() -> None:
    lanes = KeyQueues(1)
    for number in range(3):
        lanes.add(Delivery(number, b"a"))
    (one,) = lanes.begin(5.0)[0]
    lanes.add(Delivery(3, b"b", due=5.0))
    lanes.done(one)
    assert [one.key for one in lanes.begin(5.0)[0]] == [b"b"]


def test_a_running_delivery_is_not_hurried_and_failed_ones_behind_it_are() -> None:
    lanes = KeyQueues(8)
    for number, attempts in enumerate((1, 1, 0)):
        lanes.add(Delivery(number, b"", attempts, 1e9))
    lanes.add(Delivery(3, b"x"))
    assert lanes.hurry() == 2
    _, one = lanes.begin(0.0)[0]
    assert one.number == 0
    assert lanes.hurry() == 1
    lanes.done(one)
    assert [one.number for one in lanes.begin(0.0)[0]] == [1]
