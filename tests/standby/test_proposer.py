"""One member's ballots, against real acceptors: the proposals of an attempt, its waits, and its open results."""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol.register import Accept, Look, Prepare, View, Vote, VoteOutcome
from pubsub.proxy.remembered import RegisterRow
from pubsub.server.standby.election.proposer import (
    ATTEMPT_BEATS,
    Chosen,
    Deposed,
    Ended,
    Proposer,
    may_name,
    possibly_chosen,
)
from tests.standby.cast import ALONE, BOTH, STORE, TAKEN, WALL, A, B, Cast

# Proposals


@pytest.mark.parametrize(
    ("kind", "member", "before", "after"),
    [
        ("takeover", B, BOTH, View(WALL, B, "tcp://b:1", (A, B), (B,))),
        ("handover", B, BOTH, View(WALL, B, "tcp://b:1", (A, B), (A, B))),
        ("resume", A, BOTH, View(WALL, A, "tcp://a:1", (A, B), (A, B))),
        ("resume", A, ALONE, View(WALL, A, "tcp://a:1", (A, B), (A,))),
        ("remove_from_sync", A, BOTH, ALONE),
        ("add_to_sync", A, ALONE, BOTH),
        ("add_to_sync", A, ALONE._replace(members=(A,)), BOTH),
        ("remove", A, BOTH, ALONE._replace(members=(A,))),
        ("bootstrap", A, View(7, A, "tcp://old:1", (A,), (A,)), ALONE._replace(members=(A,))),
    ],
)
def test_an_attempt_changes_the_view_as_its_kind_says(kind: str, member: str, before: View, after: View) -> None:
    cast = Cast(before)
    proposer = cast.member(member)
    assert cast.attempt(proposer, kind) == Chosen(kind, after)
    assert (proposer.view, proposer.required, proposer.unsettled) == (after, after.in_sync, False)
    assert cast.views() == [after] * 3


@pytest.mark.parametrize(
    ("kind", "member", "before"),
    [
        ("takeover", B, ALONE),
        ("handover", B, ALONE),
        ("resume", B, BOTH),
        ("add_to_sync", A, BOTH._replace(members=(A, "c" * 16), in_sync=(A,))),
        ("bootstrap", A, BOTH),
    ],
)
def test_an_attempt_that_the_view_does_not_allow_proposes_nothing(kind: str, member: str, before: View) -> None:
    cast = Cast(before)
    assert cast.attempt(cast.member(member), kind) == Ended(kind, before)
    assert cast.views() == [before] * 3


@pytest.mark.parametrize("kind", ["remove_from_sync", "add_to_sync", "remove"])
@pytest.mark.parametrize("view", [TAKEN, BOTH._replace(term=101)], ids=["another primary", "a later term"])
def test_a_replaced_primary_learns_so_when_it_changes_the_members_in_sync(kind: str, view: View) -> None:
    cast = Cast(view)
    assert cast.attempt(cast.member(A), kind) == Deposed(view)
    assert cast.views() == [view] * 3


def test_a_majority_is_enough_and_a_minority_is_not() -> None:
    cast = Cast()
    proposer = cast.member(A)
    assert cast.attempt(proposer, "remove_from_sync", "p0") is None
    assert cast.attempt(proposer, "remove_from_sync", "p0", "p2") == Chosen("remove_from_sync", ALONE)
    assert cast.views() == [ALONE, BOTH, ALONE]


@pytest.mark.parametrize("phase", ["look", "prepare", "accept"])
def test_a_proxy_that_is_named_twice_is_one_vote(phase: str) -> None:
    """Two addresses of one proxy, or a copy of its directory: a majority of addresses is none of proxies then."""
    cast = Cast()
    cast.proxies["p1"] = cast.proxies["p0"]
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync" if phase != "look" else "resume")
    if phase == "accept":
        for name, vote in cast.answers(proposer, "p0", "p2"):
            proposer.receive(name, vote, cast.now)
    for vote in dict(cast.answers(proposer, "p0")).values():
        for name in ("p0", "p1"):
            assert proposer.receive(name, vote, cast.now) is None
    assert not proposer.outgoing


def test_an_attempt_with_two_proxies_needs_both() -> None:
    cast = Cast(proxies=2)
    proposer = cast.member(A)
    assert cast.attempt(proposer, "remove_from_sync", "p0") is None
    assert cast.attempt(proposer, "remove_from_sync") == Chosen("remove_from_sync", ALONE)


