"""Entries for patterns: nothing of a topic goes before each pattern that matches has an entry.

The rules are those of docs/explanation/families.md, FA1, FA3, FA4, FA7 and FA8.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol import Outcome, Subscribe
from pubsub.protocol.families import Patterns
from pubsub.protocol.messages import Periodic
from pubsub.protocol.pattern_table import NO_PATTERNS, PatternRow, PatternTable
from pubsub.protocol.purges import decode_found
from pubsub.protocol.topic_objects import Purge
from pubsub.server.topic.consumers import pattern_key
from tests.server.moving import Pair
from tests.server.stage import Stage, bodies
from tests.server.test_export import moved
from tests.server.test_retention import stored

KEY = pattern_key("billing", "orders.>")


def tell(stage: Stage, *rows: PatternRow, proxy: int = 0) -> Patterns:
    """A proxy tells these rows; returns the server's answer to it."""
    told = Patterns("p", PatternTable(rows).digest, rows)
    stage.say(told, proxy=proxy, origin=b"", callback=0)
    answers = [out for out in stage.loop() if isinstance(out.message, Patterns)]
    assert [out.link for out in answers] == [proxy]
    message = answers[0].message
    assert isinstance(message, Patterns)
    return message


def row(stage: Stage, number: int = 5, *, on: bool = True, stamp: int | None = None) -> PatternRow:
    return PatternRow("billing", "orders.>", number, on, stage.stamp() if stamp is None else stamp)


def entry(stage: Stage, topic: str = "orders.eu") -> tuple[int, bool] | None:
    found = stage.core.state.topics[topic].subscriptions.get(KEY)
    return None if found is None else (found.number, found.on)


def join(stage: Stage, number: int, stamp: int, topic: str = "orders.eu") -> str:
    """The client joins the topic; returns the log of the answer."""
    answer = stage.ask(Subscribe("billing", topic, number, number, start=stamp, pattern=5))
    assert answer.outcome is Outcome.SUCCESS
    return answer.log


def test_the_first_message_of_a_topic_waits_for_a_subscriber_that_is_away(stage: Stage) -> None:
    pattern = row(stage)
    tell(stage, pattern)
    stage.put("orders.eu", 1, [b"first"])
    stage.put("audit", 1, [b"other"], sender="bob")
    stage.sleep(200)
    assert stored(stage, "orders.eu") == [1]
    assert stored(stage, "audit") == []
    assert entry(stage) == (5, True)
    stage.restart()
    stage.sleep(200)
    assert stored(stage, "orders.eu") == [1]
    log = join(stage, 7, pattern.stamp)
    assert bodies(stage.get("billing", "orders.eu", None, 7)) == [b"first"]
    stage.get("billing", "orders.eu", (log, 1), 7)
    stage.sleep(200)
    assert stored(stage, "orders.eu") == []


def test_a_stopped_loop_tells_the_pattern_again_and_keeps_nothing_half(stage: Stage) -> None:
    stage.fail_commit = True
    pattern = row(stage)
    stage.say(Patterns("p", "f" * 16, (pattern,)), proxy=0, origin=b"", callback=0)
    assert not [out for out in stage.loop() if isinstance(out.message, Patterns)]
    assert not stage.core.patterns.known
    stage.fail_commit = False
    assert tell(stage, pattern).digest == PatternTable([pattern]).digest


def test_a_proxy_that_lacks_patterns_is_told_them_and_the_announcement_has_their_digest(stage: Stage) -> None:
    assert stage.core.proxies.patterns == NO_PATTERNS
    pattern, other = row(stage), PatternRow("audit", ">", 9, True, 4)
    assert tell(stage, pattern).rows == ()
    answer = tell(stage, other, proxy=1)
    assert set(answer.rows or ()) == {pattern, other}
    stage.sleep(60)
    assert [said.patterns for said in stage.periodics() if not said.partial][-1] == answer.digest


def test_a_message_from_before_the_pattern_is_left_out_beyond_the_skew(stage: Stage) -> None:
    stage.put("orders.eu", 1, [b"before"])
    stage.sleep(stage.settings.skew_seconds + 5)
    pattern = row(stage)
    tell(stage, pattern)
    stage.put("orders.eu", 2, [b"after"])
    stage.sleep(200)
    assert entry(stage) == (5, True)
    join(stage, 7, pattern.stamp)
    assert bodies(stage.get("billing", "orders.eu", None, 7)) == [b"after"]


@pytest.mark.parametrize("patterns", ["", "00000000000000ff"])
def test_nothing_goes_while_proxies_know_other_patterns(stage: Stage, patterns: str) -> None:
    tell(stage, PatternRow("audit", "else.>", 1, True, 1))
    stage.patterns = patterns
    stage.put("orders.eu", 1)
    stage.sleep(300)
    assert stored(stage, "orders.eu") == [1]
    stage.patterns = None
    stage.sleep(60)
    assert stored(stage, "orders.eu") == []


