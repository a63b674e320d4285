"""Deletions of topics at one proxy: what it answers, tells, keeps, and forwards to no server that lacks it.

The rules are those of docs/explanation/deletion.md, UD1, UD3 and UD8.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.cli.reports import picture
from pubsub.errors import StoreDamaged
from pubsub.metrics.snapshot import Gauge
from pubsub.monitoring.alarms import UNFINISHED_SECONDS_MAX
from pubsub.protocol import Operate, Periodic, Status
from pubsub.protocol.deletion_table import DELETED_MAX, Deletion, DeletionTable
from pubsub.protocol.deletions import Delete, Deleted
from pubsub.proxy.metrics import snapshot
from pubsub.proxy.remembered import Remembered
from pubsub.proxy.routes_file import RoutesStore
from pubsub.proxy.samples import Samples
from tests.proxy.stage import PROXIES, Said, Stage, log_id, report

NONE = DeletionTable().digest


class Server:
    """A server that stores the deletions that it is told."""

    def __init__(self, stage: Stage, name: str = "s1") -> None:
        self.stage, self.name, self.known, self.change = stage, name, DeletionTable(), 0

    def announce(self, topics: dict[str, str] | None = None, *, deletions: str | None = None) -> list[Said]:
        """Announce all topics; an earlier release names no deletions."""
        self.change += 1
        held = {topic: log_id(log) for topic, log in (topics or {}).items()}
        digest = self.known.digest if deletions is None else deletions
        facts = self.name, log_id(self.name), 1, self.change, f"tcp://{self.name}", PROXIES, 0
        self.stage.from_server(self.name.encode(), b"", Periodic(*facts, topics=held, deletions=digest))
        return self.stage.said()

    def store(self, said: list[Said]) -> list[Said]:
        """Store what the proxy tells, and answer; returns what the proxy then sends."""
        told = [one.message for one in said if one.link == self.name.encode() and isinstance(one.message, Deleted)]
        for message in told:
            for row in message.rows or ():
                self.known.admit(row)
        if not told:
            return []
        rows = () if told[-1].digest == self.known.digest else self.known.rows
        self.stage.from_server(self.name.encode(), b"", Deleted(self.name, self.known.digest, rows))
        return self.stage.said()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def answers(said: list[Said]) -> list[tuple[str, int, str]]:
    found = [one.message for one in said if not one.to_server and isinstance(one.message, Status)]
    return [(status.outcome.value, status.number, status.reason) for status in found]


def test_a_question_without_a_number_deletes_nothing_and_has_the_clock(stage: Stage) -> None:
    Server(stage).announce({"t": "x"})
    (said,) = stage.request(Delete("ops", "t"))
    assert isinstance(said.message, Status)
    assert (said.message.number, said.message.stamp > 0) == (0, True)
    assert stage.put("t") == "-> s1"


def test_a_deletion_is_answered_when_every_live_server_has_stored_it(stage: Stage) -> None:
    one, two = Server(stage), Server(stage, "s2")
    one.announce({"t": "x"})
    two.announce()
    said = stage.request(Delete("ops", "t", 7))
    assert answers(said) == []
    assert stage.core.table.changes.deletions == {"t": 7}
    assert answers(one.store(said)) == []
    assert answers(two.store(said)) == [("success", 7, "")]
    assert answers(stage.request(Delete("ops", "t", 7))) == [("success", 7, "")]
    assert answers(stage.request(Delete("ops", "t", 6))) == [("superseded", 7, "")]


def test_a_request_goes_to_no_server_that_has_not_stored_the_deletion(stage: Stage) -> None:
    server = Server(stage)
    server.announce({"t": "x", "u": "y"})
    said = stage.request(Delete("ops", "t", 7))
    refused = "unavailable the_topic_was_deleted_and_server_s1_has_not_stored_that_yet"
    assert stage.put("t") == stage.subscribe("t") == stage.get("t") == refused
    assert stage.put("u") == "-> s1"
    server.store(said)
    assert stage.put("t") == "-> s1"


def test_a_topic_that_no_server_holds_is_assigned_to_a_server_that_has_stored_the_deletion(stage: Stage) -> None:
    server = Server(stage)
    server.announce()
    said = stage.request(Delete("ops", "t", 7))
    assert stage.put("t").startswith("unavailable the_topic_was_deleted")
    server.store(said)
    assert stage.put("t") == "-> s1"


def test_a_server_that_returns_with_the_old_topic_is_told_first_and_gets_nothing_until_then(stage: Stage) -> None:
    away, here = Server(stage, "s2"), Server(stage)
    here.announce()
    here.store(stage.request(Delete("ops", "t", 7)))
    said = away.announce({"t": "x"})
    assert stage.put("t").startswith("unavailable the_topic_was_deleted_and_server_s2")
    assert [(one.topic, one.server) for one in stage.core.deletions.unfinished(stage.now)] == [("t", "s2")]
    away.store(said)
    assert stage.core.deletions.unfinished(stage.now) == []


def test_a_holder_that_does_not_store_a_deletion_is_reported_and_is_an_alarm() -> None:
    stage = Stage(startup_wait_seconds=0.0)
    away, here = Server(stage, "s2"), Server(stage)
    away.announce({"t": "x", "u": "y"})
    here.announce({"v": "z"})
    stage.sleep(10, "s1")
    here.store(stage.request(Delete("ops", "t", 7)))
    stage.sleep(UNFINISHED_SECONDS_MAX, "s1")
    here.store(stage.request(Delete("ops", "u", 8)))
    away.announce({"t": "x", "u": "y"})
    stage.sleep(1, "s1", "s2")
    found = report(stage)
    assert found["unfinished_deletions"] == [
        {"topic": "t", "server": "s2", "seconds": UNFINISHED_SECONDS_MAX + 1},
        {"topic": "u", "server": "s2", "seconds": 1.0},
    ]
    assert picture({"tcp://p1": found}, {})["alarms"] == [
        "topic t: its deletion is unfinished for 1 min 1 s, because server s2 has not stored it; start s2, or if it is"
        " lost, run pubsub topic abandon t --server s2"
    ]
    text = "Deleted topics of a server that has not stored the deletion."
    assert Gauge("deletions_unfinished", text, 2) in snapshot(stage.core, Samples(), 0, stage.now).gauges
    stage.sleep(1, "s1", "s2")
    away.known.admit(Deletion("t", 7))
    away.known.admit(Deletion("u", 8))
    away.announce()
    assert report(stage)["unfinished_deletions"] == []


def test_a_topic_that_was_given_up_is_no_unfinished_deletion(stage: Stage) -> None:
    away, here = Server(stage, "s2"), Server(stage)
    away.announce({"t": "x"})
    here.announce()
    stage.sleep(10, "s1")
    here.store(stage.request(Delete("ops", "t", 7)))
    assert [one.server for one in stage.core.deletions.unfinished(stage.now)] == ["s2"]
    stage.request(Operate("ops", "-", "abandon", "t", "s2", log=log_id("x"), store=log_id("s2")))
    assert stage.core.deletions.unfinished(stage.now) == []


def test_a_server_that_is_silent_holds_no_answer_up(stage: Stage) -> None:
    one, two = Server(stage), Server(stage, "s2")
    one.announce()
    two.announce()
    one.store(stage.request(Delete("ops", "t", 7)))
    assert answers(stage.sleep(10, "s1")) == [("success", 7, "")]


def test_a_server_of_an_earlier_release_makes_a_deletion_wait_and_nothing_is_deleted(stage: Stage) -> None:
    Server(stage).announce({"t": "x"}, deletions="")
    text = "server_s1_needs_a_newer_release_to_delete_topics"
    for number in (0, 7):
        assert answers(stage.request(Delete("ops", "t", number))) == [("unavailable", 0, text)]
    assert stage.put("t") == "-> s1"


def test_a_proxy_that_lost_its_file_learns_the_deletions_from_a_server(stage: Stage) -> None:
    server = Server(stage)
    server.known.admit(Deletion("t", 7))
    server.store(server.announce())
    assert stage.core.deletions.known.numbers == {"t": 7}
    assert stage.core.table.changes.deletions == {"t": 7}


def test_a_server_that_did_not_get_what_it_was_told_is_told_again(stage: Stage) -> None:
    server = Server(stage)
    server.announce()
    stage.request(Delete("ops", "t", 7))
    stage.sleep(1.5, "s1")
    said = stage.request(Delete("ops", "t", 7))
    assert answers(server.store(said)) == [("success", 7, "")]


@pytest.mark.parametrize("topic", ["$calls.echo", "$replies.x"])
def test_a_topic_of_the_service_is_not_deleted(stage: Stage, topic: str) -> None:
    Server(stage).announce()
    assert answers(stage.request(Delete("ops", topic))) == [("refused", 0, "a_topic_of_the_service_cannot_be_deleted")]


def test_a_deletion_beyond_the_limit_is_refused() -> None:
    stage = Stage(remembered=Remembered(deletions=[Deletion(f"t{n}", 1) for n in range(DELETED_MAX)]))
    Server(stage).announce(deletions=stage.core.deletions.known.digest)
    assert answers(stage.request(Delete("ops", "another", 7))) == [("full", 0, "DELETED_MAX")]
    assert stage.core.deletions.known.number("t1") == 1


def test_the_routes_file_keeps_deletions_and_a_damaged_row_stops_the_proxy(tmp_path: Path) -> None:
    stage = Stage()
    Server(stage).announce()
    stage.request(Delete("ops", "t", 7))
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    store.close()
    store = RoutesStore(tmp_path)
    assert store.load().deletions == (Deletion("t", 7),)
    assert store._db is not None
    store._db.execute("update deletion set number = 0")
    with pytest.raises(StoreDamaged):
        store.load()
    store.close()


def test_an_unsubscribe_from_a_topic_that_does_not_exist_succeeds_where_only_an_operator_creates_topics() -> None:
    from pubsub.protocol import Unsubscribe

    stage = Stage(topics_auto=False)
    Server(stage).announce()
    assert stage.outcome(Unsubscribe("ann", "t", 2, 2)) == "success "
    assert stage.subscribe("t") == "denied no_such_topic"
