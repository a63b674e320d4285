"""Purges of a topic: the messages that go, what subscribers are told, repeats, restarts, moves and exports.

The rules are those of docs/explanation/topics.md, U4, U5, U6, U7 and U8.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol import Outcome, Position, Read, Status, Subscribe
from pubsub.protocol.purges import LOGS_MAX, Found, decode_found, encode_places
from pubsub.protocol.topic_objects import Purge
from pubsub.server.offline.check import check
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.offline.found import Verdict
from tests.server.moving import Pair
from tests.server.stage import Stage, bodies
from tests.server.test_retention import stored
from tests.server.test_settings import KILO, configure, put_each


def look(stage: Stage, *, unread: bool = True, topic: str = "t") -> Found:
    """Return the places of a purge now, and the messages that it would cover."""
    answer = stage.ask(Purge("ops", topic, int(unread)))
    assert answer.outcome is Outcome.SUCCESS, answer
    return decode_found(bytes(answer.body))


def request(stage: Stage, *, unread: bool = False, topic: str = "t") -> Purge:
    """Return a purge of all that is there now."""
    return Purge("ops", topic, int(unread), places=encode_places(look(stage, unread=unread, topic=topic).places))


def purge(stage: Stage, *, unread: bool = False) -> Status:
    answer = stage.ask(request(stage, unread=unread))
    assert answer.outcome is Outcome.SUCCESS, answer
    return answer


def shown(stage: Stage) -> list[bytes]:
    """Return the messages that a new reader of the topic gets."""
    answer = stage.ask(Read("ops", "t", None, records_max=100))
    return bodies(answer) if answer.outcome is Outcome.SUCCESS else []


def told(stage: Stage, place: Position | None = None) -> tuple[list[str], list[bytes]]:
    """Return the reasons of bob's losses, and the messages that he gets."""
    reasons, got = [], []
    while (answer := stage.get("bob", "t", place, 5)).outcome in {Outcome.LOST, Outcome.SUCCESS}:
        place = answer.message
        if answer.outcome is Outcome.LOST:
            reasons.append(answer.reason)
        else:
            got += bodies(answer)
    return reasons, got


def test_a_purge_hides_what_keep_holds_at_once_and_deletes_it_when_the_hold_has_passed(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 3)
    assert decode_found(bytes(purge(stage).body))[1:3] == (3, 0)
    assert shown(stage) == []
    assert stored(stage) == [1, 2, 3]
    put_each(stage, 4, 4, body=b"later")
    stage.sleep(100)
    assert stored(stage) == [4]
    assert shown(stage) == [b"later"]
    assert stage.core.state.topics["t"].purged == {}


def test_a_purge_leaves_what_a_subscriber_has_not_acknowledged(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 2, body=b"old")
    stage.subscribe("bob", "t", 5)
    put_each(stage, 3, 3, body=b"unread")
    assert look(stage)[1:3] == (3, 1)
    assert look(stage, unread=False)[1:3] == (2, 0)
    purge(stage)
    stage.sleep(100)
    assert shown(stage) == [b"unread"]
    assert told(stage) == ([], [b"unread"])
    stage.sleep(100)
    assert shown(stage) == [b"unread"], "keep holds it now that every subscriber has acknowledged it"


