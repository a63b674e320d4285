"""Stamps never run backwards, for any wall clock and any stamps of peers.

The rules are those of docs/explanation/numbers.md, N6 and N7.
"""

import time

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.clock import MICROSECONDS, STAMP_LEAD_MAX, Stamps, SystemClock

WALL = 1_800_000_000.0


def test_a_stamp_is_the_wall_clock_in_microseconds():
    stamps = Stamps(WALL, now=100.0)
    assert stamps.next(100.5) == int((WALL + 0.5) * MICROSECONDS)


def test_stamps_of_the_same_moment_rise():
    stamps = Stamps(WALL, now=100.0)
    given_out = [stamps.next(100.0) for _ in range(1000)]
    assert given_out == sorted(set(given_out))


def test_a_restart_with_a_wall_clock_set_back_goes_on_above_the_last_stamp():
    before = Stamps(WALL, now=0.0)
    last = before.next(10.0)
    after = Stamps(WALL - 86_400, now=0.0, last=last)
    assert after.reading(0.0) == last
    assert after.next(0.0) == last + 1


def test_a_higher_received_stamp_is_followed():
    stamps = Stamps(WALL, now=0.0)
    heard = int(WALL * MICROSECONDS) + STAMP_LEAD_MAX
    assert stamps.follow(heard, now=0.0)
    assert stamps.next(0.0) == heard + 1


def test_a_stamp_more_than_an_hour_ahead_is_reported_and_not_followed():
    stamps = Stamps(WALL, now=0.0)
    assert not stamps.follow(int(WALL * MICROSECONDS) + STAMP_LEAD_MAX + 1, now=0.0)
    assert stamps.next(0.0) == int(WALL * MICROSECONDS)


def test_a_lower_received_stamp_changes_nothing():
    stamps = Stamps(WALL, now=0.0)
    last = stamps.next(1.0)
    assert stamps.follow(5, now=1.0)
    assert stamps.last == last


def test_a_reading_gives_no_stamp_out():
    stamps = Stamps(WALL, now=0.0)
    assert stamps.reading(1.0) == stamps.reading(1.0) == stamps.next(1.0)


@given(st.lists(st.tuples(st.sampled_from(["next", "hear"]), st.floats(-10, 10), st.integers(-5, 5))))
def test_stamps_rise_and_exceed_every_accepted_stamp(steps):
    stamps, highest = Stamps(WALL, now=0.0), 0
    for action, now, lead in steps:
        if action == "next":
            stamp = stamps.next(now)
            assert stamp > highest
            highest = stamp
        elif stamps.follow(int((WALL + lead) * MICROSECONDS), now):
            highest = max(highest, int((WALL + lead) * MICROSECONDS))


def test_the_system_clock_is_this_machines():
    clock = SystemClock()
    assert clock.monotonic() <= time.monotonic() <= clock.monotonic()
    assert abs(clock.wall() - time.time()) < 5
