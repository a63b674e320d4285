"""The routing table by itself: holders, counts, assignment, and its changes for the routes file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pubsub.base.liveness import Liveness
from pubsub.proxy.remembered import AbandonedLog, Remembered, StoreRow
from pubsub.proxy.routes_file import RoutesStore
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from tests.proxy.stage import log_id, server


@pytest.fixture
def table() -> RoutingTable:
    return RoutingTable(topics_max=1000)


def test_topics_just_assigned_count_and_ties_go_to_the_smallest_id(table: RoutingTable) -> None:
    for name in ("s2", "s10", "s1"):
        server(table, name)
    given = [table.assign(f"t{k}", 0.0) for k in range(6)]
    assert [one.id for one in given if one] == ["s1", "s10", "s2", "s1", "s10", "s2"]


def test_topics_are_bounded_and_present_ones_may_still_change() -> None:
    table = RoutingTable(topics_max=2)
    s1, s2 = server(table, "s1"), server(table, "s2")
    assert table.update(s1, {"a": log_id("1"), "b": log_id("1"), "c": log_id("1")}) == 1
    assert table.holders("c") == ()
    assert not table.may_assign("d")
    assert table.update(s2, {"a": log_id("2")}) == 0, "a second holder needs no further topic"
    table.update(s1, {"b": ""})
    assert table.may_assign("d")


def test_a_replaced_list_drops_unnamed_topics(table: RoutingTable) -> None:
    s1 = server(table, "s1")
    table.replace(s1, {"a": log_id("1"), "b": log_id("2")})
    table.replace(s1, {"b": log_id("3"), "c": ""})
    assert s1.topics == {"b": log_id("3")}
    assert table.changes.holders == {("a", s1.store): None, ("b", s1.store): log_id("3")}


def test_two_holders_contest_a_topic_until_one_drops_it(table: RoutingTable) -> None:
    s2, s1 = server(table, "s2"), server(table, "s1")
    table.update(s2, {"t": log_id("2")})
    table.update(s1, {"t": log_id("1")})
    assert [one.id for one in table.contested["t"]] == ["s1", "s2"]
    assert table.named_holders("t", but=s1) == f"s2.{log_id('2')}"
    table.update(s1, {"t": ""})
    assert not table.contested
    assert table.holders("t") == (s2,)


def test_requests_on_a_contested_topic_go_where_the_client_has_history(table: RoutingTable) -> None:
    s1, s2, s3 = (server(table, name) for name in ("s1", "s2", "s3"))
    for one in (s1, s2, s3):
        table.update(one, {"t": log_id(one.id)})
    assert table.choose("t", "", "", 0.0) is s1
    assert table.choose("t", log_id("s2"), "", 0.0) is s2
    assert table.choose("t", "", log_id("s1"), 0.0) is s2
    assert table.choose("t", log_id("gone"), log_id("s1"), 0.0) is s2
    s3.liveness.received(3.0)
    assert table.choose("t", log_id("s2"), "", 3.0) is s3, "the named holder is dead"
    assert table.choose("t", "", log_id("s3"), 3.0) is s3, "no other is alive"
    assert table.choose("t", "", "", 9.0) is None


def test_an_empty_store_under_a_known_id_does_not_inherit(table: RoutingTable) -> None:
    old = server(table, "s1")
    table.update(old, {"t": log_id("t")})
    new = Server(StoreRow(log_id("other"), "s1", 1, 1, ""), Liveness(1.0, 3, 5.0))
    assert table.attach(new, b"new link") == [old]
    assert table.holders("t") == (old,)
    assert not old.alive(5.0)
    assert table.named("s1") is new


def test_only_a_store_without_topics_is_evicted(table: RoutingTable) -> None:
    s1, s2, s3, s4 = (server(table, name) for name in ("s1", "s2", "s3", "s4"))
    table.update(s1, {"t": log_id("t")})
    s4.overflow = True
    for one in (s1, s2, s4):
        table.detach(one)
    assert table.evict()
    assert set(table.servers.values()) == {s1, s3, s4}
    assert table.changes.stores == {s2.store: None}
    assert not table.evict()


def test_a_store_that_may_hold_unknown_topics_is_not_evicted(table: RoutingTable) -> None:
    """One is awaited, since it was never heard; the other was given a topic just before it went away."""
    s1 = server(table, "s1")
    signs = Liveness(1.0, 3, 0.0)
    signs.forget()
    table.await_store(Server(StoreRow(log_id("a"), "s2", 5, 0, "", announced=False), signs))
    assert table.assign("t", 0.0) is s1
    table.detach(s1)
    assert not table.evict()
    table.assignments.expire(1e9)
    assert table.evict()
    assert set(table.servers) == set(table.awaited) == {log_id("a")}


def test_restored_servers_are_known_and_dead(table: RoutingTable) -> None:
    rows = [StoreRow(log_id("a"), "s1", 5, 9, "tcp://s1"), StoreRow(log_id("b"), "s2", 1, 1, "tcp://s2")]
    held = [("t", log_id("a"), log_id("x")), ("t", log_id("b"), log_id("y")), ("u", log_id("b"), log_id("z"))]
    table.restore(Remembered(rows, held), 1.0, 3, 0.0)
    assert [one.id for one in table.contested["t"]] == ["s1", "s2"]
    assert table.alive(0.0) == []
    assert table.servers[log_id("a")].row() == rows[0]
    assert not table.changes, "what the file holds need not be written again"


def test_the_changes_always_add_up_to_the_table() -> None:
    """Whatever happens: what was written plus the changes is what the table holds."""
    for seed in range(30):
        chance = random.Random(seed)
        table = RoutingTable(topics_max=6)
        servers = [server(table, f"s{k}") for k in range(3)]
        disk: dict[tuple[str, str], str] = {}
        for _ in range(60):
            one = chance.choice(servers)
            topics = {f"t{chance.randrange(8)}": chance.choice(["", log_id("x"), log_id("y")]) for _ in range(3)}
            new = f"t{chance.randrange(8)}"
            if not table.holders(new) and table.may_assign(new):
                table.assign(new, 0.0)
            chance.choice([table.update, table.replace])(one, topics)
            for key, log in table.changes.holders.items():
                if log is None:
                    disk.pop(key, None)
                else:
                    disk[key] = log
            table.changes.clear()
            assert disk == {(topic, s.store): log for s in servers for topic, log in s.topics.items()}
            held = {topic for s in servers for topic in s.topics}
            assert set(table.single) | set(table.contested) == held
            assert all(len(table.contested[topic]) > 1 for topic in table.contested)
            assert len(table) + len(table.assignments.tentative) <= 6 + len(table.assignments.tentative.keys() & held)
            for s in servers:
                assert s.assigned == sum(a.server is s for a in table.assignments.tentative.values())


def given(receiver: str, log: str, after: int) -> str:
    return f"{receiver}.{log_id(log)},{log_id(receiver)},{after}"


def test_the_receiver_of_a_topic_is_its_holder_from_the_givers_report_on(table: RoutingTable) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.update(s2, {"t": log_id("t")}, 5)
    table.update(s2, {"t": given("s1", "t", 9)}, 6)
    assert table.holders("t") == (s1,), "its own word is still on its way"
    table.replace(s1, {}, 8)
    assert table.holders("t") == (s1,), "that was said before the join"
    table.replace(s1, {}, 9)
    assert table.holders("t") == ()


def test_the_receivers_later_announcement_overrides_the_givers_report(table: RoutingTable) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.update(s2, {"t": log_id("t")}, 5)
    s1.change = 9
    table.update(s2, {"t": given("s1", "t", 9)}, 6)
    assert table.holders("t") == ()


def test_a_receiver_that_was_never_heard_is_a_dead_holder(table: RoutingTable) -> None:
    s2 = server(table, "s2")
    table.update(s2, {"t": log_id("t")}, 5)
    table.update(s2, {"t": given("s1", "t", 9)}, 6)
    (holder,) = table.holders("t")
    assert (holder.id, holder.store, holder.alive(0.0)) == ("s1", log_id("s1"), False)
    assert table.changes.holders["t", log_id("s1")] == log_id("t"), "the routes file remembers it"
    assert table.changes.stores[log_id("s1")] == holder.row()


def test_a_topic_abandoned_at_a_server_is_not_given_to_it(table: RoutingTable) -> None:
    server(table, "s1")
    s2 = server(table, "s2")
    table.update(s2, {"t": log_id("t")}, 5)
    table.abandon(AbandonedLog("t", log_id("later"), "s1", log_id("s1")))
    table.update(s2, {"t": given("s1", "t", 9)}, 6)
    assert table.holders("t") == ()


@pytest.mark.parametrize(
    "value", ["s1.x", f"s1.{log_id('t')}", f"s1.{log_id('t')},x,9", f"s1.{log_id('t')},{log_id('s1')},x"]
)
def test_an_invalid_report_of_a_giver_only_ends_its_hold(table: RoutingTable, value: str) -> None:
    server(table, "s1")
    s2 = server(table, "s2")
    table.update(s2, {"t": log_id("t")}, 5)
    table.update(s2, {"t": value}, 6)
    assert table.holders("t") == ()


def test_a_receiver_without_a_name_in_a_long_directory_has_one_when_it_is_abandoned(
    table: RoutingTable, tmp_path: Path
) -> None:
    nameless = StoreRow(log_id("s1"), "", 1, 0, "", announced=False)
    table.await_store(Server(nameless, Liveness(1.0, 3, 0.0)))
    s2 = server(table, "s2")
    table.note(s2)
    table.update(s2, {"t": log_id("t")}, 5)
    table.update(s2, {"t": given("s1", "t", 9)}, 6)
    assert table.named_holders("t") == f"s1.{log_id('t')}"
    table.abandon(AbandonedLog("t", log_id("t"), "s1", ""))
    store = RoutesStore(tmp_path)
    store.write(table.changes)
    assert [lost.server for lost in store.load().abandoned] == ["s1"]
    store.close()


def test_the_receiver_stays_holder_over_a_restart_until_its_next_announcement(
    table: RoutingTable, tmp_path: Path
) -> None:
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.note(s1)
    table.note(s2)
    table.update(s2, {"t": log_id("t"), "u": log_id("u")}, 5)
    table.update(s2, {"t": given("s1", "t", 9), "u": given("s1", "u", 7)}, 6)
    store = RoutesStore(tmp_path)
    store.write(table.changes)
    again = RoutingTable(topics_max=1000)
    again.restore(store.load(), 1.0, 3, 0.0)
    store.close()
    back = again.servers[s1.store]
    again.replace(back, {}, 8)
    assert again.holders("t") == (back,), "that was said before the join"
    assert again.holders("u") == ()
    again.replace(back, {}, 9)
    assert again.holders("t") == ()


def test_a_givers_report_beyond_the_limit_was_omitted() -> None:
    table = RoutingTable(topics_max=1)
    s1, s2 = server(table, "s1"), server(table, "s2")
    table.update(s1, {"a": log_id("a")})
    word = {"t": given("s3", "t", 9)}
    assert table.update(s2, word, 6) == 1, "else its giver takes it for known here, and says it no more"
    table.update(s1, {"a": ""})
    assert table.update(s2, word, 6) == 0
    assert [holder.id for holder in table.holders("t")] == ["s3"]
