"""What operators have a primary do with its members, as it answers them."""

from __future__ import annotations

from collections import Counter

from pubsub.protocol.messages import Operate, Outcome
from pubsub.server.standby.operator_requests import OperatorRequests
from pubsub.server.state.replies import Origin, Replies
from tests.standby.duo import A, B, C, Duo, Node, views


def ask(node: Node, action: str, member: str = "") -> tuple[Outcome, str]:
    replies = Replies("s1", Counter())
    actions = OperatorRequests(node.member, replies, lambda: node.duo.wall_ms).actions()
    actions[action].run(Origin(0, b"cX", 7), Operate("op", "s1", action, member=member), node.duo.now)
    ((origin, answer),) = replies.take()
    assert origin.callback == 7
    return answer.outcome, answer.reason


def test_a_switch_is_begun_where_there_is_a_standby_in_sync() -> None:
    duo = Duo().started()
    assert ask(duo.a, "switch") == (Outcome.SUCCESS, "")
    duo.until_serves(duo.b)
    assert ask(duo.a, "switch") == (Outcome.REFUSED, "no_standby_in_sync")


def test_a_member_is_removed_and_a_repeat_finds_it_done() -> None:
    duo = Duo().started()
    assert ask(duo.a, "remove", C) == (Outcome.SUCCESS, "it_is_none")
    assert ask(duo.a, "remove", A) == (Outcome.REFUSED, "not_another_member")
    duo.b.crash()
    assert ask(duo.a, "remove", B) == (Outcome.BUSY, "it_is_being_removed")
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    assert ask(duo.a, "remove", B) == (Outcome.SUCCESS, "it_is_none")


def test_a_vote_is_not_reset_where_other_proxies_tell_what_was_promised() -> None:
    duo = Duo().started()
    assert ask(duo.a, "reset") == (Outcome.REFUSED, "other_proxies_report_its_promises")


def test_a_member_that_is_in_sync_after_all_is_not_removed_when_it_is_next_away() -> None:
    duo = Duo().started()
    assert ask(duo.a, "remove", B) == (Outcome.BUSY, "it_is_being_removed")
    duo.run(20.0)
    duo.b.crash()
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    view = duo.a.member.proposer.view
    assert view is not None
    assert view.members == (A, B)
