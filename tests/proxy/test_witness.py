"""A witness at the proxy's core: it votes, answers whether a topic is whole, and routes nothing."""

from __future__ import annotations

from pubsub.protocol import Outcome, split_topics
from pubsub.protocol.register import VoteOutcome
from tests.proxy.stage import Stage, log_id
from tests.proxy.test_members import ROW, A, Pair, prepare, report


def test_a_witness_votes_and_routes_nothing() -> None:
    pair = Pair(ROW, witness=True)
    pair.serve(A, 100)
    assert pair.vote(prepare()).outcome is VoteOutcome.PRIMARY_ALIVE
    for topic in ("t", "new"):
        assert pair.put(topic) == "unavailable this_proxy_is_a_witness"
    assert pair.core.table.assignments.assigned("new", pair.now) is None
    assert report(pair)["witness"] is True


def test_a_witness_answers_whether_a_topic_is_whole() -> None:
    """Every proxy has to, and a server cannot tell a witness from another one."""
    stage = Stage(witness=True)
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", {"t": "y"})
    answer = stage.whole("s1", "t")
    assert answer.outcome is Outcome.SUCCESS
    assert split_topics(answer.body) == {"t": f"s2.{log_id('y')}"}
