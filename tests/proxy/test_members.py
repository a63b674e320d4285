"""Members of a registered store, at the proxy's core: their votes, the primary, and the effects of a takeover."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pubsub.protocol import Outcome, Periodic, Put, Report, Status
from pubsub.protocol.register import Accept, Admit, Look, Prepare, View, Vote, VoteOutcome
from pubsub.protocol.stores import Known, format_stores
from pubsub.proxy.in_flight import LARGE_BYTES
from pubsub.proxy.notices import Routine
from pubsub.proxy.remembered import RegisterRow, Remembered, StoreRow
from tests.proxy.stage import PROXIES, Said, Stage, log_id

IDENTITY, A, B = "f" * 16, "a" * 16, "b" * 16
STORE = log_id("s1")
FIRST = View(100, A, "tcp://a:1", (A, B), (A, B))
NEXT = View(200, B, "tcp://b:1", (A, B), (B,))
ROW = RegisterRow(STORE, 100, 100, FIRST, "s1")


def link(member: str) -> bytes:
    return member[:1].encode()


class Pair(Stage):
    """Two members of server s1; each has a link of one letter."""

    def __init__(self, *rows: RegisterRow, stores: tuple[StoreRow, ...] = (), **changed: Any) -> None:
        super().__init__(remembered=Remembered(stores, registers=rows, identity=IDENTITY), **changed)

    def serve(self, member: str, term: int, *, change: int = 1, at: bytes = b"", **given: Any) -> Status | None:
        """A member announces itself as primary, with topic t."""
        return self.announce(
            "s1",
            {"t": "x"},
            incarnation=term,
            change=change,
            link=at or link(member),
            member=member,
            address=f"tcp://{member[0]}:1",
            **given,
        )

    def hear(self, asked: Prepare | Accept | Look | Admit | Vote, at: bytes = b"b") -> list[Said]:
        """All that the proxy says to a message of a member."""
        self.from_server(at, b"", asked)
        return self.said()

    def vote(self, asked: Prepare | Accept | Look | Admit, at: bytes = b"b") -> Vote:
        """The proxy's answer to it."""
        (vote,) = [said for said in self.hear(asked, at) if isinstance(said.message, Vote)]
        assert (vote.to_server, vote.link, vote.origin, vote.destination) == (True, at, b"", 17)
        assert isinstance(vote.message, Vote)
        return vote.message

    def registers(self) -> dict[str, RegisterRow]:
        """What is to be on the disk before anything is sent."""
        return dict(self.core.table.changes.registers)


def prepare(ballot: int = 200, member: str = B, kind: str = "takeover", sender: str = "s1") -> Prepare:
    return Prepare(sender, STORE, member, ballot, 7, kind)


def look(sender: str = "s1") -> Look:
    return Look(sender, STORE, 9)


def admit(sender: str = "s1") -> Admit:
    return Admit(sender, STORE, 9, IDENTITY, 150, 100, FIRST)


def outcome(answer: Status | None) -> tuple[str, int]:
    assert answer is not None
    return answer.outcome.value, answer.term


def report(stage: Stage) -> dict[str, Any]:
    (said,) = stage.request(Report("ann", "-"))
    assert isinstance(said.message, Status)
    loaded: dict[str, Any] = json.loads(bytes(said.message.body))
    return loaded


# Votes


def test_an_unannounced_member_gets_votes_and_each_is_to_be_written() -> None:
    pair = Pair(ROW)
    vote = pair.vote(prepare())
    assert vote == Vote("p1", STORE, VoteOutcome.PROMISED, 7, IDENTITY, promised=200, ballot=100, view=FIRST)
    assert pair.registers() == {STORE: replace(ROW, promised=200)}
    assert pair.vote(Accept("s1", STORE, B, 200, 7, NEXT)).outcome is VoteOutcome.ACCEPTED
    assert pair.registers() == {STORE: RegisterRow(STORE, 200, 200, NEXT, "s1")}


def test_a_proxy_without_the_row_gets_it_by_admit_and_votes_afterwards() -> None:
    pair = Pair()
    assert pair.vote(prepare()).outcome is VoteOutcome.NEW
    assert pair.vote(admit()).outcome is VoteOutcome.REPORTED
    assert pair.registers() == {STORE: replace(ROW, promised=150)}
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED


