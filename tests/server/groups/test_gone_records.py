"""Records that go while a group waits for them, is offered them, or has claimed them.

A purge, `drop`, `expire`, compaction and retention: nothing that is gone is handed out, and nothing that a member has
claimed disappears in silence. The rules are docs/explanation/groups.md, GR17 and GR20.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol.group_bodies import LOST, Holding, Range, Tried
from pubsub.server.topic.purges import Places
from tests.server.groups.workers import GROUP, TOPIC, Given, Worker, another, facts, fill, filled, log_of
from tests.server.stage import Stage, put
from tests.server.test_purging import purge
from tests.server.test_settings import configure

MODES = pytest.mark.parametrize("mode", ["shared", "keyed"])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stage]:
    """A server that lets a record go after some seconds."""
    stage = Stage(tmp_path, retention_hold_seconds=8.0, skew_seconds=0.0)
    yield stage
    stage.close()


def one_part(stage: Stage, count: int, mode: str, **values: Any) -> Worker:
    return filled(stage, count, mode, **values, **({"parts": 1} if mode == "keyed" else {}))


def ranges(worker: Worker, low: int, high: int) -> tuple[Range, ...]:
    keyed = worker.stage.core.state.topics[TOPIC].groups[worker.group].keyed
    return (Range(log_of(worker.stage), low, high, 0 if keyed else None),)


def reopened(worker: Worker) -> Worker:
    """The next process of the same directory."""
    again = Worker(worker.stage, worker.client, opening=worker.number + 10)
    again.subscription = worker.subscription
    return again


def losses(lines: tuple[Holding, ...]) -> dict[int, str]:
    """The reason of each lost record, by offset."""
    return {at: line.reason for line in lines if line.kind == LOST for at in range(line.range.low, line.range.high)}


@MODES
def test_a_claimed_record_that_is_purged_is_told_to_the_next_process(small: Stage, mode: str) -> None:
    one = one_part(small, 3, mode)
    one.work(2)
    purge(small, unread=True)
    assert one.work(0, keep=ranges(one, 1, 3)).held == ranges(one, 1, 3)
    small.sleep(200)
    given = reopened(one).work(9)
    assert (losses(given.lines), given.bodies) == ({1: "purged", 2: "purged", 3: "purged"}, [])


@MODES
def test_a_claim_holds_what_keep_lets_go_and_its_group_is_named(small: Stage, mode: str) -> None:
    configure(small, keep="1s")
    one = one_part(small, 3, mode)
    one.work(3)
    one.work(0, keep=ranges(one, 1, 2), done=ranges(one, 2, 4))
    small.sleep(200)
    topic = small.core.state.topics[TOPIC]
    assert topic.not_let_go == f"subscriber {topic.groups[GROUP].key(0)}"
    assert reopened(one).work(9).bodies == [b"1"]
    one = reopened(one)
    one.work(0, done=ranges(one, 1, 2))
    small.sleep(200)
    assert topic.open.low == 4


@MODES
def test_a_used_up_record_that_is_lost_holds_up_nothing(stage: Stage, mode: str) -> None:
    one = one_part(stage, 3, mode, attempts=1)
    one.work(1)
    one.work(0, tried=[Tried(log_of(stage), 1, 1)])
    purge(stage, unread=True)
    fill(stage, 4, 5)
    given = one.work(9)
    assert losses(given.lines) == {1: "purged", 2: "purged", 3: "purged"}
    assert given.bodies == [b"4", b"5"]
    one.work(0, done=ranges(one, 1, 6))
    assert not stage.core.state.topics[TOPIC].groups[GROUP].facts
    assert facts(stage)["dead_letters"] == 0


@MODES
def test_compaction_leaves_what_a_member_has_claimed(small: Stage, mode: str) -> None:
    configure(small, keep="latest")
    one = filled(small, 1, mode, keys=1, **({"parts": 1} if mode == "keyed" else {}))
    one.work(1)
    fill(small, 2, 4, keys=1)
    small.sleep(200)
    given = reopened(one).work(9)
    assert given.bodies == [b"1", b"2", b"3", b"4"]
    assert losses(given.lines) == {}
    one = reopened(one)
    one.number += 10
    one.work(0, done=ranges(one, 1, 5))
    fill(small, 5, 5, keys=1)
    small.sleep(200)
    assert another(one, "w2").work(9).bodies == [b"5"]
    assert small.core.state.topics[TOPIC].open.low == 5


@MODES
def test_what_expired_is_not_handed_out_and_is_forgotten(stage: Stage, mode: str) -> None:
    configure(stage, keep="ever", drop="never", expire="100s")
    one = one_part(stage, 3, mode)
    one.work(3)
    one.work(0, tried=[Tried(log_of(stage), 1, 1)], keep=ranges(one, 3, 4) if mode == "shared" else ())
    stage.sleep(500)
    fill(stage, 4, 4)
    given = one.work(9, keep=ranges(one, 3, 4) if mode == "shared" else ())
    assert (given.bodies, losses(given.lines)) == ([b"4"], {})
    assert facts(stage)["counts"]["expired"] >= 2
    assert not stage.core.state.topics[TOPIC].groups[GROUP].facts
    stage.restart()
    assert not stage.core.state.topics[TOPIC].groups[GROUP].facts


@MODES
def test_an_offered_record_that_is_purged_is_told_as_lost(stage: Stage, mode: str) -> None:
    """The answer was lost on its way. A range without a record would be taken for one with nothing to do."""
    one = one_part(stage, 2, mode)
    message = one.message(records_max=2)
    assert Given(stage.ask(message)).offered == ranges(one, 1, 3)
    purge(stage, unread=True)
    assert Given(stage.ask(message)).lines == ()
    assert losses(one.work(9, claim=False).lines) == {1: "purged", 2: "purged"}


@MODES
def test_a_loss_is_not_claimed_for_a_message_that_has_waited(stage: Stage, mode: str) -> None:
    """Its process may have ended, and a claim would be in doubt. The rule is docs/explanation/groups.md, GR27."""
    one = one_part(stage, 0, mode)
    one.work()
    waits = one.send(records_max=9, claim=1, wait_ms=30_000)
    stage.loop()
    stage.say(put(TOPIC, 1, [b"1"]))
    topic = stage.core.state.topics[TOPIC]
    topic.purge(topic.open.id, Places(2, 2))
    stage.loop()
    assert Given(stage.answered(waits)).lines == ()
    assert facts(stage)["claimed"] == 0
    assert losses(one.work(9).lines) == {1: "purged"}


@MODES
@pytest.mark.parametrize("drop", ["1h", "1KiB"])
def test_what_drop_lets_go_is_told_as_dropped_if_no_process_has_it(stage: Stage, mode: str, drop: str) -> None:
    """The claimed record may have a copy by then, since it was in doubt for an hour."""
    one = one_part(stage, 2, mode)
    configure(stage, drop=drop)
    one.work(1)
    fill(stage, 3, 3)
    stage.sleep(10)
    kept = one.work(0, keep=ranges(one, 1, 2))
    stage.sleep(4000)
    for number in range(4, 8):
        stage.ask(put(TOPIC, number, [bytes(600)]))
    stage.sleep(200)
    assert stage.core.state.counters["batches_dropped"] >= 3
    assert one.work(0, keep=kept.held).held == kept.held
    given = reopened(one).work(99)
    lost = losses(given.lines)
    assert set(lost.values()) == {"dropped"}
    assert {2, 3} <= lost.keys()
    shown = {at for line in given.held for at in range(line.low, line.high)}
    assert lost.keys() | shown == set(range(1, 8))
    assert len(given.bodies) == 7 - len(lost)


@MODES
@pytest.mark.parametrize("keep", ["1m", "1 records", "1KiB"])
def test_what_keep_lets_go_stays_until_it_is_done(small: Stage, mode: str, keep: str) -> None:
    """Offered and claimed records, and those that wait for their next attempt."""
    configure(small, keep=keep)
    one = one_part(small, 4, mode)
    one.work(2)
    one.work(2, claim=False, keep=ranges(one, 1, 3))
    for number in range(5, 9):
        small.ask(put(TOPIC, number, [bytes(600)]))
    small.sleep(300)
    topic = small.core.state.topics[TOPIC]
    assert topic.open.low == 1
    last, bodies = reopened(one), list[bytes]()
    for _ in range(3):  # The first offered record has a loss, so it is offered alone.
        given = last.work(99)
        bodies += given.bodies
        last.work(0, done=(*given.held, *given.offered))
        assert losses(given.lines) == {}
    assert len(bodies) == 8
    assert bodies[-1] == bytes(600) if mode == "keyed" else b"3"
    small.sleep(300)
    assert topic.open.low >= 7
