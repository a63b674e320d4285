"""A client's place in a topic: positions, taken counters, attempts.

The rules are those of docs/explanation/get.md, G7 and G11.
"""

from __future__ import annotations

import pytest

from pubsub.client.core.cursor import Cursor

LOG = "a" * 16


class Loading:
    """The store's counters, and the number of reads."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, int]:
        self.times += 1
        return {"p": 7}


@pytest.fixture
def load() -> Loading:
    return Loading()


@pytest.fixture
def cursor(load: Loading) -> Cursor:
    """At the position 3."""
    made = Cursor(load)
    made.begin((LOG, 3))
    return made


def test_a_new_cursor_has_no_position_and_reads_no_counter(load: Loading) -> None:
    made = Cursor(load)
    assert (made.position, made.safe, made.acknowledged, made.tried, load.times) == (None, None, None, None, 0)


def test_safe_follows_position_only_when_an_fsync_covers_it(cursor: Cursor) -> None:
    cursor.reach((LOG, 5), {"p": 9})
    assert (cursor.position, cursor.safe, cursor.acknowledged) == ((LOG, 5), (LOG, 3), (LOG, 3))
    cursor.sync((LOG, 4))
    assert (cursor.position, cursor.safe, cursor.acknowledged) == ((LOG, 5), (LOG, 4), (LOG, 3))


def test_counters_are_read_once_on_demand_and_then_kept_up(cursor: Cursor, load: Loading) -> None:
    cursor.reach((LOG, 4), {})
    assert load.times == 0, "a loss has no counter"
    cursor.reach((LOG, 5), {"q": 2})
    cursor.reach((LOG, 6), {"p": 9})
    assert (cursor.taken, load.times) == ({"p": 9, "q": 2}, 1)


def test_a_forgotten_position_keeps_the_taken_counters(cursor: Cursor) -> None:
    cursor.reach((LOG, 5), {"p": 9})
    cursor.attempted((LOG, 6), 2)
    cursor.forget()
    assert (cursor.position, cursor.safe, cursor.acknowledged) == (None, None, None)
    assert (cursor.tried, cursor.attempts) == (None, 0)
    assert cursor.taken == {"p": 9}
    cursor.begin((LOG, 8))
    assert (cursor.position, cursor.safe, cursor.acknowledged) == ((LOG, 8),) * 3


def test_counters_can_be_forgotten_and_are_not_read_again(cursor: Cursor, load: Loading) -> None:
    cursor.reach((LOG, 5), {"p": 9})
    cursor.forget_taken()
    assert cursor.taken == {}
    cursor.reach((LOG, 6), {"p": 2})
    assert (cursor.taken, load.times) == ({"p": 2}, 1)


def test_attempts_are_counted_by_message_and_one_that_was_counted_ahead_is_made_first(cursor: Cursor) -> None:
    assert cursor.attempt((LOG, 4)) == 1
    cursor.attempted((LOG, 4), 1)
    assert cursor.attempt((LOG, 4)) == 2
    assert cursor.attempt((LOG, 5)) == 1, "another message"
    cursor.attempted((LOG, 5), 1, ahead=True)
    assert cursor.attempt((LOG, 5)) == 1, "it was counted, and not made"
    cursor.attempted((LOG, 5), 1)
    assert cursor.attempt((LOG, 5)) == 2


def test_a_stored_cursor_counts_as_fsynced_and_tried(cursor: Cursor) -> None:
    cursor.load((LOG, 9), (LOG, 10), 2)
    assert (cursor.position, cursor.safe, cursor.acknowledged) == ((LOG, 9),) * 3
    assert cursor.attempt((LOG, 10)) == 3
