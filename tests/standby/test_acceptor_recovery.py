"""How proxies get their rows: when a register is founded, and when one has lost its data.

The rule is docs/explanation/register.md, R9.
"""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol import decode, encode
from pubsub.protocol.register import Accept, Admit, Forget, Look, View, VoteOutcome
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery, Founding
from pubsub.server.standby.election.proposer import Chosen, Proposer
from tests.standby.breakages import broken
from tests.standby.cast import ALONE, BOTH, STORE, TAKEN, A, B, Cast

TERM = 200
NEW_LIFE = "e" * 16


class Stage(Cast):
    """A is primary, B answers FORGET; p0 has lost its data."""

    def __init__(self, proxies: int = 3) -> None:
        super().__init__(BOTH, proxies)
        self.a, self.b = self.member(A), self.member(B)
        assert isinstance(self.attempt(self.a, "resume", wall_ms=TERM), Chosen)
        self.acceptor_recovery = AcceptorRecovery(self.a, Random(1))
        self.lose("p0")

    def lose(self, proxy: str, identity: str = NEW_LIFE) -> None:
        self.proxies[proxy] = Registers(proxy, identity, [], RouteChanges(), patience=3.0)

    def pump(self, *silent: str) -> list[object]:
        """Deliver everything until no message is sent; returns the messages of A."""
        seen: list[object] = []
        while self.a.outgoing:
            sent, self.a.outgoing[:] = list(self.a.outgoing), []
            for target, message in sent:
                seen.append(message)
                if target in silent:
                    continue
                if isinstance(message, Forget):
                    assert target == B
                    self.b.forget(message.identity, self.now)
                    done = Forget(message.sender, message.store, B, message.identity, done=1)
                    self.acceptor_recovery.forgotten(decode(*encode(done)))  # type: ignore[arg-type]
                else:
                    vote = self.proxies[target].handle(decode(*encode(message)), self.now)  # type: ignore[arg-type]
                    self.a.receive(target, vote, self.now)
                    self.acceptor_recovery.receive(target, vote, self.now)
        return seen

    def look(self, *silent: str) -> list[object]:
        self.acceptor_recovery.look()
        return self.pump(*silent)

    def row(self, proxy: str = "p0") -> RegisterRow | None:
        return self.proxies[proxy].rows.get(STORE)


def test_a_proxy_that_lost_its_data_gets_the_highest_reported_row() -> None:
    stage = Stage()
    later = BOTH._replace(term=900)
    stage.proxies["p1"].rows[STORE] = RegisterRow(STORE, 950, TERM, stage.a.view or BOTH)
    stage.proxies["p2"].rows[STORE] = RegisterRow(STORE, 900, 900, later)
    stage.look()
    assert stage.row() == RegisterRow(STORE, 950, 900, later, "s1")
    assert list(stage.acceptor_recovery.lost) == ["p0"]
    stage.look()
    assert not list(stage.acceptor_recovery.lost)
    assert stage.acceptor_recovery.outcomes == dict.fromkeys(["p0", "p1", "p2"], VoteOutcome.REPORTED)


def test_recovery_reports_a_proxy_without_a_vote_and_omits_a_silent_proxy() -> None:
    stage = Stage()
    stage.look(B, "p2")
    assert stage.acceptor_recovery.outcomes == {"p0": VoteOutcome.NEW, "p1": VoteOutcome.REPORTED}


def test_no_vote_is_given_back_before_the_other_member_has_forgotten() -> None:
    stage = Stage()
    for _ in range(3):
        seen = stage.look(B)
        assert any(isinstance(message, Forget) for message in seen)
        assert not any(isinstance(message, Admit) for message in seen)
    assert stage.row() is None
    stage.look()
    assert stage.row() is not None


def test_the_other_member_stops_counting_a_lost_promise() -> None:
    """B has a promise of p0's last life and one of p1: without p0's row no primary would hear of B."""
    stage = Stage()
    stage.lose("p0", "d" * 16)
    stage.proxies["p0"].rows[STORE] = RegisterRow(STORE, TERM, TERM, stage.a.view or BOTH)
    stage.begin(stage.b, "handover", wall_ms=700)
    promised = stage.answers(stage.b, "p0", "p1")
    stage.lose("p0")
    stage.look()
    assert stage.row() is not None
    for name, vote in promised:
        stage.b.receive(name, vote, stage.now)
    assert not any(isinstance(message, Accept) for _, message in stage.b.outgoing)


