"""From which topics a relay takes no rows: full ones, waited for at first, and then passed over."""

from __future__ import annotations

import pytest

from pubsub.client.core.chain import Chain, Row
from pubsub.client.core.retries import Retries
from pubsub.client.relaying.pressure import FULL_BYTES, FULL_ROWS, SLOW_SECONDS, Pressure


def chain(topic: str, rows: int, size: int = 1) -> Chain:
    made = Chain(topic, Retries(1, 3, 0.1), 256)
    for number in range(rows):
        made.add(Row(topic, number + 1, number, 1, 0, 0, b"", size))
    return made


def test_a_topic_is_full_by_rows_or_bytes_until_half_of_them_are_sent() -> None:
    pressure = Pressure()
    pressure.look([chain("a", FULL_ROWS), chain("b", 1, FULL_BYTES), chain("c", FULL_ROWS - 1)], 0.0)
    assert pressure.full == ["a", "b"]
    pressure.look([chain("a", FULL_ROWS // 2), chain("b", 1, FULL_BYTES // 2 - 1)], 0.1)
    assert pressure.full == ["a"]
    pressure.look([chain("a", FULL_ROWS // 2 - 1)], 0.2)
    assert pressure.full == []


def test_a_full_topic_is_waited_for_and_a_slow_one_is_not() -> None:
    pressure = Pressure()
    assert pressure.look([chain("a", FULL_ROWS)], 0.0) == ([], [])
    assert pressure.waits
    assert pressure.look([chain("a", FULL_ROWS)], SLOW_SECONDS) == (["a"], [])
    assert (pressure.waits, pressure.slow, pressure.full) == (False, {"a"}, ["a"])
    assert pressure.look([chain("a", FULL_ROWS)], SLOW_SECONDS + 1) == ([], [])


def test_a_slow_topic_stays_slow_until_all_of_its_messages_are_sent() -> None:
    pressure = Pressure()
    for now in (0.0, SLOW_SECONDS):
        pressure.look([chain("a", FULL_ROWS)], now)
    pressure.look([chain("a", 1)], 5.0)
    assert (pressure.full, pressure.slow) == ([], {"a"})
    pressure.look([chain("a", FULL_ROWS)], 6.0)
    assert (pressure.full, pressure.waits) == (["a"], False)
    assert pressure.look([], 7.0) == ([], ["a"])
    pressure.look([chain("a", FULL_ROWS)], 8.0)
    assert pressure.waits


def test_beyond_the_limit_of_topics_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.client.relaying.pressure.BLOCKED_TOPICS_MAX", 100)
    pressure = Pressure()
    many = [chain(f"t{number}", FULL_ROWS) for number in range(101)]
    for now in (0.0, SLOW_SECONDS):
        pressure.look(many, now)
    assert pressure.waits
    pressure.look([*many[:100], chain("t100", 1)], SLOW_SECONDS)
    assert not pressure.waits