def test_an_ended_pattern_holds_nothing_and_a_late_one_does_not_bring_it_back(stage: Stage) -> None:
    pattern = row(stage)
    tell(stage, pattern)
    stage.put("orders.eu", 1)
    stage.sleep(200)
    tell(stage, row(stage, 6, on=False, stamp=0))
    stage.sleep(60)
    assert entry(stage) == (6, False)
    assert stored(stage, "orders.eu") == []
    tell(stage, pattern)
    stage.put("orders.eu", 2)
    stage.sleep(200)
    assert (entry(stage), stored(stage, "orders.eu")) == ((6, False), [])
    tell(stage, row(stage, 8))
    stage.put("orders.eu", 3)
    stage.sleep(200)
    assert (entry(stage), stored(stage, "orders.eu")) == ((8, True), [3])


def test_an_entry_is_made_again_if_the_clients_own_subscription_ends(stage: Stage) -> None:
    pattern = row(stage)
    tell(stage, pattern)
    stage.put("orders.eu", 1)
    stage.sleep(100)
    join(stage, 7, pattern.stamp)
    stage.sleep(100)
    assert entry(stage) == (4, False)
    stage.unsubscribe("billing", "orders.eu", 8)
    stage.put("orders.eu", 2)
    stage.sleep(100)
    assert entry(stage) == (5, True)
    assert stored(stage, "orders.eu") == [1, 2]


def test_a_later_subscription_of_the_client_does_not_take_the_place_of_the_entry(stage: Stage) -> None:
    tell(stage, row(stage, stamp=stage.stamp() - 1000 * MICROSECONDS))
    stage.put("orders.eu", 1)
    stage.subscribe("billing", "orders.eu", 7)
    stage.sleep(200)
    assert entry(stage) == (5, True)
    assert stored(stage, "orders.eu") == [1]


def test_a_subscriber_without_the_right_gets_no_entry_and_loses_the_one_it_had(stage: Stage) -> None:
    tell(stage, row(stage))
    stage.denied = b"\nbilling orders.eu"
    stage.put("orders.eu", 1)
    stage.sleep(200)
    assert (entry(stage), stored(stage, "orders.eu")) == (None, [])


def test_bodies_beyond_the_limit_stay_until_a_proxy_has_shown_its_patterns(tmp_path: Path) -> None:
    stage = Stage(tmp_path, history_bytes_max=1)
    tell(stage, row(stage))
    stage.sole_owner = None
    stage.put("orders.eu", 1, [b"first"])
    stage.put("audit", 1, [b"other"], sender="bob")
    stage.sleep(200)
    assert stage.core.state.counters["batches_without_bytes"] == 1
    stage.sole_owner, stage.others = True, f"s2.{'f' * 16}"
    stage.sleep(100)
    assert entry(stage) == (5, True)
    assert stage.core.state.counters["batches_without_bytes"] == 1
    stage.close()


def test_an_entry_moves_with_its_topic(pair: Pair) -> None:
    giver, receiver = pair["s1"], pair["s2"]
    pattern = row(giver)
    tell(giver, pattern)
    giver.put("orders.eu", 1, [b"first"])
    giver.sleep(200)
    receiver.put("orders.eu", 1, [b"second"], sender="bob")
    pair.merge("s1", "s2", "orders.eu")
    pair.turns()
    assert pair.holders("orders.eu") == ["s2"]
    assert entry(receiver) == (5, True)
    join(receiver, 7, pattern.stamp)
    assert sorted(bodies(receiver.get("billing", "orders.eu", None, 7))) == [b"first", b"second"]


def test_an_entry_survives_an_export_and_an_import(stage: Stage, tmp_path: Path) -> None:
    pattern = row(stage)
    tell(stage, pattern)
    stage.put("orders.eu", 1, [b"first"])
    stage.sleep(200)
    stage = moved(stage, tmp_path)
    assert entry(stage) == (5, True)
    join(stage, 7, pattern.stamp)
    assert bodies(stage.get("billing", "orders.eu", None, 7)) == [b"first"]


def test_a_purge_of_consumed_messages_takes_none_that_a_pattern_waits_for(stage: Stage) -> None:
    tell(stage, row(stage))
    stage.put("orders.eu", 1, [b"first"])
    answer = stage.ask(Purge("ops", "orders.eu"))
    found = decode_found(bytes(answer.body))
    assert (answer.outcome, found.records) == (Outcome.SUCCESS, 0)
    assert entry(stage) == (5, True)


def test_a_purge_waits_while_proxies_know_other_patterns(stage: Stage) -> None:
    stage.put("orders.eu", 1, [b"first"])
    stage.patterns = "00000000000000ff"
    assert stage.ask(Purge("ops", "orders.eu")).outcome is Outcome.BUSY
    assert stage.core.state.topics["orders.eu"].open.low == 1


def test_a_server_of_this_release_announces_that_it_knows_patterns(stage: Stage) -> None:
    stage.sleep(20)
    full = [said for said in stage.periodics() if isinstance(said, Periodic) and not said.partial]
    assert full
    assert {said.patterns for said in full} == {NO_PATTERNS}
