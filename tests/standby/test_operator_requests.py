"""The requests of operators to a primary about its members, and its answers."""

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


def test_a_switch_begins_with_a_standby_in_sync() -> None:
    duo = Duo().started()
    assert ask(duo.a, "switch") == (Outcome.SUCCESS, "")
    duo.until_serves(duo.b)
    assert ask(duo.a, "switch") == (Outcome.REFUSED, "no_standby_in_sync")


def test_a_member_is_removed_and_a_repeated_request_reports_success() -> None:
    duo = Duo().started()
    assert ask(duo.a, "remove", C) == (Outcome.SUCCESS, "it_is_none")
    assert ask(duo.a, "remove", A) == (Outcome.REFUSED, "not_another_member")
    duo.b.crash()
    assert ask(duo.a, "remove", B) == (Outcome.BUSY, "it_is_being_removed")
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    assert ask(duo.a, "remove", B) == (Outcome.SUCCESS, "it_is_none")


def test_a_vote_is_not_reset_while_other_proxies_report_the_promises() -> None:
    duo = Duo().started()
    assert ask(duo.a, "reset") == (Outcome.REFUSED, "other_proxies_report_its_promises")


def test_a_cancelled_removal_does_not_remove_the_member_at_its_next_absence() -> None:
    duo = Duo().started()
    assert ask(duo.a, "remove", B) == (Outcome.BUSY, "it_is_being_removed")
    duo.run(20.0)
    duo.b.crash()
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    view = duo.a.member.proposer.view
    assert view is not None
    assert view.members == (A, B)
