"""The messages are plain records: cheap, without defaults that travel, and with the outcomes sorted."""

import dataclasses
from typing import get_args

import pytest

from pubsub.protocol.messages import RETRY, Message, Outcome, Put, Status

CLASSES = get_args(Message)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_a_message_has_slots_and_names_its_sender_first(cls):
    assert "__dict__" not in dir(cls)
    assert dataclasses.fields(cls)[0].name == "sender"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_a_message_refuses_a_field_it_does_not_have(cls):
    with pytest.raises(TypeError):
        cls(nonsense=1)


def test_a_retry_outcome_means_that_nothing_has_happened():
    final = {Outcome.SUCCESS, Outcome.DUPLICATE, Outcome.EMPTY, Outcome.REFUSED, Outcome.GONE, Outcome.SUPERSEDED}
    assert not RETRY & final
    assert {Outcome.GAP, Outcome.UNAVAILABLE, Outcome.MOVED, Outcome.BUSY, Outcome.FULL} <= RETRY


def test_equal_fields_make_equal_messages():
    assert Status("s1", Outcome.EMPTY) == Status("s1", Outcome.EMPTY)
    assert Put("a", "t", 1, "0" * 16, 1, 0, 0) != Put("a", "t", 2, "0" * 16, 1, 0, 0)
