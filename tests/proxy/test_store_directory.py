"""A proxy with a lost directory speaks for all only after it has heard every store of the directory once.

The rule is docs/explanation/ownership.md, O14.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Operate, Outcome, Report, Status
from pubsub.protocol.stores import STORES_MAX, Known, format_stores, parse_stores
from pubsub.proxy.routes_file import RoutesStore
from pubsub.proxy.store_directory import AWAITED_MAX
from tests.proxy.stage import Stage, log_id

S1, S2, S3 = log_id("s1"), log_id("s2"), log_id("s3")


def store_directory(*servers: str, incarnation: int = 1) -> str:
    return format_stores({log_id(server): Known(server, incarnation) for server in servers})


def forgetful() -> Stage:
    """A proxy with an empty directory, told by s1 of s2, which is away and holds the topic `t`."""
    stage = Stage()
    stage.announce("s1", {"own": "one"}, stores=store_directory("s2"))
    return stage


def operate(stage: Stage, **facts: Any) -> Status:
    (said,) = stage.request(Operate("op", "-", "forget", **facts))[-1:]
    assert isinstance(said.message, Status)
    return said.message


def warnings(stage: Stage) -> list[str]:
    (said,) = stage.request(Report("op", "-", "own"))
    assert isinstance(said.message, Status)
    return list(json.loads(bytes(said.message.body))["warnings"])


def test_no_topic_is_whole_while_a_store_is_awaited() -> None:
    stage = forgetful()
    answer = stage.whole("s1", "own")
    assert (answer.outcome, answer.reason) == (
        Outcome.UNAVAILABLE,
        f"server_s2_with_store_{S2}_never_announced_itself_here",
    )


@pytest.mark.parametrize("ask", ["put", "subscribe", "get"])
def test_an_unknown_topic_is_not_begun_while_a_store_is_awaited(ask: str) -> None:
    stage = forgetful()
    assert getattr(stage, ask)("t").startswith("unavailable server_s2_with_store_")
    assert stage.put("own") == "-> s1"


def test_a_topic_assigned_before_the_directory_was_known_waits_too() -> None:
    stage = Stage()
    stage.announce("s3", stores="")
    assert stage.put("t") == "-> s3"
    stage.announce("s1", stores=store_directory("s2", "s3"))
    assert stage.put("t").startswith("unavailable")


def test_a_proxy_that_heard_the_store_speaks_for_all_also_in_its_absence() -> None:
    stage = forgetful()
    stage.announce("s2", {"t": "two"})
    assert stage.whole("s1", "own").outcome is Outcome.SUCCESS
    assert stage.put("t") == "-> s2"
    stage.heartbeat("s2", leaving=1)
    assert stage.whole("s1", "own").outcome is Outcome.SUCCESS
    assert stage.put("t") == "unavailable server_s2_sends_no_heartbeats"


def test_a_partial_announcement_of_an_awaited_store_is_not_enough() -> None:
    stage = forgetful()
    answer = stage.announce("s2", {"t": "two"}, partial=1)
    assert answer is not None
    assert answer.outcome is Outcome.ANNOUNCE
    assert stage.whole("s1", "own").outcome is Outcome.UNAVAILABLE


def test_a_first_start_awaits_no_store() -> None:
    stage = Stage()
    for server in ("s1", "s2"):
        stage.announce(server, stores="")
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS
    assert stage.put("t") == "-> s1"


def test_servers_of_an_older_release_without_a_directory_are_served() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"}, stores="")
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_an_awaited_store_is_remembered_over_a_restart(tmp_path: Path) -> None:
    stage = forgetful()
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    again = Stage(remembered=store.load())
    again.announce("s1", {"own": "one"}, incarnation=2, change=2, stores="")
    assert again.whole("s1", "own").outcome is Outcome.UNAVAILABLE
    again.announce("s2", incarnation=3)
    store.write(again.core.table.changes)
    third = Stage(remembered=store.load())
    store.close()
    third.announce("s1", {"own": "one"}, incarnation=3, change=3)
    assert third.whole("s1", "own").outcome is Outcome.SUCCESS


def test_the_warning_names_the_awaited_store() -> None:
    stage = forgetful()
    (line,) = warnings(stage)
    assert line.startswith(f"waiting for server s2 (store {S2}), which has never connected to this proxy")
    assert "pubsub server forget s2" in line
    stage.announce("s2")
    assert warnings(stage) == []


# What servers are told


def test_a_server_learns_of_the_stores_that_it_lacks() -> None:
    stage = Stage()
    stage.announce("s1", incarnation=4, stores="")
    answer = stage.announce("s2", stores="")
    assert answer is not None
    assert answer.stores == store_directory("s1", incarnation=4)
    answer = stage.announce("s2", change=2, stores=answer.stores)
    assert answer is not None
    assert answer.stores == ""


def test_other_servers_are_asked_to_announce_themselves_when_a_store_is_new() -> None:
    stage = Stage()
    stage.announce("s1", stores="")
    stage.from_server(b"s2", b"", _periodic("s2"))
    asked = [said.message for said in stage.said() if said.link == b"s1"]
    assert [m.outcome for m in asked if isinstance(m, Status)] == [Outcome.ANNOUNCE]
    answer = stage.announce("s1", stores="")
    assert answer is not None
    assert answer.stores == store_directory("s2")


def _periodic(server: str) -> Any:
    from pubsub.protocol import Periodic
    from tests.proxy.stage import PROXIES

    return Periodic(server, log_id(server), 1, 1, f"tcp://{server}", PROXIES, 0, 0, {})


def test_other_servers_learn_of_an_awaited_store() -> None:
    stage = forgetful()
    answer = stage.announce("s3", stores=store_directory("s1"))
    assert answer is not None
    assert answer.stores == store_directory("s2")


# Gone


def test_a_store_forgotten_by_an_operator_is_not_awaited() -> None:
    stage = forgetful()
    assert operate(stage, server="s2", store=S2).outcome is Outcome.SUCCESS
    assert stage.whole("s1", "own").outcome is Outcome.SUCCESS
    assert stage.put("t") == "-> s1"
    assert operate(stage, server="s2", store=S2).outcome is Outcome.SUCCESS
    answer = stage.announce("s1", {"own": "one"}, change=2, stores=store_directory("s2"))
    assert answer is not None
    assert answer.gone == format_stores({S2: Known("", 1)})
    assert stage.whole("s1", "own").outcome is Outcome.SUCCESS


def test_a_forgotten_store_is_not_awaited_after_a_restart_either(tmp_path: Path) -> None:
    stage = forgetful()
    operate(stage, server="s2", store=S2)
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    again = Stage(remembered=store.load())
    store.close()
    again.announce("s1", {"own": "one"}, change=2, stores=store_directory("s2"))
    assert again.whole("s1", "own").outcome is Outcome.SUCCESS


def test_a_store_gone_for_one_server_is_not_awaited_because_of_another() -> None:
    stage = Stage()
    stage.announce("s1", stores=store_directory("s2"))
    stage.announce("s3", stores=store_directory("s1"), gone=format_stores({S2: Known("", 5)}))
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_a_store_started_after_it_was_forgotten_is_in_the_directory_again() -> None:
    stage = Stage()
    stage.announce("s3", stores=store_directory("s1"), gone=format_stores({S2: Known("", 5)}))
    stage.announce("s1", stores=store_directory("s2", incarnation=6))
    assert stage.whole("s1", "t").outcome is Outcome.UNAVAILABLE


def test_a_store_that_is_heard_or_holds_topics_is_not_forgotten() -> None:
    stage = forgetful()
    assert operate(stage, server="s1", store=S1).outcome is Outcome.BUSY
    stage.announce("s2", {"t": "two"})
    stage.heartbeat("s2", leaving=1)
    answer = operate(stage, server="s2", store=S2)
    assert (answer.outcome, answer.reason) == (Outcome.BUSY, "it_holds_1_topics")
    assert operate(stage, server="s3", store=S3).outcome is Outcome.UNKNOWN
    assert operate(stage, server="s3").outcome is Outcome.REFUSED


def test_a_returned_forgotten_store_is_like_any_other(tmp_path: Path) -> None:
    stage = forgetful()
    operate(stage, server="s2", store=S2)
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    stage = Stage(remembered=store.load())
    store.close()
    stage.announce("s2", {"t": "two"}, incarnation=2)
    assert stage.put("t") == "-> s2"
    answer = stage.announce("s1", incarnation=2, stores="", gone=format_stores({S2: Known("", 1)}))
    assert answer is not None
    assert answer.stores == store_directory("s2", incarnation=2)


def test_a_forgotten_store_that_returns_without_a_start_is_in_every_directory_again() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2")
    stage.sleep(10.0, "s1")
    assert operate(stage, server="s2", store=S2).outcome is Outcome.SUCCESS
    stage.announce("s2", {"t": "two"}, change=2)
    answer = stage.announce("s1", change=2, stores="", gone=format_stores({S2: Known("", 1)}))
    assert answer is not None
    back = parse_stores(answer.stores)
    assert back[S2].incarnation > 1, "else s1 goes on to count it as gone"
    forgetful = Stage()
    forgetful.announce("s1", stores=answer.stores)
    assert forgetful.whole("s1", "t").outcome is Outcome.UNAVAILABLE
    # It was never started since, and is no copy for that.
    heard = forgetful.announce("s2", {"t": "two"}, change=2)
    assert heard is not None
    assert heard.outcome is Outcome.SUCCESS
    assert forgetful.put("t") == "-> s2"
    told = forgetful.announce("s3", stores=store_directory("s1"), gone=format_stores({S2: Known("", 1)}))
    assert told is not None
    assert parse_stores(told.stores) == back
    # What ends this end ends it for all: it leaves as what it came back as.
    stage.announce("s2", {}, change=3, draining=1)
    stage.heartbeat("s2", leaving=1, empty=1)
    answer = stage.announce("s1", change=3, stores=answer.stores)
    assert answer is not None
    assert parse_stores(answer.gone) == {S2: Known("", back[S2].incarnation)}


def test_a_drained_server_without_topics_leaves_the_directory_when_it_leaves() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2", draining=1)
    stage.heartbeat("s2", leaving=1, empty=1)
    answer = stage.announce("s1", change=2, stores=store_directory("s2"))
    assert answer is not None
    assert (answer.stores, answer.gone) == ("", format_stores({S2: Known("", 1)}))


def test_a_server_that_may_be_making_a_topic_stays_in_the_directory() -> None:
    stage = Stage()
    stage.announce("s2")
    assert stage.put("t") == "-> s2"
    stage.heartbeat("s2", leaving=1, empty=1)
    assert S2 in stage.core.table.servers


def test_a_store_forgotten_for_room_is_neither_awaited_nor_reported_as_gone() -> None:
    stage = Stage(servers_max=2)
    stage.announce("s1")
    stage.announce("s2")
    stage.heartbeat("s2", leaving=1)
    stage.announce("s3")
    answer = stage.announce("s1", change=2, stores=store_directory("s2", "s3"))
    assert answer is not None
    assert answer.gone == ""
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_the_answer_to_whole_has_the_time_of_the_last_first_announcement() -> None:
    stage = Stage()
    stage.announce("s1", made=50)
    assert stage.whole("s1", "t").since == 0
    stage.announce("s2", made=70)
    stage.announce("s3", made=60)
    assert stage.whole("s1", "t").since == 60


def test_a_long_directory_is_sent_in_readable_parts() -> None:
    stage = Stage(servers_max=1000)
    started = 1_780_000_000_000
    many = {f"{k:016x}": Known(f"s{k}", started + k) for k in range(1, 401)}
    stage.announce("s1", stores=format_stores(dict(list(many.items())[:200])))
    stage.announce("s2", stores=format_stores(dict(list(many.items())[200:])))
    answer = stage.announce("s3", stores="")
    assert answer is not None
    assert answer.outcome is Outcome.SUCCESS
    assert len(parse_stores(answer.stores)) == STORES_MAX


def test_the_directory_of_a_forgotten_store_is_forgotten() -> None:
    stage = Stage(servers_max=2)
    for number in range(20):
        stage.announce(f"s{number}")
        stage.heartbeat(f"s{number}", leaving=1)
    assert len(stage.core.servers.store_directory._reported) <= 3


def test_forgotten_stores_that_were_beyond_the_table_are_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsub.proxy.store_directory.AWAITED_MAX", 2)
    stage = Stage()
    for server in ("s2", "s3"):
        stage.announce("s1", stores=store_directory("s2", "s3"))
        assert stage.whole("s1", "t").outcome is Outcome.UNAVAILABLE
        assert operate(stage, server=server, store=log_id(server)).outcome is Outcome.SUCCESS
    stage.announce("s1", stores=store_directory("s2", "s3"))
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_stores_beyond_the_table_are_limited() -> None:
    stage = Stage()
    for number in range(12):
        stage.announce("s1", stores=format_stores({f"{number:08x}{k:08x}": Known("x", 1) for k in range(200)}))
    assert len(stage.core.servers.store_directory._left_out) == AWAITED_MAX
    assert stage.whole("s1", "t").outcome is Outcome.UNAVAILABLE