@pytest.mark.parametrize("asked", [prepare(), look(), admit(), Accept("s1", STORE, B, 200, 7, NEXT)])
def test_a_proxy_that_cannot_write_is_silent_and_promises_nothing(asked: Any) -> None:
    pair = Pair(*(() if isinstance(asked, Admit) else (ROW,)))
    pair.core.suspend("the_disk_of_the_proxy_is_full", pair.now)
    assert pair.hear(asked) == []
    assert pair.registers() == {}
    pair.core.resume(pair.now)
    assert pair.vote(asked).outcome not in {VoteOutcome.REFUSED, VoteOutcome.NEW}


def test_an_unwritten_promise_is_not_sent() -> None:
    """The shell finds the disk full after the core has made its vote."""
    pair = Pair(ROW)
    pair.from_server(b"b", b"", prepare())
    pair.core.suspend("the_disk_of_the_proxy_is_full", pair.now)
    assert pair.said() == []
    assert pair.registers() == {STORE: replace(ROW, promised=200)}


def test_a_vote_is_never_answered() -> None:
    pair = Pair(ROW)
    vote = pair.vote(look())
    assert pair.hear(vote) == []
    assert pair.request(vote) == []
    assert pair.core.counters["answers_of_clients_dropped"] == 1


# Whether the primary is heard


def test_a_member_gets_no_promise_until_the_primary_was_silent_for_one_liveness() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.now += 2.5
    vote = pair.vote(prepare())
    assert (vote.outcome, vote.silence_ms) == (VoteOutcome.PRIMARY_ALIVE, 2500)
    pair.now += 0.5
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED


def test_every_message_of_the_primary_is_a_sign_of_life() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.now += 2.5
    pair.from_server(b"a", b"cC", Status("s1", Outcome.SUCCESS))
    pair.now += 2.5
    assert pair.vote(prepare()).outcome is VoteOutcome.PRIMARY_ALIVE


def test_a_primary_whose_connection_ended_is_not_waited_for() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.core.servers.presence.unreachable(b"a", pair.now)
    assert pair.vote(look()).silence_ms == -1
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED


def test_a_primary_that_has_left_is_not_waited_for() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.heartbeat("s1", link=b"a", leaving=1)
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED


def test_a_primary_that_is_heard_again_blocks_the_other_member_again() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.core.servers.presence.unreachable(b"a", pair.now)
    pair.vote(look())
    pair.serve(A, 100, at=b"again")
    assert pair.vote(prepare()).outcome is VoteOutcome.PRIMARY_ALIVE


def test_the_primarys_link_is_probed_for_another_members_question_only() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert [(said.link, type(said.message).__name__) for said in pair.hear(look())] == [
        (b"a", "Heartbeat"),
        (b"b", "Vote"),
    ]
    assert [said.link for said in pair.hear(look(), b"a")] == [b"a"]


# Who is primary


def test_a_primary_of_a_higher_term_replaces_the_earlier_one_at_once() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert pair.put("t") == "-> a"
    assert outcome(pair.serve(B, 200)) == ("success", 0)
    assert pair.put("t") == "-> b"
    (server,) = report(pair)["servers"]
    assert (server["member"], server["incarnation"], server["address"]) == (B, 200, "tcp://b:1")
    assert pair.core.table.changes.stores[STORE] == StoreRow(STORE, "s1", 200, 1, "tcp://b:1")


def test_a_replaced_primary_learns_so_at_once_and_at_each_announcement() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.from_server(b"b", b"", Periodic("s1", STORE, 200, 1, "tcp://b:1", PROXIES, 0, made=1, member=B))
    told = [said.message for said in pair.said() if said.link == b"a"]
    assert [(one.outcome, one.term) for one in told if isinstance(one, Status)] == [(Outcome.DEPOSED, 200)]
    assert outcome(pair.serve(A, 100, change=9)) == ("deposed", 200)
    answer = pair.heartbeat("s1", link=b"a")
    assert answer is not None
    assert answer.outcome is Outcome.ANNOUNCE
    assert report(pair)["warnings"] == []


