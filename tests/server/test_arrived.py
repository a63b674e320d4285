"""What has arrived from proxies: clients take turns, and what a proxy says overtakes nothing that came before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.server import arrived as arrived_module
from pubsub.server.arrived import Arrival, Arrived
from pubsub.server.fair_queue import QUANTUM_BYTES

OWN, NOW = b"", 7.0
ORIGINS = st.sampled_from([OWN, b"cA", b"cB", b"cC"])
SIZES = st.sampled_from([0, 100, 2 * QUANTUM_BYTES])


def named(one: Arrival) -> tuple[int, bytes, bytes]:
    return one.proxy, bytes(one.frames[0]), bytes(one.frames[1])


def taken(arrived: Arrived) -> list[tuple[int, bytes, bytes]]:
    """Take all: the proxy, the origin and the head of each."""
    order = []
    while (one := arrived.take()) is not None:
        assert one.size == sum(map(len, one.frames))
        order.append(named(one))
    assert not arrived
    return order


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 1), ORIGINS, SIZES)), max_size=60))
def test_nothing_is_lost_a_client_is_served_in_order_and_a_proxy_overtakes_nobody(
    steps: list[tuple[int, bytes, int] | None],
) -> None:
    arrived, came, order = Arrived(2), [], []
    for number, step in enumerate(steps):
        if step is not None:
            proxy, origin, size = step
            arrived.add(proxy, [origin, b"%d" % number, bytes(size)], NOW)
            came.append((proxy, origin, b"%d" % number))
        elif (one := arrived.take()) is not None:
            order.append(named(one))
        assert len(arrived) == len(came) - len(order)
    order += taken(arrived)
    assert sorted(order) == sorted(came)
    for index, (proxy, origin, head) in enumerate(order):
        earlier = {one for one in came[: came.index((proxy, origin, head))] if one[0] == proxy}
        if origin != OWN:
            earlier = {one for one in earlier if one[1] == origin}
        assert earlier <= set(order[:index])


def test_what_a_proxy_says_waits_for_what_it_passed_on_before_and_not_for_what_comes_after() -> None:
    arrived = Arrived(2)
    for number in range(3):
        arrived.add(0, [b"cA", b"%d" % number, bytes(QUANTUM_BYTES)], NOW)
    arrived.add(0, [OWN, b"mark"], NOW)
    arrived.add(0, [b"cB", b"newcomer"], NOW)
    arrived.add(1, [OWN, b"other"], NOW)
    heads = [head for _, _, head in taken(arrived)]
    assert heads == [b"0", b"newcomer", b"other", b"1", b"2", b"mark"]


def test_what_a_proxy_says_stays_in_order_though_nothing_is_before_it() -> None:
    arrived = Arrived(1)
    for head in (b"1", b"2"):
        arrived.add(0, [OWN, head], NOW)
    arrived.add(0, [b"cA", b"request"], NOW)
    arrived.add(0, [OWN, b"3"], NOW)
    heads = [head for _, _, head in taken(arrived)]
    assert [head for head in heads if head != b"request"] == [b"1", b"2", b"3"]
    assert heads.index(b"request") < heads.index(b"3")


def test_what_came_over_a_closed_connection_is_dropped_with_what_the_proxy_said() -> None:
    arrived = Arrived(2)
    for proxy in (0, 1):
        arrived.add(proxy, [b"cA", b"request"], NOW)
        arrived.add(proxy, [OWN, b"mark"], NOW)
    arrived.drop(0)
    assert len(arrived) == 2
    arrived.add(0, [OWN, b"new"], NOW)
    assert taken(arrived) == [(1, b"cA", b"request"), (0, OWN, b"new"), (1, OWN, b"mark")]
    arrived.add(0, [b"cA", b"request"], NOW)
    arrived.clear()
    assert not arrived
    assert arrived.take() is None


def test_a_proxy_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrived_module, "ARRIVED_BYTES_MAX", 1_000)
    monkeypatch.setattr(arrived_module, "ARRIVED_MAX", 3)
    arrived = Arrived(2)
    arrived.add(0, [b"cA", bytes(999)], NOW)
    assert (arrived.has_room(0), arrived.has_room(1)) == (False, True)
    for _ in range(3):
        assert arrived.has_room(1)
        arrived.add(1, [OWN, b"word"], NOW)
    assert not arrived.has_room(1)
    taken(arrived)
    assert arrived.has_room(0)
    assert arrived.has_room(1)


def test_it_is_known_when_each_message_came() -> None:
    arrived = Arrived(1)
    arrived.add(0, [b"cA", b"first"], 1.0)
    arrived.add(0, [OWN, b"mark"], 2.0)
    assert [one.since for one in (arrived.take(), arrived.take()) if one] == [1.0, 2.0]
