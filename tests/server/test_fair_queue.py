"""Turns among senders: nothing is lost, each sender's messages stay in order, nobody waits for another's backlog."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from pubsub.server.fair_queue import MESSAGE_BYTES, QUANTUM_BYTES, FairQueue

SIZES = (0, 100, QUANTUM_BYTES - MESSAGE_BYTES, QUANTUM_BYTES, 5 * QUANTUM_BYTES)

Message = tuple[int, int, int]
"""Sender, number and bytes."""


class Queued:
    """A queue, and what should be in it."""

    def __init__(self) -> None:
        self.queue: FairQueue[int, Message] = FairQueue()
        self.waiting: dict[int, deque[Message]] = {}
        self._number = 0

    def add(self, sender: int, size: int = 0) -> None:
        self._number += 1
        message = sender, self._number, size
        self.waiting.setdefault(sender, deque()).append(message)
        self.queue.add(sender, message, size)

    def take(self, *, new: bool = False) -> int | None:
        """Whose message comes next; it must be the first one of who it is."""
        taken = self.queue.take(new=new)
        if taken is None:
            assert new or not any(self.waiting.values())
            return None
        assert self.waiting[taken[0]].popleft() == taken
        return taken[0]

    def drop(self, sender: int) -> None:
        self.queue.drop(lambda one: one == sender)
        self.waiting.pop(sender, None)

    def order(self) -> list[int]:
        """Take all."""
        senders = []
        while (sender := self.take()) is not None:
            senders.append(sender)
        return senders


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), st.sampled_from(SIZES)),
        st.tuples(st.sampled_from(["take", "take new"]), st.just(0), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 4), st.just(0)),
    ),
    max_size=60,
)


def queued(steps: list[tuple[str, int, int]]) -> Queued:
    made = Queued()
    for step, sender, size in steps:
        if step == "add":
            made.add(sender, size)
        elif step.startswith("take"):
            made.take(new=step == "take new")
        else:
            made.drop(sender)
    return made


@given(STEPS)
def test_nothing_is_lost_and_each_senders_messages_stay_in_order(steps: list[tuple[str, int, int]]) -> None:
    made = queued(steps)
    made.order()
    assert made.take() is None


@given(STEPS, st.sampled_from(SIZES))
def test_a_newcomer_waits_for_one_turn_of_the_other_newcomers_at_most(
    steps: list[tuple[str, int, int]], size: int
) -> None:
    made = queued(steps)
    others = set(made.waiting)
    made.add(99, size)
    before: dict[int, int] = {}
    while (sender := made.take()) != 99:
        assert sender is not None
        before[sender] = before.get(sender, 0) + 1
    assert before.keys() <= others
    for count in before.values():  # Not one message more than a quantum pays for, however much waits.
        assert count <= QUANTUM_BYTES // MESSAGE_BYTES


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(SIZES)), max_size=200), st.sampled_from(SIZES))
def test_a_sender_with_a_backlog_has_its_share_whatever_else_comes(arrivals: list[tuple[int, int]], size: int) -> None:
    made = Queued()
    for _ in range(len(arrivals) + 1):
        made.add(0, size)
    made.take()
    taken = dict.fromkeys(range(5), 0)
    for sender, foreign in arrivals:
        made.add(sender, foreign)
        firsts = {one: waiting[0][2] for one, waiting in made.waiting.items() if waiting}
        taker = made.take()
        assert taker is not None
        taken[taker] += firsts[taker] + MESSAGE_BYTES
    # Who goes and comes back is given a quantum anew, so that it has two in a round at most.
    bound = 2 * taken[0] + 4 * (QUANTUM_BYTES + max(SIZES) + MESSAGE_BYTES)
    assert all(taken[other] <= bound for other in range(1, 5))


def test_senders_take_turns_by_what_they_send() -> None:
    made = Queued()
    for _ in range(4):
        made.add(1, 2 * QUANTUM_BYTES)
    small = QUANTUM_BYTES // MESSAGE_BYTES
    for _ in range(3 * small):
        made.add(2)
    assert made.order() == [1, *[2] * small, *[2] * small, 1, *[2] * small, 1, 1]


def test_who_had_nothing_waiting_comes_first() -> None:
    made = Queued()
    for _ in range(100):
        made.add(1, QUANTUM_BYTES)
    assert [made.take() for _ in range(3)] == [1, 1, 1]
    made.add(2)
    assert [made.take() for _ in range(2)] == [2, 1]


def test_who_comes_back_at_once_does_not_come_first_again() -> None:
    made = Queued()
    for _ in range(100):
        made.add(1, QUANTUM_BYTES)
        made.add(3, QUANTUM_BYTES)
    order = []
    for _ in range(60):
        made.add(2, QUANTUM_BYTES)
        order.append(made.take())
    assert [order.count(sender) for sender in (1, 2, 3)] == [20, 20, 20]


def test_dropped_senders_begin_anew() -> None:
    made = Queued()
    for sender in (1, 2, 1):
        made.add(sender)
    made.drop(1)
    made.add(1)
    assert sorted(made.order()) == [1, 2]


def test_newcomers_can_be_taken_alone_each_for_one_turn() -> None:
    made = Queued()
    for sender in (1, 1, 2):
        made.add(sender, QUANTUM_BYTES)
    assert [made.take(new=True) for _ in range(3)] == [1, 2, None]
    made.add(2)
    assert made.take(new=True) is None
    made.add(3)
    assert [made.take(new=True) for _ in range(2)] == [3, None]
    assert made.order() == [1, 2]
