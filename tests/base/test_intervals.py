"""IntervalSet against a plain set of integers."""

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.intervals import IntervalSet

NUMBERS = st.integers(0, 40)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "discard"]), NUMBERS, st.integers(0, 12)), max_size=40)


def numbers(ranges: IntervalSet) -> set[int]:
    return {n for low, high in ranges for n in range(low, high)}


@given(STEPS)
def test_an_interval_set_holds_the_same_numbers_as_a_set(steps):
    ours, model = IntervalSet(), set()
    for action, low, length in steps:
        span = set(range(low, low + length))
        if action == "add":
            assert ours.add(low, low + length) == bool(span - model)
            model |= span
        else:
            ours.discard(low, low + length)
            model -= span
        assert numbers(ours) == model
        assert ours.count() == len(model)
        assert bool(ours) == bool(model)
        assert ours.end == (max(model) + 1 if model else 0)
        assert all((n in ours) == (n in model) for n in range(-1, 55))


@given(STEPS)
def test_the_ranges_of_an_interval_set_are_sorted_and_never_touch(steps):
    ours = IntervalSet()
    for action, low, length in steps:
        getattr(ours, action)(low, low + length)
        flat = [n for pair in ours for n in pair]
        assert flat == sorted(set(flat))


@given(st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_the_order_of_given_ranges_does_not_matter(ranges):
    assert IntervalSet(ranges) == IntervalSet(reversed(ranges))


def test_a_single_number_is_a_range_of_one():
    ranges = IntervalSet()
    assert ranges.add(5)
    assert not ranges.add(5)
    assert list(ranges) == [(5, 6)]
    ranges.discard(5)
    assert not ranges


def test_a_million_numbers_in_order_cost_one_range():
    ranges = IntervalSet()
    for number in range(0, 1_000_000, 1000):
        ranges.add(number, number + 1000)
    assert len(ranges) == 1
    assert ranges.count() == 1_000_000


def test_a_number_of_63_bits_costs_one_range():
    ranges = IntervalSet([(0, 10)])
    ranges.add(2**63 - 1)
    assert len(ranges) == 2
    assert repr(ranges) == f"IntervalSet([(0, 10), ({2**63 - 1}, {2**63})])"


def test_sets_that_hold_the_same_are_equal_and_cannot_be_dictionary_keys():
    assert IntervalSet([(1, 3), (3, 5)]) == IntervalSet([(1, 5)])
    assert IntervalSet([(1, 3)]) != [(1, 3)]
    assert IntervalSet.__hash__ is None