def passed_over() -> bool:
    """Whether B becomes primary by a promise of p0's last life, though A was chosen to be alone since."""
    stage = Stage()
    stage.lose("p0", "d" * 16)
    stage.proxies["p0"].rows[STORE] = RegisterRow(STORE, TERM, TERM, stage.a.view or BOTH)
    stage.begin(stage.b, "handover", wall_ms=700)
    late = dict(stage.b.outgoing)["p1"]
    votes = stage.answers(stage.b, "p0")  # The message to p1 is late, the one to p2 lost.
    stage.lose("p0")
    stage.look()
    assert stage.row() is not None
    assert isinstance(stage.attempt(stage.a, "remove_from_sync", "p0", "p2", term=TERM, wall_ms=600), Chosen)
    votes.append(("p1", stage.proxies["p1"].handle(late, stage.now)))
    for name, vote in votes:
        stage.b.receive(name, vote, stage.now)
    return isinstance(stage.carry(stage.b), Chosen)


def test_a_lost_promise_does_not_hide_a_later_chosen_view() -> None:
    assert not passed_over()
    with broken("forget"):
        assert passed_over()


def test_the_primarys_own_attempt_ends_too_and_only_once() -> None:
    stage = Stage()
    stage.begin(stage.a, "remove_from_sync", term=TERM, wall_ms=700)
    stage.a.outgoing.clear()
    stage.look(B)
    assert stage.a.attempt is None
    stage.begin(stage.a, "remove_from_sync", term=TERM, wall_ms=800)
    stage.look(B)
    assert stage.a.view is not None
    assert stage.a.view.in_sync == (A,)


def test_reports_of_too_few_proxies_give_no_vote_back() -> None:
    stage = Stage()
    stage.look("p2")
    assert stage.row() is None
    stage.look()
    assert stage.row() is not None


def test_two_of_five_proxies_may_lose_their_data_at_once() -> None:
    stage = Stage(proxies=5)
    stage.lose("p1", "d" * 16)
    stage.look("p4")
    assert (stage.row("p0"), stage.row("p1")) == (None, None)  # Only two others reported: one too few.
    stage.look()
    assert stage.row("p0") == stage.row("p1") == stage.row("p2")


def test_a_proxy_that_is_named_twice_reports_once() -> None:
    stage = Stage()
    stage.proxies["p2"] = stage.proxies["p1"]
    stage.look()
    assert stage.row() is None


def test_one_of_two_proxies_recovers_from_the_other_and_a_single_one_does_not() -> None:
    pair = Stage(proxies=2)
    pair.look()
    assert pair.row() is not None
    single = Stage(proxies=1)
    for _ in range(3):
        assert not any(isinstance(message, Admit) for message in single.look())
    assert single.row() is None


def test_a_proxy_that_loses_its_data_again_begins_anew() -> None:
    stage = Stage()
    stage.look(B)
    stage.lose("p0", "d" * 16)
    stage.acceptor_recovery.forgotten(Forget("s1", STORE, B, NEW_LIFE, done=1))  # Of the life before.
    seen = stage.pump()
    assert not any(isinstance(message, Admit) and message.identity != NEW_LIFE for message in seen)
    assert stage.row() is None
    stage.look()
    assert stage.row() is not None


def test_a_removed_member_need_not_forget() -> None:
    stage = Stage()
    assert isinstance(stage.attempt(stage.a, "remove", "p1", "p2", term=TERM, wall_ms=700), Chosen)
    stage.look(B)
    row = stage.row()
    assert row is not None
    assert row.view.members == (A,)


def test_a_former_primary_gives_no_vote_back() -> None:
    stage = Stage()
    stage.look(B)
    stage.acceptor_recovery.end()
    stage.acceptor_recovery.forgotten(Forget("s1", STORE, B, NEW_LIFE, done=1))
    stage.pump()
    assert stage.row() is None


# Founding


def drive(cast: Cast, member: Proposer, founding: Founding, *silent: str) -> None:
    for _ in range(3):
        founding.look()
        while member.outgoing:
            sent, member.outgoing[:] = list(member.outgoing), []
            for name, message in sent:
                assert isinstance(message, Look | Admit)
                if name not in silent:
                    founding.receive(name, cast.proxies[name].handle(decode(*encode(message)), cast.now))  # type: ignore[arg-type]


def founded(cast: Cast, *silent: str, term: int = TERM) -> tuple[Proposer, Founding]:
    member = cast.member(A)
    founding = Founding(member, term, Random(2))
    drive(cast, member, founding, *silent)
    return member, founding