# Ballots


def test_a_ballot_begins_at_the_wall_clock_and_is_above_every_ballot_seen() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync", wall_ms=5000)
    cast.carry(proposer)
    assert [proxy.rows[STORE].ballot for proxy in cast.proxies.values()] == [5000] * 3
    cast.begin(proposer, "add_to_sync", wall_ms=4000)  # The clock was set back.
    cast.carry(proposer)
    assert [proxy.rows[STORE].ballot for proxy in cast.proxies.values()] == [5001] * 3


def test_a_refused_attempt_ends_and_the_next_ballot_is_above_the_refusing_one() -> None:
    cast = Cast()
    cast.attempt(cast.member(B), "handover", "p0", wall_ms=9000)
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    assert isinstance(cast.round(proposer, "p0"), Ended)
    cast.begin(proposer, "remove_from_sync")
    (_, first), *_ = proposer.outgoing
    assert isinstance(first, Prepare)
    assert first.ballot == 9001


def test_an_answer_counts_only_for_the_attempt_that_asked() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    stale = cast.answers(proposer)
    cast.begin(proposer, "add_to_sync")
    proposer.outgoing.clear()
    assert [proposer.receive(name, vote, cast.now) for name, vote in stale] == [None] * 3
    assert not proposer.outgoing


def test_a_restarted_member_ignores_answers_to_its_last_life_despite_a_set_back_clock() -> None:
    cast = Cast()
    first = cast.member(A)
    cast.begin(first, "remove_from_sync")
    stale = cast.answers(first, "p0", "p1")
    again = Proposer(first.identity, cast.names, 1.0, 3.0, Random("another life"))
    cast.begin(again, "remove_from_sync")
    assert all(again.receive(name, vote, cast.now) is None for name, vote in stale)
    assert not any(isinstance(message, Accept) for _, message in again.outgoing)


def test_a_repeated_message_changes_nothing() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    outcome = None
    for _ in range(2):
        proposer.outgoing += proposer.outgoing  # Each goes out twice; a proxy refuses the ballot that it has promised.
        outcome = cast.round(proposer)
    assert outcome == Chosen("remove_from_sync", ALONE)


def test_votes_of_unknown_proxies_are_ignored() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    vote = cast.answers(proposer)[0][1]
    for stranger in ("p8", "p9"):
        assert proposer.receive(stranger, vote, cast.now) is None
    assert not proposer.outgoing


# Possibly chosen views


def test_a_view_that_few_proxies_accepted_from_a_dying_member_does_not_block_the_others() -> None:
    cast = Cast()
    dying = cast.member(B)
    cast.begin(dying, "takeover", wall_ms=500)
    cast.round(dying)
    cast.round(dying)
    cast.round(dying, "p2")
    assert cast.views() == [BOTH, BOTH, TAKEN._replace(term=500)]
    assert cast.attempt(cast.member(A), "remove_from_sync") == Chosen("remove_from_sync", ALONE)


def test_a_view_counts_as_possibly_chosen_while_a_silent_proxy_may_have_accepted_it() -> None:
    cast = Cast()
    dying = cast.member(B)
    cast.begin(dying, "takeover", wall_ms=500)
    for asked in ((), (), ("p2",)):
        cast.round(dying, *asked)
    assert cast.attempt(cast.member(A), "remove_from_sync", "p1", "p2") == Deposed(TAKEN._replace(term=500))


def test_the_highest_ballot_that_may_have_been_chosen_counts() -> None:
    old, new = (5, BOTH), (7, TAKEN)
    assert possibly_chosen([old, old, new], 3, 2) == BOTH
    assert possibly_chosen([old, new], 3, 2) == TAKEN
    assert possibly_chosen([old, new, new], 3, 2) == TAKEN
    assert possibly_chosen([None, None, new], 3, 2) == TAKEN  # A silent proxy may have accepted any view.
    assert possibly_chosen([None, None, None], 3, 2) is None


def test_a_proxy_that_accepted_a_later_ballot_may_have_accepted_the_one_before() -> None:
    """9 is of one proxy alone, but that one may have accepted 7 before, which was chosen then."""
    latest = View(300, B, "tcp://b:1", (A, B), (B,))
    assert possibly_chosen([(5, BOTH), (7, TAKEN), (9, latest)], 3, 2) == TAKEN


