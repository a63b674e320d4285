"""Topics given to a server that no server has announced yet, and the doubts that such an assignment may leave.

The rule is docs/explanation/ownership.md, O1.
"""

from __future__ import annotations

import pytest

from pubsub.proxy import assignments
from pubsub.proxy.assignments import TENTATIVE_MAX, TENTATIVE_SECONDS
from pubsub.proxy.routing_table import RoutingTable
from tests.proxy.stage import log_id, server


@pytest.fixture
def table() -> RoutingTable:
    return RoutingTable(topics_max=1000)


def test_a_new_topic_goes_to_the_server_with_the_fewest_topics(table: RoutingTable) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.update(s1, {"a": log_id("a"), "b": log_id("b")})
    table.update(s2, {"c": log_id("c")})
    assert table.assign("new", 0.0) is s2


def test_an_assigned_topic_stays_with_its_live_server(table: RoutingTable) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    assert table.assign("t", 0.0) is s1
    s2.liveness.received(2.9)
    assert table.assign("t", 2.9) is s1
    assert s1.assigned == 1
    assert table.assign("t", 3.1) is s2, "s1 died before it announced the topic"
    assert (s1.assigned, s2.assigned) == (0, 1)


def test_no_assignment_is_made_without_a_live_server(table: RoutingTable) -> None:
    server(table, "s1")
    assert table.assign("t", 10.0) is None
    assert not table.assignments.tentative


def test_an_announced_topic_is_not_tentative_any_more(table: RoutingTable) -> None:
    s1 = server(table, "s1")
    table.assign("t", 0.0)
    table.update(s1, {"t": log_id("t")})
    assert (s1.assigned, table.assignments.tentative) == (0, {})
    assert table.holders("t") == (s1,)


def test_a_full_announcement_does_not_cancel_a_recent_assignment(table: RoutingTable) -> None:
    s1, _ = server(table, "s1"), server(table, "s2")
    table.assign("t", 0.0)
    table.replace(s1, {"other": log_id("o")})
    assert table.assign("t", 0.0) is s1


def test_an_unused_assignment_is_forgotten(table: RoutingTable) -> None:
    s1 = server(table, "s1")
    table.assign("t", 0.0)
    s1.liveness.received(TENTATIVE_SECONDS)
    table.assignments.expire(TENTATIVE_SECONDS - 1)
    assert "t" in table.assignments.tentative
    table.assignments.expire(TENTATIVE_SECONDS)
    assert (table.assignments.tentative, s1.assigned, table.assignments.doubts) == ({}, 0, {})


def test_a_server_that_died_with_an_assignment_stays_in_doubt_until_its_full_announcement(table: RoutingTable) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.assign("t", 0.0)
    s2.liveness.received(TENTATIVE_SECONDS)
    table.assignments.expire(TENTATIVE_SECONDS)
    assert table.assignments.doubts == {"t": {s1}}
    assert table.assignments.undecided(s2, ["t"])
    assert not table.assignments.undecided(s2, ["u"])
    table.assignments.settle(s1)
    assert not table.assignments.undecided(s2, ["t"])


def test_each_of_two_servers_with_the_same_assignment_stays_in_doubt(
    table: RoutingTable,
) -> None:
    s1, s2, s3 = (server(table, name) for name in ("s1", "s2", "s3"))
    for dead in (s1, s2):
        assert table.assign("t", 0.0) is dead
        dead.liveness.forget()
    table.assignments.expire(TENTATIVE_SECONDS)
    assert table.assignments.undecided(s1, ["t"]), "s2 may have made it too"
    table.assignments.settle(s1)
    assert table.assignments.undecided(s3, ["t"])
    table.assignments.settle(s2)
    assert not table.assignments.undecided(s3, ["t"])


def test_doubts_beyond_the_limit_are_kept_for_all_topics(table: RoutingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "TENTATIVE_MAX", 1)
    s1, s2, s3 = (server(table, name) for name in ("s1", "s2", "s3"))
    for dead, topic in ((s1, "t"), (s2, "u")):
        assert table.assign(topic, 0.0) is dead
        dead.liveness.forget()
    table.assignments.expire(TENTATIVE_SECONDS)
    table.assignments.settle(s1)
    assert table.assignments.undecided(s3, ["u"]), "s2 may have made it"
    assert not table.assignments.undecided(s2, ["u"])
    table.assignments.settle(s2)
    assert not table.assignments.undecided(s3, ["u"])


def test_assignments_are_bounded() -> None:
    table = RoutingTable(topics_max=TENTATIVE_MAX * 2)
    server(table, "s1")
    for k in range(TENTATIVE_MAX):
        assert table.may_assign(f"t{k}")
        table.assign(f"t{k}", 0.0)
    assert not table.may_assign("one more")
    assert table.may_assign("t0"), "a topic that has its assignment keeps it"
