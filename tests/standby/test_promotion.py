"""The last resort, decided: against the registers that proxies ship.

The rule is docs/explanation/register.md, R11.
"""

from __future__ import annotations

import pytest

from pubsub.protocol import decode, encode
from pubsub.protocol.register import Look, View
from pubsub.server.standby.election.promotion import GENERATION, Message, Promotion
from pubsub.server.standby.election.proposer import Chosen, Deposed, Identity
from tests.standby.cast import ALONE, BOTH, STORE, A, B, Cast

NEW, WALL = "c" * 16, 1000


class Attempt:
    def __init__(self, cast: Cast, before: str = B) -> None:
        self.cast = cast
        identity = Identity("s1", STORE, NEW, "tcp://c:1")
        self.core = Promotion(identity, before, cast.names, 3.0, 7, WALL)

    def ask(self, messages: dict[str, Message], *silent: str) -> str:
        """Carry messages to all proxies except the silent ones; returns the obstacle to the next step."""
        for name, message in messages.items():
            if name not in silent:
                vote = self.cast.proxies[name].handle(decode(*encode(message)), self.cast.now)
                self.core.receive(name, decode(*encode(vote)))
        return self.core.problem()

    def complete(self, *silent: str) -> str:
        for step in (self.core.look, self.core.prepare):
            if problem := self.ask(step(), *silent):
                return problem
        self.ask(self.core.accept(), *silent)
        return ""


def test_a_promoted_member_is_the_only_member_and_earlier_proposals_come_too_late() -> None:
    cast = Cast(ALONE)
    old = cast.member(A, term=100)
    assert isinstance(cast.attempt(old, "remove_from_sync"), Chosen)
    attempt = Attempt(cast)
    assert attempt.complete() == ""
    assert attempt.core.done
    assert attempt.core.in_sync == (NEW,)
    assert set(cast.views()) == {View(attempt.core.ballot, NEW, "tcp://c:1", (NEW,), (NEW,))}
    assert attempt.core.ballot >= WALL + GENERATION
    assert not isinstance(cast.attempt(old, "remove_from_sync"), Chosen)
    assert isinstance(cast.attempt(old, "remove_from_sync"), Deposed)


def test_a_promoted_member_serves_after_its_next_start() -> None:
    cast = Cast(ALONE)
    assert Attempt(cast).complete() == ""
    outcome = cast.attempt(cast.member(NEW), "resume")
    assert isinstance(outcome, Chosen)
    assert outcome.view.members == (NEW,)


def test_a_member_in_sync_is_not_promoted_and_the_error_says_start_it() -> None:
    assert Attempt(Cast(BOTH)).complete() == f"member {B} is in sync: start it, and it takes over by itself"


@pytest.mark.parametrize("where", [0, 2])
def test_promotion_is_refused_while_any_proxy_hears_the_primary(where: int) -> None:
    cast = Cast(ALONE)
    cast.proxies[cast.names[where]].received(STORE, A, 100, cast.now - 2.0)
    before = cast.views()
    assert "receives heartbeats of its primary" in Attempt(cast).complete()
    assert cast.views() == before


def test_a_primary_that_appears_between_two_steps_is_left_alone() -> None:
    cast = Cast(ALONE)
    attempt = Attempt(cast)
    assert attempt.ask(attempt.core.look()) == ""
    cast.proxies["p1"].received(STORE, A, 100, cast.now)
    assert "receives heartbeats of its primary" in attempt.ask(attempt.core.prepare())
    assert cast.views() == [ALONE] * 3


def test_a_majority_of_the_proxies_must_answer() -> None:
    assert Attempt(Cast(ALONE)).complete("p0", "p2") == "2 of 3 proxies must answer, and these do not: p0, p2"
    assert Attempt(Cast(ALONE)).complete("p0") == ""


def test_proxies_that_lost_their_data_get_a_vote() -> None:
    cast = Cast(None)
    attempt = Attempt(cast)
    assert attempt.complete() == ""
    assert attempt.core.done
    assert len(set(cast.views())) == 1


def test_promotion_needs_a_majority_with_the_view_and_may_be_repeated() -> None:
    cast = Cast(ALONE)
    attempt = Attempt(cast)
    assert attempt.ask(attempt.core.look()) == attempt.ask(attempt.core.prepare()) == ""
    attempt.ask(attempt.core.accept(), "p0", "p1")
    assert not attempt.core.done
    again = Attempt(cast)
    assert again.complete() == ""
    assert again.core.done
    assert again.core.ballot > attempt.core.ballot


def test_an_answer_to_an_earlier_step_does_not_count() -> None:
    cast = Cast(ALONE)
    attempt = Attempt(cast)
    late = cast.proxies["p0"].handle(Look("s1", STORE, 7), cast.now)
    assert attempt.ask(attempt.core.look()) == ""
    messages = attempt.core.prepare()
    attempt.core.receive("p0", late)
    assert attempt.ask(messages, "p0", "p1") == "2 of 3 proxies must answer, and these do not: p0, p1"
    assert not attempt.core.receive("p1", late)


def test_promotion_changes_nothing_before_a_majority_has_promised() -> None:
    """The store would end with an entry of a ballot that the others need not know, and depose them permanently."""
    attempt = Attempt(Cast(ALONE))
    assert attempt.ask(attempt.core.look()) == ""
    assert attempt.ask(attempt.core.prepare(), "p0", "p1") == "2 of 3 proxies must answer, and these do not: p0, p1"