def test_accepted_ballots_decide_whether_a_view_may_name_a_member() -> None:
    mine, other = (5, BOTH), (7, TAKEN)
    assert may_name(A, [mine, mine, other], 3, 2)
    assert may_name(A, [mine, other], 3, 2)
    assert may_name(B, [mine, other], 3, 2)
    assert not may_name(A, [other, other], 3, 2)
    assert not may_name(B, [mine, mine, other], 3, 2)
    assert not may_name(A, [mine, other, other], 3, 2)


# The look


@pytest.mark.parametrize("kind", ["takeover", "resume"])
def test_a_look_precedes_a_ballot_and_promises_nothing(kind: str) -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, kind)
    assert all(isinstance(message, Look) for _, message in proposer.outgoing)
    cast.answers(proposer)
    assert [proxy.rows[STORE].promised for proxy in cast.proxies.values()] == [100] * 3


def test_a_member_whose_primary_is_heard_by_a_majority_starts_no_ballot() -> None:
    cast = Cast()
    for name in ("p0", "p1"):
        cast.proxies[name].received(STORE, A, 100, cast.now - 1)
    proposer = cast.member(B)
    assert cast.attempt(proposer, "takeover") == Ended("takeover", BOTH)
    assert [proxy.rows[STORE].promised for proxy in cast.proxies.values()] == [100] * 3


def test_a_primary_that_one_proxy_hears_is_replaced_through_the_others() -> None:
    cast = Cast()
    cast.proxies["p0"].received(STORE, A, 100, cast.now - 1)
    assert isinstance(cast.attempt(cast.member(B), "takeover"), Chosen)


def test_a_primary_that_was_heard_too_long_ago_is_replaced() -> None:
    cast = Cast()
    for proxy in cast.proxies.values():
        proxy.received(STORE, A, 100, cast.now - 3)
    assert isinstance(cast.attempt(cast.member(B), "takeover"), Chosen)


def test_a_proxy_without_its_row_has_no_vote() -> None:
    cast = Cast()
    del cast.proxies["p0"].rows[STORE]
    proposer = cast.member(A)
    assert cast.attempt(proposer, "remove_from_sync", "p0", "p1") is None
    assert isinstance(cast.attempt(proposer, "remove_from_sync"), Chosen)


@pytest.mark.parametrize("late", [Look, Prepare])
def test_a_report_from_before_the_ballot_is_no_promise(late: type) -> None:
    """The third proxy's answer to the look comes when the ballot is prepared already: it promises nothing."""
    cast = Cast()
    proposer = cast.member(B)
    cast.begin(proposer, "takeover")
    told = dict(cast.answers(proposer))
    for name in ("p0", "p1"):
        assert proposer.receive(name, told[name], cast.now) is None
    promised = dict(cast.answers(proposer))
    if late is Prepare:
        proposer.receive("p2", promised["p2"], cast.now)
    proposer.receive("p2", told["p2"], cast.now)
    assert not proposer.outgoing
    proposer.receive("p0", promised["p0"], cast.now)
    assert any(isinstance(message, Accept) for _, message in proposer.outgoing) == (late is Prepare)


# Waiting


def test_an_attempt_without_answers_ends_in_time() -> None:
    cast = Cast()
    proposer = cast.member(B)
    cast.begin(proposer, "takeover")
    assert proposer.deadline() == cast.now + ATTEMPT_BEATS
    assert proposer.poll(cast.now + ATTEMPT_BEATS - 0.01) is None
    assert proposer.poll(proposer.deadline()) == Ended("takeover", None)
    assert (proposer.attempt, proposer.deadline()) == (None, float("inf"))


# Open results


def begun(cast: Cast, proposer: Proposer, kind: str, *accepting: str) -> None:
    """An attempt whose view went to these proxies, and whose answers are lost."""
    cast.begin(proposer, kind)
    cast.round(proposer)
    cast.answers(proposer, *accepting)
    proposer.poll(proposer.deadline())


