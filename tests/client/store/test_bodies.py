"""The remembered bodies of outbox rows."""

from __future__ import annotations

from pubsub.client.storage.postgres.bodies import Bodies


def test_the_oldest_bodies_are_forgotten_first() -> None:
    bodies = Bodies(bytes_max=10)
    bodies.add(1, b"1234")
    bodies.add(2, b"1234")
    bodies.add(3, b"1234")
    assert [bodies.get(counter) for counter in (1, 2, 3)] == [None, b"1234", b"1234"]
    assert bodies.bytes == 8


def test_a_removed_row_takes_no_room_and_another_body_replaces_the_first() -> None:
    bodies = Bodies(bytes_max=10)
    bodies.add(1, b"1234")
    bodies.add(1, b"12345678")
    assert (bodies.get(1), bodies.bytes) == (b"12345678", 8)
    bodies.forget([1, 7])
    assert (bodies.get(1), bodies.bytes) == (None, 0)


def test_a_body_above_the_limit_is_not_remembered() -> None:
    bodies = Bodies(bytes_max=3)
    bodies.add(1, b"1234")
    assert (bodies.get(1), bodies.bytes) == (None, 0)