def test_a_register_is_founded_when_every_proxy_has_a_row_and_a_member_can_be_added_then() -> None:
    cast = Cast(None)
    member, founding = founded(cast)
    assert founding.done
    assert cast.attempt(member, "bootstrap", term=TERM) == Chosen("bootstrap", View(TERM, A, "tcp://a:1", (A,), (A,)))
    outcome = cast.attempt(member, "add_to_sync", term=TERM, other=B)  # type: ignore[arg-type]
    assert outcome == Chosen("add_to_sync", View(TERM, A, "tcp://a:1", (A, B), (A, B)))


def test_founding_waits_for_a_silent_proxy() -> None:
    _, founding = founded(Cast(None), "p2")
    assert not founding.done


def test_an_interrupted_founding_is_completed_by_the_next_start_under_its_own_term() -> None:
    cast = Cast(BOTH._replace(members=(A,), in_sync=(A,)), ballot=TERM)
    del cast.proxies["p1"].rows[STORE]
    member, founding = founded(cast, term=TERM + 1)
    assert founding.done
    outcome = cast.attempt(member, "bootstrap", term=TERM + 1)
    assert outcome == Chosen("bootstrap", View(TERM + 1, A, "tcp://a:1", (A,), (A,)))


@pytest.mark.parametrize("view", [BOTH, ALONE, TAKEN])
def test_a_register_with_another_member_is_not_founded_again(view: View) -> None:
    cast = Cast(view)
    for proxy in ("p0", "p1"):
        cast.proxies[proxy].rows.clear()
    _, founding = founded(cast)
    assert not founding.done
    assert founding.existing == view
    assert [bool(proxy.rows) for proxy in cast.proxies.values()] == [False, False, True]


def test_no_proxy_gets_a_row_before_every_proxy_has_reported() -> None:
    cast = Cast(None)
    founded(cast, "p2")
    assert not any(proxy.rows for proxy in cast.proxies.values())


def test_a_proxy_that_loses_its_first_row_before_the_founding_ends_gets_another() -> None:
    cast = Cast(None, proxies=2)
    member, founding = founded(cast)
    cast.proxies["p1"] = Registers("p1", NEW_LIFE, [], RouteChanges(), patience=3.0)
    drive(cast, member, founding)
    assert founding.done
    assert isinstance(cast.attempt(member, "bootstrap", term=TERM), Chosen)


# The only proxy


def test_the_only_proxy_gets_its_vote_back_only_on_an_operators_request() -> None:
    stage = Stage(proxies=1)
    assert stage.acceptor_recovery.reset(5000) == "the_proxy_has_not_reported_a_missing_vote"
    stage.look()
    stage.look()
    assert stage.row() is None
    assert stage.acceptor_recovery.reset(5000) == ""
    stage.pump()
    assert stage.a.view is not None
    assert stage.row() == RegisterRow(STORE, 5000, TERM, stage.a.view, "s1")
    stage.look()
    assert stage.acceptor_recovery.outcomes == {"p0": VoteOutcome.REPORTED}
    assert stage.acceptor_recovery.reset(6000) == "", "a repeat finds it done"
    assert not stage.a.outgoing
    assert isinstance(stage.attempt(stage.a, "remove_from_sync", term=TERM, wall_ms=1), Chosen)


def test_the_only_proxy_gets_no_vote_before_the_other_member_has_forgotten() -> None:
    stage = Stage(proxies=1)
    stage.look(B)
    assert stage.acceptor_recovery.reset(5000) == f"member_{B}_has_not_answered"
    stage.pump(B)
    assert stage.row() is None
    stage.look()
    assert stage.acceptor_recovery.reset(5000) == ""


@pytest.mark.parametrize("wall_ms", [1, 5000])
def test_an_old_request_to_the_only_proxy_comes_too_late_after_a_reset(wall_ms: int) -> None:
    stage = Stage(proxies=1)
    stage.begin(stage.b, "handover", wall_ms=TERM)  # Still under way while the proxy loses its data.
    stage.look()
    assert stage.acceptor_recovery.reset(wall_ms) == ""
    stage.pump()
    ((_, vote),) = stage.answers(stage.b)
    assert vote.outcome is VoteOutcome.REFUSED


def test_a_vote_is_not_reset_while_other_proxies_can_report() -> None:
    stage = Stage()
    stage.look("p1", "p2")
    assert stage.acceptor_recovery.reset(5000) == "other_proxies_report_its_promises"
    stage.pump()
    assert stage.row() is None