def test_a_member_that_may_be_in_sync_is_required_until_a_view_is_known_to_be_chosen() -> None:
    cast = Cast(ALONE)
    proposer = cast.member(A)
    cast.attempt(proposer, "resume", wall_ms=200)
    assert proposer.required == (A,)
    cast.begin(proposer, "add_to_sync", term=200, wall_ms=300)
    cast.round(proposer)
    assert proposer.required == (A, B)
    cast.answers(proposer)  # All have accepted it, and it never learns.
    assert isinstance(proposer.poll(proposer.deadline()), Ended)
    assert (proposer.required, proposer.unsettled) == ((A, B), True)
    assert isinstance(cast.attempt(proposer, "remove_from_sync", term=200), Chosen)
    assert (proposer.required, proposer.unsettled) == ((A,), False)


def test_both_members_are_required_while_a_removal_is_undecided() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.attempt(proposer, "resume", wall_ms=200)
    cast.begin(proposer, "remove_from_sync", term=200, wall_ms=300)
    cast.round(proposer)
    cast.answers(proposer, "p0")
    proposer.poll(proposer.deadline())
    assert (proposer.required, proposer.unsettled) == ((A, B), True)


def test_an_attempt_without_a_proposal_leaves_nothing_open() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.attempt(proposer, "resume")
    cast.begin(proposer, "remove_from_sync")
    cast.answers(proposer)
    proposer.poll(proposer.deadline())
    assert not proposer.unsettled


def test_a_starting_member_looks_whether_a_proposal_of_an_earlier_life_was_chosen() -> None:
    cast = Cast()
    begun(cast, cast.member(B), "handover")
    again = cast.member(B)
    assert again.unsettled
    outcome = cast.attempt(again, "resume", wall_ms=2000)
    assert outcome == Chosen("resume", View(2000, B, "tcp://b:1", (A, B), (A, B)))


@pytest.mark.parametrize("asked", [("p0", "p1"), ("p1", "p2"), ("p0", "p1", "p2")])
def test_an_unnamed_member_without_possible_views_knows_the_register(asked: tuple[str, ...]) -> None:
    cast = Cast()
    proposer = cast.member(B)
    for settled in (False, True):
        assert isinstance(cast.attempt(proposer, "resume", *asked) or proposer.poll(proposer.deadline()), Ended)
        assert proposer.unsettled is not settled
    assert cast.views() == [BOTH] * 3


def test_a_pending_view_comes_too_late_for_a_member_that_knows_the_register() -> None:
    """Its view may reach the proxies after it has looked: so it asks for a ballot once, above that of the view."""
    cast = Cast()
    proposer = cast.member(B)
    cast.begin(proposer, "takeover")
    cast.round(proposer)
    cast.round(proposer)
    late = list(proposer.outgoing)
    proposer.outgoing.clear()
    proposer.poll(proposer.deadline())
    while proposer.unsettled:
        assert isinstance(cast.attempt(proposer, "resume"), Ended)
    for name, message in late:
        assert isinstance(message, Accept)
        assert cast.proxies[name].handle(message, cast.now).outcome is VoteOutcome.REFUSED


def test_a_member_that_a_silent_proxy_may_name_keeps_looking() -> None:
    """Its hand-over may be chosen by p0 and p1; p2 took a later view of the other member."""
    cast = Cast()
    begun(cast, cast.member(B), "handover", "p0", "p1")
    cast.proxies["p2"].rows[STORE] = RegisterRow(STORE, 5000, 5000, BOTH._replace(term=5000))
    again = cast.member(B)
    for _ in range(3):
        cast.attempt(again, "resume", "p1", "p2")
        again.poll(again.deadline())
        assert again.unsettled


def test_a_forgotten_life_of_a_proxy_ends_dependent_attempts_once() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    votes = cast.answers(proposer)
    proposer.forget("e" * 16, cast.now)
    assert proposer.attempt is None
    assert [proposer.receive(name, vote, cast.now) for name, vote in votes] == [None] * 3
    cast.begin(proposer, "remove_from_sync")
    proposer.forget("e" * 16, cast.now)
    assert isinstance(cast.carry(proposer), Chosen)


def test_a_vote_without_a_view_counts_as_one_that_accepted_nothing() -> None:
    cast = Cast()
    proposer = cast.member(A)
    cast.begin(proposer, "remove_from_sync")
    token = proposer.attempt.token if proposer.attempt is not None else 0
    for name in cast.names:
        proposer.receive(name, Vote(name, STORE, VoteOutcome.PROMISED, token, name[1] * 16), cast.now)
    assert proposer.attempt is None