def test_a_purge_of_unread_messages_tells_the_subscriber_at_once_with_the_reason(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put_each(stage, 1, 3)
    purge(stage, unread=True)
    put_each(stage, 4, 4, body=b"later")
    assert look(stage)[1:3] == (1, 1)
    assert told(stage) == (["purged"], [b"later"])


def test_a_loss_keeps_its_reason_after_the_bodies_are_gone_and_after_a_restart(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put_each(stage, 1, 3, body=KILO)
    purge(stage, unread=True)
    assert stage.core.state.topics["t"].backlog_bytes == 0
    stage.sleep(100)
    assert stage.core.state.counters["batches_dropped"] == 3
    stage.restart()
    assert stage.core.state.topics["t"].purged
    put_each(stage, 4, 4, body=b"later")
    assert told(stage) == (["purged"], [b"later"])
    stage.close()
    assert check(stage.settings.directory).verdict is Verdict.INTACT


def test_messages_that_drop_let_go_later_have_their_own_reason(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, drop="1h")
    put_each(stage, 1, 1, body=KILO)
    purge(stage, unread=True)
    put_each(stage, 2, 2, body=KILO)
    stage.sleep(4000)
    assert told(stage)[0] == ["purged", "dropped"]


def test_a_late_repeat_purges_no_later_message(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, keep="ever")
    put_each(stage, 1, 2)
    asked = request(stage, unread=True)
    stage.ask(asked)
    put_each(stage, 3, 3, body=b"later")
    stage.restart()
    assert stage.ask(asked).outcome is Outcome.SUCCESS
    stage.sleep(100)
    assert told(stage) == (["purged"], [b"later"])
    assert stored(stage) == [1, 2, 3]


def test_a_purge_whose_commit_fails_hides_nothing(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 2)
    asked = request(stage, unread=True)
    stage.fail_commit = True
    assert stage.ask(asked).outcome is Outcome.FULL
    stage.fail_commit = False
    assert shown(stage) == [b"x", b"x"]


def test_a_new_subscriber_from_the_begin_gets_only_later_messages_and_is_told_no_loss(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 3)
    purge(stage)
    put_each(stage, 4, 4, body=b"later")
    assert stage.ask(Subscribe("bob", "t", 5, 5, start="earliest")).outcome is Outcome.SUCCESS
    assert told(stage) == ([], [b"later"])


def test_a_server_that_is_not_the_sole_owner_purges_nothing(stage: Stage) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 2)
    asked = request(stage, unread=True)
    stage.core.state.topics["t"].contest("e" * 16, "s2")
    stage.loop()
    assert stage.ask(asked).outcome is Outcome.BUSY
    assert stage.core.state.topics["t"].purged == {}


def test_a_topic_that_is_not_held_is_unknown_and_not_created(stage: Stage) -> None:
    assert stage.ask(Purge("ops", "t")).outcome is Outcome.UNKNOWN
    assert "t" not in stage.core.state.topics


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        (b"[]", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 5000, "not JSON"),
        (b'{"x":1}', "not JSON"),
        (encode_places({"a" * 16: 0}), "not JSON"),
        (encode_places({"a" * 16: OFFSET_MAX + 1}), "not JSON"),
        (encode_places({f"{number:016x}": 1 for number in range(LOGS_MAX + 1)}), "not JSON"),
    ],
)
def test_places_that_cannot_be_read_are_refused(stage: Stage, places: bytes, reason: str) -> None:
    put_each(stage, 1, 1)
    answer = stage.ask(Purge("ops", "t", 1, places=places))
    assert (answer.outcome, reason in answer.reason.replace("_", " ")) == (Outcome.REFUSED, True)


def test_a_place_beyond_the_end_is_refused_and_another_topics_log_changes_nothing(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    put_each(stage, 1, 1)
    log = stage.core.state.topics["t"].open.id
    assert stage.ask(Purge("ops", "t", 1, places=encode_places({log: 3}))).outcome is Outcome.REFUSED
    assert stage.ask(Purge("ops", "t", 1, places=encode_places({"e" * 16: 3}))).outcome is Outcome.SUCCESS
    assert stage.core.state.topics["t"].purged == {}
    assert told(stage) == ([], [b"x"])


def test_a_topic_of_a_service_is_not_purged(stage: Stage) -> None:
    assert stage.ask(Purge("ops", "$calls.echo")).outcome is Outcome.REFUSED


def test_a_purge_moves_with_its_topic(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    giver, receiver = pair["s2"], pair["s1"]
    giver.subscribe("bob", "t", 5)
    configure(giver, keep="ever")
    put_each(giver, 1, 2, body=KILO)
    asked = request(giver, unread=True)
    assert giver.ask(asked).outcome is Outcome.SUCCESS
    put_each(giver, 3, 3, body=b"later")
    pair.merge("s2", "s1")
    pair.turns()
    assert receiver.ask(asked).outcome is Outcome.SUCCESS
    assert told(receiver) == (["purged"], [b"later"])
    pair.close()


def test_an_export_has_unread_purged_messages_as_lost_with_their_reason(stage: Stage, tmp_path: Path) -> None:
    stage.subscribe("bob", "t", 5)
    configure(stage, keep="ever")
    put_each(stage, 1, 2, body=b"old")
    purge(stage, unread=True)
    put_each(stage, 3, 3, body=b"later")
    stage.close()
    assert export_tree(stage.settings.directory, tmp_path / "tree") == 1
    assert import_tree(tmp_path / "new", tmp_path / "tree") == 1
    other = Stage(tmp_path / "new")
    assert told(other) == (["purged"], [b"later"])
    assert shown(other) == [b"later"]
    other.close()
    stage.open()


def test_an_export_has_purged_messages_that_nobody_needs_not_in_the_history(stage: Stage, tmp_path: Path) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 2, body=b"old")
    purge(stage)
    put_each(stage, 3, 3, body=b"later")
    stage.close()
    export_tree(stage.settings.directory, tmp_path / "tree")
    import_tree(tmp_path / "new", tmp_path / "tree")
    other = Stage(tmp_path / "new")
    assert shown(other) == [b"later"]
    other.close()
    stage.open()
