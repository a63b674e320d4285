"""Rights of consumer groups: who may join, work, look, end and operate (docs/how-to/share-work.md).

A proxy decides by the header alone, and the server by the decoded message: both read the same question.
"""

from __future__ import annotations

import pytest

from pubsub.protocol import Message, Subscribe, Unsubscribe, encode
from pubsub.protocol.group_bodies import Range, Say
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.fingerprints import fingerprint
from pubsub.security.questions import question, question_of
from tests.security.keyring import key, pk

HEX = "0123456789abcdef"
WORKER, READER, ELSEWHERE, OPS = "worker", "reader", "elsewhere", "ops"
RULES = f"""\
client {WORKER} {pk(WORKER)} get=orders names=billing
client {READER} {pk(READER)} get=orders
client {ELSEWHERE} {pk(ELSEWHERE)} get=audit names=billing
client {OPS} {pk(OPS)} operate
"""
EVERYBODY = (WORKER, READER, ELSEWHERE, OPS)
SAY = Say(done=(Range(HEX, 1, 9),), claim=(Range(HEX, 9, 10),))


def messages(sender: str) -> dict[str, Message]:
    return {
        "join": Subscribe(sender, "orders", 2, 1, name="billing", group="any"),
        "make": Subscribe(sender, "orders", 2, 1, name="billing", group="keyed", parts=9, on_lost="redeliver"),
        "work": Work(sender, "orders", "billing", 1, 2, HEX, 1, records_max=9, say=SAY),
        "leave": Work(sender, "orders", "billing", 1, 2, HEX, 1, leave=1),
        "end": Unsubscribe(sender, "orders", 2, 1, name="billing", group=1, force=1),
        "another group": Work(sender, "orders", "audits", 1, 2, HEX, 1),
        "end by force": Group(sender, "orders", "end", "billing", 1, force=1),
        "groups": Describe(sender, "orders"),
        "members": Describe(sender, "orders", "members", "billing"),
        "letters": Describe(sender, "orders", "dead", "billing"),
        **{
            action: Group(sender, "orders", action, "billing", 1)
            for action in ("release", "redrive", "drop", "resume", "change")
        },
    }


ALLOWED = {
    **dict.fromkeys(("join", "make", "work", "leave", "end"), frozenset({WORKER})),
    "another group": frozenset(),
    **dict.fromkeys(("groups", "members", "letters"), frozenset({WORKER, READER, OPS})),
    **dict.fromkeys(("end by force", "release", "redrive", "drop", "resume", "change"), frozenset({OPS})),
}


def may(user: str, sender: str, message: Message) -> bool:
    asked = question(encode(message)[0])
    assert asked == question_of(message)
    access = Access(parse(RULES.encode()))
    verdict = access.decide(f"client:{user}#{fingerprint(key(user))}", *asked)
    assert asked.sender == sender
    return bool(verdict.allowed)


@pytest.mark.parametrize("what", ALLOWED)
def test_who_may(what: str) -> None:
    assert {user for user in EVERYBODY if may(user, user, messages(user)[what])} == ALLOWED[what]


@pytest.mark.parametrize("what", ["join", "work", "leave", "end"])
def test_nobody_speaks_for_another_member(what: str) -> None:
    """A member is a client with its store, and a key belongs to a client (docs/explanation/groups.md, GR7)."""
    assert not any(may(user, WORKER, messages(WORKER)[what]) for user in EVERYBODY if user != WORKER)


def test_every_message_is_in_the_table() -> None:
    assert messages(WORKER).keys() == ALLOWED.keys()
