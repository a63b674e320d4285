"""Ranges of logs: what is found in them, and what is left behind a position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.server.topic.spans import Leg, after, cut, find, floors

A, B = "a" * 16, "b" * 16


def offsets(legs: tuple[Leg, ...]) -> list[tuple[str, int]]:
    """Every position of these legs, growing ones up to 20."""
    return [(leg.log, offset) for leg in legs for offset in range(leg.low, 20 if leg.high is None else leg.high)]


def test_a_leg_holds_from_its_low_to_below_its_high() -> None:
    assert [offset for offset in range(8) if Leg(A, 3, 6).holds(offset)] == [3, 4, 5]
    assert Leg(A, 3).holds(NUMBER_MAX)
    assert not Leg(A, 3).holds(2)


def test_a_position_is_found_in_its_own_log_only() -> None:
    legs = (Leg(B, 2, 5), Leg(A, 1, 4), Leg(A, 7))
    assert [find(legs, position) for position in ((B, 4), (A, 3), (A, 7), (A, 4), (B, 5), ("c" * 16, 1))] == [
        *(0, 1, 2),
        *(None, None, None),
    ]


def test_what_is_behind_a_position_leaves_out_legs_that_are_used_up() -> None:
    legs = (Leg(B, 2, 5, skip=3, since=9), Leg(A, 1))
    assert after(legs, (B, 2)) == (Leg(B, 3, 5, skip=3, since=9), Leg(A, 1))
    assert after(legs, (B, 4)) == (Leg(A, 1),)
    assert after(legs, (A, 6)) == (Leg(A, 7),)  # it can still grow
    assert after(legs, (A, 0)) is None


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 4)), max_size=5), st.data())
def test_behind_a_position_is_exactly_the_rest(widths: list[tuple[str, int]], data: st.DataObject) -> None:
    place = {A: 1, B: 1}
    legs: list[Leg] = []
    for log, width in widths:
        legs.append(Leg(log, place[log], place[log] + width))
        place[log] += width + 1
    legs.append(Leg(A, place[A]))
    every = offsets(tuple(legs))
    index = data.draw(st.integers(0, len(every) - 1))
    rest = after(legs, every[index])
    assert rest is not None
    assert offsets(rest) == every[index + 1 :]
    assert all(leg.high is None or leg.low < leg.high for leg in rest)


def test_cutting_ends_the_growing_leg_of_one_log() -> None:
    legs = (Leg(B, 1, 3), Leg(A, 5))
    assert cut(legs, A, 9) == (Leg(B, 1, 3), Leg(A, 5, 9))
    assert cut(legs, A, 5) == (Leg(B, 1, 3),)
    assert cut(legs, B, 9) == legs


def test_floors_are_the_lowest_that_anybody_holds() -> None:
    holders = [(Leg(A, 7), Leg(B, 2, 4)), (Leg(A, 5),), ()]
    assert floors(holders, {A: 9, B: 6, "c" * 16: 3}) == {A: 5, B: 2, "c" * 16: 3}
