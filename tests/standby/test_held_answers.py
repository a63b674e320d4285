"""GroupCommit of a store with two members: each commit is an entry, and answers wait for the other member."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub.errors import StoreFull
from pubsub.messenger.framing import pack
from pubsub.protocol import Heartbeat, Outcome, Report, Status, encode
from pubsub.protocol.standby import Ack, EntryId, Follow, join_ids
from pubsub.server.group_commit import GroupCommit
from pubsub.server.standby.disk.applied import applied_entry
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.primary import HELD_TURNS_MAX, Leading
from tests.server.stage import FailingStore, Reserve, Stage, hear_everything, put

A, B, TERM = "a" * 16, "b" * 16, 1 << 42


class Led(Stage):
    """A primary with a standby whose messages the test sets."""

    in_sync: tuple[str, ...] = (A, B)

    def open(self) -> None:
        directory = self.settings.directory
        self.store = FailingStore(directory)
        end = applied_entry(self.store)
        self.stream = Stream(directory / "stream", end)
        term = max(TERM, end.term + 1)
        self.leading = Leading("s1", "0" * 16, A, term, self.in_sync, end, self.stream, self.now, 5.0, 9.0)
        self.asked: list[Any] = []
        loops = HeldAnswers(self.leading, self.stream, self.talk)
        wall = self.wall + self.now
        self.group_commit = GroupCommit(self.settings, self.store, Reserve(), Random(1), self.now, wall, loops)
        self.core = self.group_commit.core
        hear_everything(self.core.proxies)
        self.leading.followed(Follow("s1", "0" * 16, B, 0, 1, 0, join_ids([end])), self.now)
        self.talk()

    def talk(self) -> None:
        self.asked += self.leading.outgoing()

    def loop(self) -> list[Any]:
        self.core.tick(self.now)
        self.store.fail = self.fail_commit
        self.group_commit.commit(self.now)
        self.store.fail = False
        out = [one for one, _ in self.group_commit.outgoing(self.now)]
        self.sent += out
        self.talk()
        return out

    def confirm(self) -> None:
        """The standby has all that it was sent."""
        message, _ = self.asked[-1]
        ack = Ack("s1", "0" * 16, B, self.leading.term, message.loop, message.end)
        self.leading.acknowledged(ack, self.now)

    def close(self) -> None:
        self.stream.close()
        super().close()


@pytest.fixture
def led(tmp_path: Path) -> Any:
    primary = Led(tmp_path)
    primary.confirm()
    primary.loop()
    primary.confirm()
    primary.loop()
    yield primary
    primary.close()


def test_the_term_is_the_incarnation_and_its_first_entry_is_synced_first(led: Led) -> None:
    assert led.core.state.incarnation == led.store.incarnation() == led.leading.term
    assert led.stream.read(EntryId(0, 0), 1 << 20, 1)[0].id == EntryId(led.leading.term, 1)
    assert applied_entry(led.store) == led.stream.end


def test_an_answer_is_sent_when_the_other_member_has_its_entry(led: Led) -> None:
    callback = led.say(put("t", 1, [b"x"]))
    led.loop()
    assert led.answer(callback) is None
    assert led.asked[-1][1][-1].id == applied_entry(led.store) == led.stream.end
    led.confirm()
    led.loop()
    assert led.answered(callback).outcome is Outcome.SUCCESS


def test_an_answer_without_a_change_waits_too(led: Led) -> None:
    callback = led.say(put("t", 1, [b"x"]))
    led.loop()
    led.confirm()
    led.loop()
    led.answered(callback)
    again = led.say(put("t", 1, [b"x"]))
    end = led.stream.end
    led.loop()
    assert led.stream.end == end
    assert led.answer(again) is None
    led.confirm()
    led.loop()
    assert led.answered(again).outcome is Outcome.DUPLICATE


def test_heartbeats_do_not_wait_for_the_standby(led: Led) -> None:
    led.say(put("t", 1, [b"x"]))
    led.now += 1.5
    out = led.loop()
    assert {type(one.message) for one in out} == {Heartbeat}


def test_an_answer_about_the_process_alone_does_not_wait(led: Led) -> None:
    waits = led.say(put("t", 1, [b"x"]))
    report, mark = led.say(Report("cX", "s1")), led.say(Heartbeat("p1", 0), origin=b"")
    led.loop()
    assert led.answer(waits) is None
    assert led.answered(report).outcome is led.answered(mark).outcome is Outcome.SUCCESS


def test_waiting_answers_do_not_replace_heartbeats(led: Led) -> None:
    led.core.proxies.member = A
    for _ in range(6):
        led.say(put("t", 1, [b"x"]))
        led.now += 0.4
        led.loop()
    assert sum(isinstance(one.message, Heartbeat) for one in led.sent) >= 2


def test_a_primary_that_a_proxy_calls_deposed_answers_nothing_from_that_loop_on(led: Led) -> None:
    led.core.deposed = led.leading.learn_term
    callback = led.say(put("t", 1, [b"x"]))
    led.loop()
    led.confirm()
    led.say(Status("p1", Outcome.DEPOSED, term=led.leading.term + 1), origin=b"")
    report = led.say(Report("cX", "s1"))
    assert led.loop() == []
    led.now += 9.0
    assert led.loop() == []
    assert led.answer(callback) is led.answer(report) is None


def test_an_entry_whose_commit_failed_is_dropped_and_its_number_is_not_reused(led: Led) -> None:
    before, led.fail_commit = led.stream.end, True
    callback = led.say(put("t", 1, [b"x"]))
    led.loop()
    sent = led.asked[-2][1] or led.asked[-1][1]
    assert led.stream.end == applied_entry(led.store) == before
    led.confirm()
    led.loop()
    assert led.answered(callback).outcome is Outcome.FULL
    led.fail_commit = led.core.state.full = False
    led.say(put("t", 1, [b"x"]))
    led.loop()
    assert led.stream.end > sent[-1].id
    assert led.stream.read(before, 1 << 20, 9)[0].previous == before
    assert applied_entry(led.store) == led.stream.end


def test_a_full_disk_of_the_stream_reverts_the_loop(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    before = led.stream.end
    callback = led.say(put("t", 1, [b"x"]))
    with monkeypatch.context() as patch:
        patch.setattr(led.stream, "append", _full)
        led.loop()
    assert led.stream.end == applied_entry(led.store) == before
    led.confirm()
    led.loop()
    assert led.answered(callback).outcome is Outcome.FULL


def _full(*arguments: Any, **named: Any) -> None:
    raise StoreFull("stream", "no space, says the test")


def test_a_server_takes_no_request_while_the_held_answers_reach_the_limit(led: Led) -> None:
    head, body = encode(put("t", 1, [b"x"]))
    for _ in range(HELD_TURNS_MAX):
        led.say(put("u", 1, [b"x"]))
        led.loop()
    assert led.leading.full
    led.group_commit.handle(0, [b"cX", pack(0, 9, 0) + head, bytes(body)], led.now)
    assert led.core.state.counters["not_taken"] == 1


def test_a_deposed_primary_sends_none_of_its_held_answers(led: Led) -> None:
    callback = led.say(put("t", 1, [b"x"]))
    led.loop()
    led.leading.learn_term(led.leading.term + 1)
    led.confirm()
    led.loop()
    assert led.answer(callback) is None
