"""Scenes for two rules that chance breaks too seldom: one server or two, and requests that are made by hand.

A scene returns its objections; with all rules there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.groups.model.holder import Holder
from tests.groups.model.messages import Answer, MemberID, Record, Subscribe, Work
from tests.groups.model.rules import Rules
from tests.groups.model.topic import PARTS, Topic

GROUP: Final = 1
ONE: Final[MemberID] = ("m0", 1)
OTHER: Final[MemberID] = ("m1", 1)


def holder_of(rules: Rules, messages: int, *, keyed: bool) -> Holder:
    """Return a server with a group and messages of one part."""
    holder = Holder(rules, Random(0), lambda *_: None)
    holder.topic = Topic("L1")
    holder.handle(Subscribe(ONE, 1, GROUP, earliest=True), 0, sole=True, keyed=keyed)
    for counter in range(1, messages + 1):
        key = counter * PARTS
        holder.topic.append(Record("p", counter, key, ("p", counter, key)))
    return holder


def ask(holder: Holder, work: Work) -> Answer | None:
    return holder.handle(work, 0, sole=True, keyed=False)


def late_keep_after_a_move(rules: Rules) -> list[str]:
    """A WORK from before a claim arrives after the topic has moved."""
    giver, receiver = holder_of(rules, 1, keyed=False), Holder(rules, Random(0), lambda *_: None)
    late = Work(ONE, 1, GROUP, 1)
    first = ask(giver, Work(ONE, 1, GROUP, 2, want=1, early=True))
    assert first is not None
    assert giver.topic is not None
    receiver.topic = Topic("L2")
    receiver.topic.merge(giver.topic, rules)
    ask(receiver, late)
    second = ask(receiver, Work(OTHER, 1, GROUP, 3, want=1, early=True))
    assert second is not None
    return ["doubled"] if first.held.keys() & second.held.keys() else []


def offers_in_a_part_in_doubt(rules: Rules) -> list[str]:
    """Another member claims in a part whose messages are offered, and is not heard again."""
    holder = holder_of(rules, 2, keyed=True)
    offered = ask(holder, Work(OTHER, 1, GROUP, 1, want=1))
    assert offered is not None
    front = next(iter(offered.offered))
    holder.forget_memory()
    two = ask(holder, Work(ONE, 1, GROUP, 2, want=2))
    assert two is not None
    ask(holder, Work(OTHER, 1, GROUP, 3, claims=(front,)))
    holder.silent(OTHER)
    number, behind = 4, frozenset(two.offered) - {front}
    refused = ask(holder, Work(ONE, 1, GROUP, number, offered=behind, claims=tuple(behind)))
    assert refused is not None
    assert not refused.held
    return ["offered in vain"] if refused.offered else []


SCENES: Final[dict[str, Callable[[Rules], list[str]]]] = {
    "numbers": late_keep_after_a_move,
    "blocked": offers_in_a_part_in_doubt,
}