def test_a_change_of_the_primary_is_routine_in_the_log() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.serve(B, 200)
    pair.serve(A, 100, change=9)
    lines = pair.core.notices.take()
    assert [line for line in lines if "member" in line or "deposed" in line] == [
        f"server s1 is member {B} now, under term 200",
        f"announcement of server s1 (store {STORE}) is deposed: a_primary_of_term_200_is_known",
    ]
    assert all(isinstance(line, Routine) for line in lines)


def test_late_answers_of_a_replaced_primary_are_dropped() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.serve(B, 200)
    pair.from_server(b"a", b"cC", Status("s1", Outcome.SUCCESS))
    assert pair.said() == []
    pair.from_server(b"b", b"cC", Status("s1", Outcome.SUCCESS))
    assert [said.link for said in pair.said()] == [b"C"]


def test_topics_that_were_only_assigned_go_to_the_new_primary() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert pair.put("new") == "-> a"
    pair.serve(B, 200)
    assert pair.put("new") == "-> b"
    assert pair.core.table.servers[STORE].assigned == 1


def test_bytes_in_flight_to_the_old_primary_do_not_count_for_the_new_one() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.request(Put("ann", "t", 1, "0" * 16, 1, 0, 0, body=b"x" * (LARGE_BYTES + 1)))
    pair.core.went(b"a", b"C", LARGE_BYTES + 1, pair.now)
    assert len(pair.core.table.servers[STORE].in_flight) > 0
    pair.serve(B, 200)
    assert len(pair.core.table.servers[STORE].in_flight) == 0


def test_a_proxy_that_was_started_again_believes_no_lower_term() -> None:
    pair = Pair(ROW, stores=(StoreRow(STORE, "s1", 200, 5, "tcp://b:1"),))
    assert outcome(pair.serve(A, 100, change=9)) == ("deposed", 200)
    assert outcome(pair.serve(B, 200, change=5)) == ("success", 0)


def test_a_term_outlives_the_store_in_the_table() -> None:
    """A store that holds nothing may be forgotten to make room; who was replaced stays replaced."""
    pair = Pair(ROW, servers_max=1)
    pair.announce("s1", {}, incarnation=200, link=b"b", member=B)
    pair.heartbeat("s1", link=b"b", leaving=1)
    pair.announce("s2", {})
    pair.heartbeat("s2", leaving=1)
    assert outcome(pair.announce("s1", {}, incarnation=100, link=b"a", member=A)) == ("deposed", 200)


def test_a_term_has_one_primary() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert outcome(pair.serve(B, 100)) == ("deposed", 100)
    assert pair.put("t") == "-> a"


@pytest.mark.parametrize("term", [100, 300])
def test_a_member_may_come_over_a_new_link_at_once(term: int) -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.from_server(b"again", b"", Periodic("s1", STORE, term, 1, "tcp://a:1", PROXIES, 0, made=1, member=A))
    assert [said.link for said in pair.said()] == [b"again"], "it is not told that itself has taken its place"
    assert pair.serve(A, term, at=b"again") is not None
    assert pair.put("t") == "-> again"


def test_a_primary_with_an_older_change_counts_as_an_older_copy() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100, change=9)
    assert outcome(pair.serve(B, 200, change=8)) == ("stale", 0)
    assert pair.put("t") == "-> a"


def test_an_unregistered_server_waits_and_is_stale_as_before() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert outcome(pair.announce("s1", {}, incarnation=300, change=9, link=b"new")) == ("taken", 0)
    pair.sleep(4.0)
    assert outcome(pair.announce("s1", {}, incarnation=2, change=9, link=b"new")) == ("stale", 0)


def test_an_unregistered_server_does_not_block_a_member() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.sleep(4.0)
    assert outcome(pair.announce("s1", {}, incarnation=150, change=9, link=b"new")) == ("success", 0)
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED
    assert outcome(pair.serve(B, 200, change=9)) == ("success", 0)


def test_another_server_does_not_get_a_store_by_naming_a_member() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    assert outcome(pair.announce("s2", {}, store="s1", incarnation=300, link=b"z", member=B)) == ("taken", 0)
    assert outcome(pair.announce("s1", {}, store="s9", incarnation=300, link=b"z", member=B)) == ("taken", 0)
    assert pair.put("t") == "-> a"


# With keys


def keyed(*rows: RegisterRow) -> Pair:
    pair = Pair(*rows)
    pair.core.members.keyed = True
    return pair


