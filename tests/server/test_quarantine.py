"""The evidence of an older copy, its consequences, and the facts that are no evidence.

The rule is docs/explanation/stores.md, S12.
"""

from __future__ import annotations

import json

import pytest

from pubsub.protocol import Get, Outcome, Report, Status
from tests.server.moving import ADDRESS, Pair, split, take
from tests.server.stage import Stage, put

OTHER = "b" * 16
"""Another holder's log."""


def is_stale(stage: Stage) -> None:
    """A proxy says that this store is an older copy of itself."""
    stage.say(Status("p1", Outcome.STALE, reason="an_older_copy", change=99), origin=b"", callback=0)
    stage.loop()


def test_a_gap_behind_puts_that_the_same_log_acknowledged_holds_the_topic_back(stage: Stage) -> None:
    """A client avoids a log in its oldest put only: all before that one it was acknowledged by this log."""
    log = stage.put("t", 1).log
    answer = stage.put("t", 9, previous=5, log=log, avoid=log)
    assert (answer.outcome, "client_alice_has_an_acknowledgement_of_put_5" in answer.reason) == (
        Outcome.UNAVAILABLE,
        True,
    )
    assert answer.reason.startswith("the_topic_is_held_back:_client_alice")
    stage.restart()
    assert stage.put("t", 2, previous=1).outcome is Outcome.UNAVAILABLE
    topic = json.loads(bytes(stage.ask(Report("op", "s1")).body))["topics"]["t"]
    assert topic["held_back"].startswith("client alice has an acknowledgement of put 5")
    assert topic["quarantined"] == topic["held_back"], "the old name stays for one release"


@pytest.mark.parametrize(("log", "avoid"), [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("sole_owner", [True, False])
def test_a_gap_behind_puts_that_another_log_acknowledged_holds_nothing_back(
    stage: Stage, log: bool, avoid: bool, sole_owner: bool
) -> None:
    """The holder that the client was sent on from had the gap; or none had, and a put was lost on its way."""
    own = stage.put("t", 1).log
    stage.sole_owner = sole_owner
    early = stage.put("t", 9, previous=5, log=own if log else OTHER, avoid=own if avoid else OTHER)
    assert early.outcome is (Outcome.GONE if sole_owner and not log else Outcome.GAP)
    assert stage.put("t", 2, previous=1).outcome is Outcome.SUCCESS


def test_a_store_found_to_be_an_older_copy_gives_and_answers_nothing_more(pair: Pair) -> None:
    split(pair)
    giver = pair["s2"]
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(5)
    assert giver.core.state.topics["t"].frozen == ADDRESS["s1"]
    giver.ask(put("u", 1))
    giver.subscribe("dan", "u", 5)
    waiting = giver.say(Get("dan", "u", None, 5, 5, records_max=10, wait_ms=60_000))
    giver.loop()
    is_stale(giver)
    assert giver.answered(waiting).outcome is Outcome.UNAVAILABLE
    pair.lose = set()
    for _ in range(2):  # After a start it is held back, too.
        pair.turns(20)
        assert pair.holders() == ["s1", "s2"]
        giver.restart()
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2"]


def test_a_store_found_to_be_an_older_copy_is_given_nothing_more(pair: Pair) -> None:
    split(pair)
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    pair.turns(5)
    receiver = pair["s1"]
    assert receiver.core.moves.receiving.incoming
    is_stale(receiver)
    assert not receiver.core.moves.receiving.incoming
    pair.lose = set()
    pair.turns(20)
    assert receiver.core.state.counters["topics_merged"] == 0
    assert pair["s2"].core.state.topics["t"].frozen == ADDRESS["s1"], "it waits for who may have merged it"
