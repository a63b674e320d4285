"""Messages and lazily built batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.client.core.message import Batch, Message, RunSlice
from pubsub.protocol import Records, RecordsBuilder, Run, encode_batch

LOG = "00000000000000aa"
PUBLISHER = "p/00000000000000bb"


def records(batches: list[list[bytes]], first: int = 0) -> Records:
    builder = RecordsBuilder()
    offset = 1
    for bodies in batches:
        start = min(first, len(bodies) - 1)
        builder.add(
            LOG, offset + start, PUBLISHER, 100 * offset + start, offset, encode_batch(bodies), start, len(bodies)
        )
        offset += len(bodies)
    return Records(builder.build())


def make(batches: list[list[bytes]]) -> Batch:
    found = records(batches)
    return Batch("t", [RunSlice(run, found.data, 0, len(run.ends)) for run in found.runs])


def test_a_message_has_its_position_and_its_publisher() -> None:
    message = make([[b"a", b"bc"]])[1]
    assert (message.topic, message.body, message.id) == ("t", b"bc", f"{LOG}.2")
    assert (message.publisher, message.counter, message.stamp) == (PUBLISHER, 101, 1)
    assert message.position == (LOG, 2)
    assert repr(message) == f"Message('t', {LOG}.2, b'bc')"


def test_a_long_body_is_shortened_only_in_its_repr() -> None:
    message = make([[b"x" * 100]])[0]
    assert len(message.body) == 100
    assert "..." in repr(message)


bodies_of_batches = st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=4), min_size=1, max_size=5)


@given(bodies_of_batches, st.integers(0, 3))
def test_a_batch_is_the_sequence_of_its_messages(batches: list[list[bytes]], first: int) -> None:
    found = records(batches, first)
    batch = Batch("t", [RunSlice(run, found.data, 0, len(run.ends)) for run in found.runs])
    expected = [body for bodies in batches for body in bodies[min(first, len(bodies) - 1) :]]
    assert [message.body for message in batch] == batch.bodies() == expected
    assert [batch[index].body for index in range(len(batch))] == expected
    assert [batch[index - len(batch)].body for index in range(len(batch))] == expected
    assert [message.body for message in batch[1:3]] == expected[1:3]
    assert [batch[index].id for index in range(len(batch))] == [message.id for message in batch]
    assert sum(piece.size for piece in batch.pieces) == sum(map(len, expected))


def test_an_empty_batch_is_false() -> None:
    batch = Batch("t")
    assert not batch
    assert list(batch) == []
    assert batch.bodies() == []


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_beyond_a_batch_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        make([[b"a"], [b"b", b"c"]])[index]


def test_a_part_of_a_run_keeps_its_own_numbers() -> None:
    found = records([[b"a", b"bb", b"ccc", b"dd"]])
    batch = Batch("t", [RunSlice(found.runs[0], found.data, 1, 3)])
    assert [(message.id, message.body, message.counter) for message in batch] == [
        (f"{LOG}.2", b"bb", 101),
        (f"{LOG}.3", b"ccc", 102),
    ]
    assert batch[1].body == b"ccc"
    assert batch.pieces[0].size == 5


def test_a_message_is_marked_if_it_may_have_been_processed_before() -> None:
    found = records([[b"a"], [b"b", b"c"]])
    marked = [
        RunSlice(run, found.data, 0, len(run.ends), doubtful)
        for run, doubtful in zip(found.runs, (True, False), strict=True)
    ]
    batch = Batch("t", marked)
    assert [message.doubtful for message in batch] == [True, False, False]
    assert [batch[index].doubtful for index in range(3)] == [True, False, False]
    assert [message.doubtful for message in make([[b"a"]])] == [False]


def test_messages_compare_by_value() -> None:
    one, other = make([[b"a", b"b"]]), make([[b"a", b"b"]])
    assert one[0] == other[0]
    assert one[0] is not other[0]
    assert hash(one[0]) == hash(other[0])
    assert one[0] != one[1]
    assert len({one[0], other[0], one[1]}) == 2
    assert one[0] != b"a"
    assert Message("u", b"a", *_run(one)) != one[0]  # Of another topic.
    assert Message("t", b"x", *_run(one)) != one[0]
    assert [*one] == [*other] == one[:]
    assert one == other
    assert hash(one) == hash(other)
    assert one != make([[b"a", b"c"]])
    assert one != [*one]


def _run(batch: Batch) -> tuple[Run, int]:
    return batch.pieces[0].run, 0