def refused(pair: Pair, asked: Any) -> bool:
    """Whether a question is refused, and has changed nothing."""
    (said,) = pair.hear(asked)
    assert isinstance(said.message, Status | Vote)
    return said.message.outcome is Outcome.REFUSED and not pair.registers()


@pytest.mark.parametrize("asked", [prepare(sender="s2"), look("s2"), Accept("s2", STORE, B, 200, 7, NEXT)])
def test_only_the_server_of_a_store_may_ask_about_it_with_keys(asked: Any) -> None:
    pair = keyed(ROW)
    pair.serve(A, 100)
    assert refused(pair, asked)
    assert pair.core.counters["registers_asked_by_others"] == 1
    assert pair.vote(prepare(kind="resume")).outcome is VoteOutcome.PROMISED


def test_no_row_is_given_with_keys_for_a_store_that_was_never_heard() -> None:
    pair = keyed()
    assert pair.vote(look()).outcome is VoteOutcome.NEW
    assert refused(pair, admit())
    pair.serve(A, 100)
    assert refused(pair, admit("s2"))
    assert pair.vote(admit()).outcome is VoteOutcome.REPORTED


def test_an_announcement_of_another_servers_store_gives_no_votes_with_keys() -> None:
    """Nobody is heard under that store, so an announcement of it would be believed if it had no register."""
    pair = keyed(ROW)
    pair.serve(A, 100)
    pair.core.servers.presence.unreachable(b"a", pair.now)
    told = pair.announce("s2", {}, store="s1", incarnation=300, change=9, link=b"z", member=B)
    assert outcome(told) == ("refused", 0)
    assert told is not None
    assert told.reason == "the_register_of_this_store_is_of_server_s1"
    assert refused(pair, prepare(sender="s2"))
    assert outcome(pair.serve(B, 200)) == ("success", 0)
    assert pair.put("t") == "-> b"


def test_a_forgotten_store_still_belongs_to_its_server_with_keys() -> None:
    """It held nothing and made room for another one; its register stays."""
    pair = keyed(ROW)
    assert STORE not in pair.core.table.servers
    assert [row["server"] for row in report(pair)["registers"]] == ["s1"]
    assert refused(pair, prepare(sender="s2"))
    assert refused(pair, Accept("s2", STORE, B, 200, 7, NEXT))
    assert outcome(pair.announce("s2", {}, store="s1", incarnation=300, link=b"z")) == ("refused", 0)
    assert pair.vote(prepare()).outcome is VoteOutcome.PROMISED


def test_a_reported_store_is_not_enough_for_a_row_with_keys() -> None:
    pair = keyed()
    stores = format_stores({STORE: Known("s2", 1)})
    pair.announce("s2", {}, stores=stores)
    assert pair.core.table.servers[STORE].id == "s2"
    assert refused(pair, admit("s2"))


def test_a_pair_without_keys_may_be_started_under_another_server_id() -> None:
    pair = Pair(ROW)
    pair.vote(prepare(sender="s9"))
    assert outcome(pair.announce("s9", {}, store="s1", incarnation=300, link=b"z", member=B)) == ("success", 0)


# Reports


def test_a_report_shows_the_last_accepted_view() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.vote(prepare(150, kind="remove_from_sync"))
    assert report(pair)["registers"] == [
        {
            "store": STORE, "server": "s1", "votes": True, "primary": A, "term": 100, "address": "tcp://a:1",
            "members": [A, B], "in_sync": [A, B], "ballot": 100, "promised": 150,
        }
    ]  # fmt: skip
    assert report(pair)["witness"] is False


@pytest.mark.parametrize(("proxies", "advised"), [("tcp://p1", True), (PROXIES, False)])
def test_a_report_says_where_this_proxy_has_no_vote(proxies: str, advised: bool) -> None:
    pair = Pair()
    pair.serve(A, 100, proxies=proxies)
    found = report(pair)
    assert [(row["store"], row["server"], row["votes"]) for row in found["registers"]] == [(STORE, "s1", False)]
    (warning,) = found["warnings"]
    assert warning.startswith("no vote on the primary of server s1")
    assert ("pubsub witness reset s1" in warning) is advised


def test_a_report_of_servers_without_a_standby_has_no_registers() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    found = report(stage)
    assert (found["registers"], found["servers"][0]["member"], found["warnings"]) == ([], "", [])
