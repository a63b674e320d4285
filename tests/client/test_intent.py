"""The application's wish for a topic: the times at which it becomes durable, is asked for, and is settled.

The rule is docs/explanation/get.md, G1.
"""

from __future__ import annotations

import pytest

from pubsub.client.core.intent import Intent


@pytest.fixture
def intent() -> Intent:
    """An intent that is on, and confirmed under the number 7."""
    made = Intent()
    made.change(True, fresh=False)
    made.asked = 7
    made.settle(7)
    return made


def test_a_new_intent_is_off_and_not_requested() -> None:
    made = Intent()
    assert (made.on, made.settled, made.subscribed, made.unchecked) == (False, False, False, False)
    assert not made.asking(0.0, wanted=False)
    assert not made.checking(0.0)


def test_an_intent_is_requested_until_it_is_settled(intent: Intent) -> None:
    intent.change(False, fresh=False)
    assert not intent.asking(1.0, wanted=False), "nobody waits for it"
    intent.ask_until(5.0)
    intent.ask_until(3.0)
    assert intent.asking(4.9, wanted=False)
    assert not intent.asking(5.0, wanted=False)
    assert intent.asking(5.0, wanted=True), "a call that waits for messages waits for it too"
    intent.insists.add("call")
    intent.settle(9)
    assert (intent.settled, intent.number, intent.subscribed, intent.insists) == (True, 9, False, set())
    assert not intent.asking(1.0, wanted=True)
    intent.change(True, fresh=False)
    assert not intent.asking(1.0, wanted=False), "the earlier request is over"


@pytest.mark.parametrize(
    ("on", "fresh", "settled", "differs"),
    [
        (True, False, False, False),
        (True, True, False, True),
        (False, False, False, True),
        (True, False, True, True),
    ],
)
def test_an_intent_is_stored_only_if_it_differs_from_the_present_one(
    intent: Intent, on: bool, fresh: bool, settled: bool, differs: bool
) -> None:
    intent.change(True, fresh=False)
    if settled:
        intent.settle(8)
    assert intent.differs(on, fresh=fresh) is differs


def test_a_fresh_intent_covers_a_further_fresh_intent(intent: Intent) -> None:
    intent.change(True, fresh=True)
    assert not intent.differs(True, fresh=True)
    assert not intent.differs(True, fresh=False)


def test_an_intent_with_another_start_is_made_durable(intent: Intent) -> None:
    intent.change(True, fresh=True, start="earliest")
    assert not intent.differs(True, fresh=True, start="earliest")
    assert not intent.differs(True, fresh=False), "a call that only wants to be subscribed will be"
    assert intent.differs(True, fresh=True)
    assert intent.differs(True, fresh=True, start=7)
    intent.change(True, fresh=True)
    assert intent.start == "latest"


def test_a_settled_intent_is_checked_until_an_answer_or_the_deadline(intent: Intent) -> None:
    intent.check_for(5.0)
    intent.check_for(4.0)
    assert intent.unchecked
    assert intent.checking(4.9)
    assert not intent.checking(5.0)
    assert intent.unchecked, "no answer came"
    intent.checked()
    assert not intent.unchecked


@pytest.mark.parametrize(("on", "settled"), [(False, True), (True, False), (False, False)])
def test_only_an_active_settled_intent_is_checked(on: bool, settled: bool) -> None:
    made = Intent()
    made.load(on, settled, False, 7)
    made.check_for(5.0)
    assert not made.checking(1.0)
    assert not made.subscribed


def test_a_denied_intent_is_not_requested_again_before_the_next_call(intent: Intent) -> None:
    intent.change(True, fresh=False)
    intent.ask_until(5.0)
    intent.check_for(5.0)
    intent.stop_asking()
    assert not intent.asking(1.0, wanted=False)
    assert not intent.unchecked
    intent.ask_until(5.0)
    assert intent.asking(1.0, wanted=False)


def test_a_stored_intent_is_loaded_unchanged() -> None:
    made = Intent()
    made.load(True, True, True, 7)
    assert (made.on, made.settled, made.fresh, made.number) == (True, True, True, 7)
