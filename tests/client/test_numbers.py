"""The allocator of 63-bit numbers.

The rules are those of docs/explanation/numbers.md, N1 and N2.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.core.numbers import (
    BEHIND_MAX,
    COUNT_BITS,
    COUNTS,
    EPOCH_SECONDS,
    KNOWN_MAX,
    NEAR_MAX,
    START_MAX,
    Numbers,
)
from pubsub.errors import PubsubError, StoreFull


def wall(milliseconds: int = 1_000_000) -> float:
    return EPOCH_SECONDS + milliseconds / 1000


def make(stored: int = 0, milliseconds: int = 1_000_000, seed: int = 1) -> tuple[Numbers, list[int]]:
    saved: list[int] = []
    return Numbers(stored, lambda: wall(milliseconds), Random(seed), saved.append), saved


def test_a_number_is_milliseconds_and_a_count_from_the_lower_half() -> None:
    numbers, saved = make()
    assert saved == [1_000_000]
    assert numbers.epoch >> COUNT_BITS == 1_000_000
    assert numbers.epoch % COUNTS < START_MAX


def test_milliseconds_are_durable_before_their_first_number() -> None:
    def full(milliseconds: int) -> None:
        raise StoreFull("store", "full")

    with pytest.raises(StoreFull):
        Numbers(0, wall, Random(1), full)


def test_a_clock_that_went_back_gives_no_number_twice() -> None:
    before, _ = make(milliseconds=5_000_000)
    highest = before.take(1000) + 999
    after, saved = make(stored=5_000_000, milliseconds=3)
    assert 5_000_000 < saved[0] <= 5_000_000 + BEHIND_MAX
    assert after.epoch > highest


def test_two_copies_with_slow_clocks_use_different_numbers() -> None:
    """With equal milliseconds, puts of one copy would look like puts of the other that a power cut destroyed."""
    ours, theirs = (make(stored=5_000_000, milliseconds=3, seed=seed)[1] for seed in (1, 2))
    assert ours != theirs


def test_a_state_opened_again_at_once_stays_near_the_clock() -> None:
    """Numbers that an older copy uses a little later must be above the numbers used here (seed 2340000039)."""
    stored = 1_000_000
    for epoch in range(1, NEAR_MAX):
        _, saved = make(stored=stored)
        stored += 1
        assert saved == [stored] == [1_000_000 + epoch]
    older, _ = make(milliseconds=stored + 2)  # A float of seconds is no exact millisecond.
    assert older.epoch >> COUNT_BITS > stored


def test_numbers_of_milliseconds_that_were_never_used_were_never_given() -> None:
    before, used = make(milliseconds=1_000)
    before._wall = lambda: wall(2_000)
    before.reopen()
    assert used == before.known[1:] == [1_000, 2_000]
    after = Numbers(2_000, lambda: wall(4_000), Random(1), used.append, before.known)
    given = {999: False, 1_000: True, 1_500: False, 2_000: True, 3_999: False, 4_000: True}
    for milliseconds, maybe in given.items():
        assert after.never_gave((milliseconds << COUNT_BITS) + 7) is not maybe
    assert not Numbers(2_000, lambda: wall(4_000), Random(1), used.append).never_gave(1_500 << COUNT_BITS)


def test_the_last_used_milliseconds_are_remembered() -> None:
    numbers, used = make()
    for later in range(1, 2 * KNOWN_MAX):
        numbers._wall = lambda later=later: wall(1_000_000 + later)
        numbers.reopen()
    assert numbers.known == used[-KNOWN_MAX:]
    assert not numbers.never_gave((used[0] << COUNT_BITS) + 1), "that is before all that is remembered"


def test_the_next_milliseconds_are_saved_only_when_the_count_is_used_up() -> None:
    numbers, saved = make()
    for _ in range(3):
        numbers.take(START_MAX // 4)
    assert len(saved) == 1
    first = numbers.take(START_MAX)
    while len(saved) == 1:
        first = numbers.take(START_MAX)
    assert first >> COUNT_BITS == saved[1] == (first + START_MAX - 1) >> COUNT_BITS


def test_a_full_disk_gives_out_no_number_of_new_milliseconds() -> None:
    saved: list[int] = []

    def save(milliseconds: int) -> None:
        if saved:
            raise StoreFull("store", "full")
        saved.append(milliseconds)

    numbers = Numbers(0, wall, Random(1), save)
    numbers.take(START_MAX // 2)
    with pytest.raises(StoreFull):
        [numbers.take(START_MAX) for _ in range(3)]
    assert numbers.highest >> COUNT_BITS == saved[0]


def test_two_copies_opened_in_the_same_millisecond_part_ways() -> None:
    assert make(seed=1)[0].epoch != make(seed=2)[0].epoch


@pytest.mark.parametrize("count", [77, COUNTS - 1])
def test_reopening_above_a_number_gives_a_new_epoch_above_it(count: int) -> None:
    numbers, _ = make()
    numbers.reopen((2_000_000 << COUNT_BITS) + count)
    assert numbers.epoch > (2_000_000 << COUNT_BITS) + count


def test_a_forged_number_near_the_end_cannot_be_exceeded() -> None:
    numbers, saved = make()
    with pytest.raises(PubsubError, match="no number is left"):
        numbers.reopen(NUMBER_MAX - 1)
    assert numbers.take() < NUMBER_MAX
    assert len(saved) == 1


@given(st.lists(st.integers(1, START_MAX), max_size=30), st.integers(0, 2**20), st.integers(0, 2**32))
def test_numbers_rise_and_a_batch_never_crosses_the_border(counts: list[int], stored: int, seed: int) -> None:
    numbers, saved = make(stored=stored, seed=seed)
    last = numbers.epoch
    for count in counts:
        first = numbers.take(count)
        assert first > last
        assert first >> COUNT_BITS == (first + count - 1) >> COUNT_BITS == saved[-1]
        last = numbers.highest
        assert last == first + count - 1
