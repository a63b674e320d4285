"""The reaction of members to proxies that have lost their data."""

from __future__ import annotations

from pubsub.protocol.register import View, Vote, VoteOutcome
from tests.standby.cast import STORE, A, B
from tests.standby.duo import C, Duo, views


def test_a_proxy_that_lost_its_data_gets_its_vote_back_after_both_members_forget_it() -> None:
    duo = Duo().started()
    duo.forget(0, 7)
    duo.cut = {A}
    duo.run(0.5)
    assert STORE not in duo.proxies[0].rows
    duo.cut = set()
    duo.run(5.0)
    assert views(duo) == {(A, (A, B))}


def test_an_old_view_of_a_proxy_that_lost_its_data_does_not_hide_the_primary() -> None:
    """Of three, one has the view in force, one has lost it, and one was away when it was chosen."""
    duo = Duo().started()
    old = duo.b.member.view
    assert old is not None
    new = View(old.term + 9, C, "tcp://c:1", (B, C), (C,))
    duo.b.member.vote(1, Vote("p1", STORE, VoteOutcome.REPORTED, 1, "i1", new.term, new.term, new, 0), duo.now)
    assert duo.b.member.primary == (A, "tcp://a:1")
    duo.b.member.vote(0, Vote("p0", STORE, VoteOutcome.NEW, 1, "i9", 0, 0, None, -1), duo.now)
    assert duo.b.member.primary == (C, "tcp://c:1")
    for place in (1, 2):
        duo.b.member.vote(place, Vote("p", STORE, VoteOutcome.NEW, 1, "i9", 0, 0, None, -1), duo.now)
    assert duo.b.member.primary != ("", "")


def test_the_only_proxy_gets_its_vote_back_from_the_primary_on_an_operators_request() -> None:
    duo = Duo(proxies=1).started()
    duo.forget(0, 7)
    assert duo.b.member.acceptor_recovery.reset(duo.wall_ms) == "the_proxy_has_not_reported_a_missing_vote"
    duo.run(5.0)
    assert STORE not in duo.proxies[0].rows
    assert duo.a.member.acceptor_recovery.reset(duo.wall_ms) == ""
    duo.run(1.0)
    assert views(duo) == {(A, (A, B))}
    duo.a.crash()
    duo.until_serves(duo.b)


def test_a_replaced_primary_gives_the_only_proxy_no_vote() -> None:
    """Its view is not the last one that the proxy had accepted: the other one, which serves, does not confirm it."""
    duo = Duo(proxies=1).started()
    duo.a.silent, duo.cut = True, {A, B, (A, 0)}
    duo.until_serves(duo.b)
    duo.forget(0, 7)
    duo.b.silent, duo.cut = True, {(B, 0)}
    duo.run(5.0)
    assert duo.a.member.acceptor_recovery.reset(duo.wall_ms) == f"member_{B}_has_not_answered"
    assert STORE not in duo.proxies[0].rows
