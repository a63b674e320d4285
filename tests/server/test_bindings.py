"""Named subscriptions: the acknowledgements of one checkpoint count, and those of another are refused."""

from __future__ import annotations

import pytest

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol import Outcome
from pubsub.server.topic.consumers import Readers, consumer_of
from tests.server.moving import Pair, put
from tests.server.named import acknowledge, everything, leave, make, read
from tests.server.stage import Stage

ONE, OTHER = 2**62 + 12_345, 2**62 + 54_321


def test_the_first_acknowledging_checkpoint_binds_a_reader_and_others_are_refused(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b", b"c"]).log
    assert acknowledge(stage, (log, 1), token=ONE).outcome is Outcome.EMPTY
    for token in (OTHER, 0):
        answer = acknowledge(stage, (log, 3), token=token)
        assert (answer.outcome, answer.position) == (Outcome.SUPERSEDED, (log, 1))
    assert stage.core.state.counters["acknowledgements_of_others"] == 2
    assert everything(stage) == [b"b", b"c"], "a refused acknowledgement moves nothing"
    assert acknowledge(stage, (log, 2), token=ONE).outcome is Outcome.EMPTY


def test_a_binding_survives_a_restart_and_reading(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b"]).log
    acknowledge(stage, (log, 1), token=ONE)
    everything(stage)
    stage.restart()
    everything(stage)
    assert acknowledge(stage, None, token=OTHER).outcome is Outcome.SUPERSEDED
    assert acknowledge(stage, (log, 2), token=ONE).outcome is Outcome.EMPTY


def test_acknowledging_without_a_token_binds_nothing(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b"]).log
    assert acknowledge(stage, (log, 1)).outcome is Outcome.EMPTY
    assert acknowledge(stage, None, token=ONE).outcome is Outcome.EMPTY
    assert acknowledge(stage, (log, 2)).outcome is Outcome.SUPERSEDED


def test_a_position_that_does_not_exist_binds_nothing(stage: Stage) -> None:
    make(stage)
    assert acknowledge(stage, ("f" * 16, 1), token=ONE).outcome is Outcome.BEHIND
    assert acknowledge(stage, None, token=OTHER).outcome is Outcome.EMPTY


@pytest.mark.parametrize("token", [OTHER, 0])
def test_the_token_of_a_takeover_replaces_the_old_one(stage: Stage, token: int) -> None:
    make(stage)
    acknowledge(stage, None, token=ONE)
    assert acknowledge(stage, None, token=token, take_over=True).outcome is Outcome.EMPTY
    stage.restart()
    if token:
        assert acknowledge(stage, None, token=ONE).outcome is Outcome.SUPERSEDED
    assert acknowledge(stage, None, token=token).outcome is Outcome.EMPTY
    assert acknowledge(stage, None, token=OTHER).outcome is Outcome.EMPTY


def test_a_reader_made_anew_is_not_bound(stage: Stage) -> None:
    make(stage)
    acknowledge(stage, None, token=ONE)
    leave(stage, 8)
    make(stage, number=9)
    assert acknowledge(stage, None, token=OTHER).outcome is Outcome.EMPTY


@pytest.mark.parametrize("number", [1, 2**62, NUMBER_MAX - 2])
def test_a_binding_differs_from_use_with_any_number(number: int) -> None:
    unused, used, bound = Readers(), Readers.bound(0, number), Readers.bound(ONE, number)
    assert (unused.used, used.used, bound.used) == (False, True, True)
    assert unused.stored_epoch(number) < used.stored_epoch(number) == number < bound.stored_epoch(number) <= NUMBER_MAX
    for readers in (unused, used, bound):
        assert consumer_of("@archive", number, readers.stored_epoch(number)) == readers
        assert readers.admits(ONE, number)
        assert readers.admits(0, number) == (readers is not bound)


def test_the_highest_number_cannot_be_bound() -> None:
    assert Readers.bound(ONE, NUMBER_MAX) == Readers(used=True)


def test_a_binding_moves_with_its_topic_and_through_a_merge(pair: Pair) -> None:
    assert put(pair["s1"], "alice", 1, 0, b"a1", b"a2") == "success"
    assert put(pair["s2"], "bob", 1, 0, b"b1") == "success"
    start = make(pair["s1"]).position
    assert start is not None
    acknowledge(pair["s1"], (start[0], 1), token=ONE)
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    pair["s2"].restart()
    assert acknowledge(pair["s2"], None, token=OTHER).outcome is Outcome.SUPERSEDED
    assert acknowledge(pair["s2"], (start[0], 2), token=ONE).outcome is Outcome.EMPTY
    assert everything(pair["s2"]) == [b"b1"]


@pytest.mark.parametrize("receiver", ["s1", "s2"])
def test_a_merge_leaves_the_binding_of_the_later_subscription_of_a_name(pair: Pair, receiver: str) -> None:
    """The earlier one was bound; it was ended and made anew at the other server meanwhile, by another query."""
    for name, number in (("s1", 7), ("s2", 8)):
        assert put(pair[name], "alice", 1, 0, b"a") == "success"
        assert make(pair[name], number=number).outcome is Outcome.SUCCESS
    assert read(pair["s1"], None).outcome is Outcome.SUCCESS
    acknowledge(pair["s1"], None, token=ONE)
    pair.merge("s1" if receiver == "s2" else "s2", receiver)
    pair.turns()
    assert pair.holders() == [receiver]
    assert acknowledge(pair[receiver], None, token=OTHER).outcome is Outcome.EMPTY
    assert acknowledge(pair[receiver], None, token=ONE).outcome is Outcome.SUPERSEDED
