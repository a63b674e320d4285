"""The report of a deletion to the application: a range of lost messages, none, or an unknown number.

The rule is docs/explanation/deletion.md, UD7.
"""

from __future__ import annotations

from typing import Any

import pytest
from rig import LOG, OTHER, Rig, records, status

from pubsub.client.core.changes import DeadLettered, DeletionNoted
from pubsub.client.core.loss_reports import DELETED, DELETED_AFTER_ALL, DELETED_UNKNOWN
from pubsub.client.core.prefetch import Taking
from pubsub.protocol import Outcome


@pytest.mark.parametrize(
    ("facts", "first", "last", "reason"),
    [
        ({"number": 1, "first": (LOG, 6), "message": (LOG, 9)}, f"{LOG}.6", f"{LOG}.9", DELETED),
        ({"number": 1}, "", "", DELETED_AFTER_ALL),
        ({}, "", "", DELETED_UNKNOWN.format(after=f" after {LOG}.5")),
    ],
    ids=["a backlog", "nothing", "not known"],
)
def test_a_deletion_claims_the_records_that_are_lost_and_no_others(
    facts: dict[str, Any], first: str, last: str, reason: str
) -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    facts |= {"number": sub.intent.number} if facts else {}
    rig.answer(get, status(Outcome.GONE, reason="deleted", **facts))
    (letter,) = [change for change in rig.committed if isinstance(change, DeadLettered | DeletionNoted)]
    assert isinstance(letter, DeadLettered) is bool(first)
    rig.core.settle(sub, rig.now + 5)
    told = sub.losses.tell()
    assert (told.first, told.last, told.reason) == (first, last, reason)
    assert ("are lost (" in str(told)) is bool(first)


@pytest.mark.parametrize(("taken", "first"), [(2, f"{LOG}.8"), (4, "")], ids=["some", "all"])
def test_messages_that_the_application_has_taken_since_the_last_acknowledgement_are_not_lost(
    taken: int, first: str
) -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(6, [1, 2, 3, 4]))
    taking = sub.take(taken)
    assert isinstance(taking, Taking)
    sub.took(taking)
    sub.synced()  # The GET under way still names the earlier position.
    facts = {"number": sub.intent.number, "first": (LOG, 6), "message": (LOG, 9)}
    rig.answer(get, status(Outcome.GONE, reason="deleted", **facts))
    assert sub.losses.tell().first == first


@pytest.mark.parametrize("range_", [{}, {"first": (OTHER, 1), "message": (OTHER, 9)}], ids=["nothing", "a range"])
def test_a_deletion_claims_no_range_if_the_application_has_taken_messages_of_another_holder_since(
    range_: dict[str, Any],
) -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(6, [1]))
    taking = sub.take(1)
    assert isinstance(taking, Taking)
    sub.took(taking)
    rig.answer(get, status(Outcome.GONE, reason="deleted", number=sub.intent.number, **range_))
    told = sub.losses.tell()
    assert (told.first, told.reason) == ("", DELETED_UNKNOWN.format(after=f" after {LOG}.6"))
