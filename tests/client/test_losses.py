"""Losses for the application: each is raised once, and again if that was not made durable."""

from __future__ import annotations

import pytest

from pubsub.client.core.changes import Told
from pubsub.client.core.losses import Losses
from pubsub.errors import DataLoss

ERRORS = [DataLoss("t", f"{n}", f"{n}", "gone") for n in range(3)]


@pytest.fixture
def losses() -> Losses:
    made = Losses()
    for error in ERRORS:
        made.add(error)
    return made


def test_each_loss_is_reported_once_and_the_oldest_first(losses: Losses) -> None:
    assert list(losses) == ERRORS
    told = []
    while losses.waiting:
        told.append(losses.tell())
    assert told == ERRORS


def test_reported_losses_are_forgotten_by_the_commit_and_others_stay(losses: Losses) -> None:
    assert losses.forget("t") == []
    losses.tell()
    losses.tell()
    assert losses.forget("t") == [Told("t", 2)]
    assert list(losses) == ERRORS, "nothing changes until the commit has succeeded"
    losses.forgot()
    assert (list(losses), losses.told, losses.waiting) == (ERRORS[2:], 0, True)
    losses.forgot()
    assert list(losses) == ERRORS[2:]


def test_a_reported_deletion_without_a_loss_is_counted_apart(losses: Losses) -> None:
    losses.add(DataLoss("t", "", "", "deleted"))
    for _ in range(4):
        losses.tell()
    assert losses.forget("t") == [Told("t", 3, 1)]


def test_cleared_losses_do_not_wait(losses: Losses) -> None:
    losses.tell()
    losses.clear()
    assert (list(losses), losses.told, losses.waiting, losses.forget("t")) == ([], 0, False, [])
