"""Where delayed messages, purges, starts, restored copies and damage meet: each scene mixes two of them.

The rules are those of docs/explanation/delay.md, rules 4, 7 and 8, and docs/explanation/topics.md, U7.
"""

from __future__ import annotations

import contextlib

import apsw
import pytest

from pubsub.protocol import Outcome, Read, Subscribe
from pubsub.server.offline.restore import end_logs
from pubsub.server.storage.schema import FILE
from tests.server.moving import ADDRESS, Pair, take
from tests.server.stage import Stage, bodies
from tests.server.test_abandoned import DEAD, abandoned
from tests.server.test_delays import put as put_later
from tests.server.test_delays import stored, waiting
from tests.server.test_purging import purge, shown
from tests.server.test_restore import put_back, save
from tests.server.test_settings import configure, put_each


def test_a_topic_that_is_taken_back_delivers_what_became_due_while_it_was_frozen(pair: Pair) -> None:
    giver = pair["s2"]
    giver.subscribe("bob", "t", 5)
    put_later(giver, 10, 1, 0, b"later")
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(5)
    assert giver.core.state.topics["t"].frozen == ADDRESS["s1"]
    giver.sleep(20)
    abandoned(giver, "t", DEAD, server="s1", address=ADDRESS["s1"])
    giver.sleep(2)
    assert take(giver, "bob") == [b"later"]


@pytest.mark.parametrize("giver", ["s1", "s2"])
def test_a_restored_copy_takes_no_waiting_message_from_the_holder_that_knows_more(pair: Pair, giver: str) -> None:
    old, new = pair["s1"], pair["s2"]
    old.subscribe("bob", "t", 5)
    put_later(old, 10, 1, 0, b"soon")
    put_later(old, 900, 2, 1, b"much later")
    save(old)
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    new.sole_owner = False  # It is down, or cannot ask the proxies.
    new.sleep(20)
    put_back(old, accepted=False)
    old.now = new.now
    end_logs(old.store, old.core.state.stamps.clock(old.now))
    old.restart()
    old.sole_owner = False
    pair.merge(giver, "s2" if giver == "s1" else "s1")
    pair.turns()
    (holder,) = pair.holders()
    stage = pair[holder]
    assert holder != giver
    stage.sole_owner = True
    stage.sleep(10)
    assert take(stage, "bob") == [b"soon"]
    assert (waiting(stage), stored(stage)) == (1, 1)


@pytest.mark.parametrize("unread", [False, True])
def test_no_start_at_a_position_begins_at_a_purged_message(stage: Stage, unread: bool) -> None:
    configure(stage, keep="ever")
    put_each(stage, 1, 3, body=b"old")
    purge(stage, unread=unread)
    put_each(stage, 4, 4, body=b"later")
    log = stage.core.state.topics["t"].open.id
    answer = stage.ask(Subscribe("bob", "t", 5, 5, start=(log, 2)))
    assert (answer.outcome, answer.first) == (Outcome.GONE, (log, 4))
    assert stage.ask(Read("ops", "t", None, records_max=9, start=(log, 2))).outcome is Outcome.GONE
    assert stage.ask(Subscribe("bob", "t", 6, 6, start=(log, 4))).outcome is Outcome.SUCCESS
    assert bodies(stage.get("bob", "t", None, 6)) == [b"later"]


def test_a_damaged_page_with_delayed_messages_of_no_topic_stops_no_server(pair: Pair) -> None:
    one, other = pair["s1"], pair["s2"]
    for counter in range(1, 41):
        put_later(one, 600, counter, counter - 1, b"x" * 3_000)
    pair.lose = {"commit"}
    pair.merge("s1", "s2")
    pair.turns()
    assert stored(other) == 40
    other.close()
    path = other.settings.directory / FILE
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        pages = "select pageno from dbstat where name = 'delayed' and pagetype = 'leaf' order by pageno limit 2"
        page, size = db.execute(pages).fetchall()[1][0], int(db.pragma("page_size"))
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 64)
    for _ in range(2):
        other.open()
        other.sleep(10)
        assert other.put("u", 1).outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}
        other.close()
    other.open()


@pytest.mark.parametrize("giver", ["s1", "s2"])
def test_a_late_repeat_at_another_server_brings_no_purged_message_back(pair: Pair, giver: str) -> None:
    """The purge is in force and its messages are not deleted yet."""
    one, other = pair["s1"], pair["s2"]
    configure(one, keep="ever")
    put_each(one, 1, 2, body=b"old")
    purge(one, unread=True)
    assert other.put("t", 1, [b"old"]).outcome is Outcome.SUCCESS
    receiver = "s1" if giver == "s2" else "s2"
    pair.merge(giver, receiver)
    pair.turns()
    assert pair.holders() == [receiver]
    assert shown(pair[receiver]) == []
