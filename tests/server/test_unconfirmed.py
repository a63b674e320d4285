"""No answer about a topic is sent before a proxy has confirmed the topic.

The rules are those of docs/explanation/ownership.md, O8 and O9; docs/explanation/put.md, P13.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Outcome, Periodic, Status
from pubsub.server.ownership import unconfirmed
from pubsub.server.ownership.proxies import quorums
from pubsub.server.state.replies import Origin
from tests.server.stage import PROXIES, Stage, hear_everything, put


class Waits(Stage):
    """A server whose proxies confirm when the test says so."""

    def open(self) -> None:
        self.hears = False
        super().open()

    def confirm(self, change: int, outcome: Outcome = Outcome.SUCCESS) -> None:
        self.say(Status("p", outcome, change=change), proxy=1, origin=b"", callback=0)
        self.loop()

    @property
    def change(self) -> int:
        return self.core.state.change


@pytest.fixture
def waits(tmp_path: Path) -> Waits:
    stage = Waits(tmp_path)
    stage.loop()
    return stage


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FULL])
def test_an_answer_waits_until_one_proxy_knows_the_topic(waits: Waits, outcome: Outcome) -> None:
    """Or has said that it has no room for all: then it calls no topic whole."""
    before = waits.change
    callback = waits.say(put("t", 1))
    waits.loop()
    waits.confirm(before)  # Of an announcement before.
    assert waits.answer(callback) is None
    waits.confirm(waits.change, outcome)
    assert waits.answered(callback).outcome is Outcome.SUCCESS
    assert waits.put("t", 2, previous=1).outcome is Outcome.SUCCESS


def test_other_topics_do_not_wait(waits: Waits) -> None:
    callback = waits.say(put("t", 1))
    waits.loop()
    waits.confirm(waits.change)
    waits.answered(callback)
    later = waits.say(put("u", 2))
    waits.loop()
    assert waits.put("t", 3, previous=1).outcome is Outcome.SUCCESS
    assert waits.answer(later) is None


def test_an_unconfirmed_topic_is_announced_anew_and_its_answer_becomes_a_retry(
    waits: Waits,
) -> None:
    callback = waits.say(put("t", 1))
    waits.loop()
    waits.sent.clear()
    waits.core.proxies.all[0].liveness.forget()
    waits.sleep(1.1)
    announced = [out for out in waits.sent if isinstance(out.message, Periodic)]
    assert [(int(out.link), out.message.partial) for out in announced] == [(1, 0)]  # type: ignore[union-attr]
    waits.confirm(waits.change)
    assert waits.answer(callback) is None
    assert waits.put("t", 1).outcome is Outcome.DUPLICATE


def test_a_bounded_number_of_answers_waits(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "HELD_MAX", 2)
    callbacks = [waits.say(put("t", 1, sender=name)) for name in ("a", "b", "c")]
    waits.loop()
    waits.confirm(waits.change)
    assert [waits.answer(callback) is None for callback in callbacks] == [False, False, True]


def test_held_bytes_are_bounded_and_sent_ones_do_not_count(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "HELD_BYTES_MAX", 5)

    def held(topic: str, change: int) -> int:
        waits.core.unconfirmed.announced({topic: "0" * 16}, change, waits.now)
        for callback in (1, 2):
            about = Origin(0, b"cX", callback, topic=topic)
            assert waits.core.unconfirmed.holds(about, Status("s1", Outcome.SUCCESS, body=b"123"))
        hear_everything(waits.core.proxies, change)
        waits.core.unconfirmed.confirmed()
        return len(waits.core.unconfirmed.take())

    assert [held("t", waits.change + 1), held("u", waits.change + 2)] == [1, 1]


def test_topics_opened_all_the_time_and_confirmed_in_time_cause_no_new_announcement(waits: Waits) -> None:
    waits.confirm(waits.change)
    waits.core.proxies.announce_all(waits.now)
    waits.loop()
    callbacks, changes, again = [], [], waits.settings.heartbeat_seconds
    waits.sent.clear()
    for number in range(9):  # One is opened before the one before is confirmed, so that there is always one that waits.
        callbacks.append(waits.say(put(f"t{number}", 1)))
        waits.loop()
        changes.append(waits.change)
        waits.sleep(again / 3)
        if number:
            waits.confirm(changes[number - 1])
            assert waits.answered(callbacks[number - 1]).outcome is Outcome.SUCCESS
    assert all(announced.partial for announced in waits.periodics())
    waits.sleep(again)
    assert not all(announced.partial for announced in waits.periodics())


def test_a_held_answer_about_a_departed_topic_is_not_sent_for_another_topic(waits: Waits) -> None:
    callback = waits.say(put("t", 1))
    waits.loop()
    before = waits.change
    waits.core.unconfirmed.announced({"u": "0" * 16}, before, waits.now)
    waits.core.unconfirmed.announced({"t": "s2.0123456789abcdef,fedcba9876543210,9"}, before + 1, waits.now)
    waits.confirm(before)
    assert waits.answer(callback) is None


def test_a_departed_topic_waits_for_no_proxy(waits: Waits) -> None:
    waits.core.unconfirmed.announced({"t": "0" * 16}, 5, waits.now)
    waits.core.unconfirmed.announced({"t": ""}, 6, waits.now)
    waits.core.unconfirmed.tick(waits.now + 10)
    assert waits.core.unconfirmed.deadline() == float("inf")


def three(tmp_path: Path) -> Waits:
    """A server with three proxies, of which two must have heard."""
    stage = Waits(tmp_path, proxies=(*PROXIES, "tcp://127.0.0.1:3"))
    stage.loop()
    return stage


def confirm(waits: Waits, proxy: int) -> None:
    waits.say(Status("p", Outcome.SUCCESS, change=waits.change), proxy=proxy, origin=b"", callback=0)
    waits.loop()


def test_two_of_three_proxies_must_confirm_and_a_repeat_does_not_count(tmp_path: Path) -> None:
    waits = three(tmp_path)
    callback = waits.say(put("t", 1))
    waits.loop()
    for _ in range(2):
        confirm(waits, 2)
    assert waits.answer(callback) is None
    confirm(waits, 0)
    assert waits.answered(callback).outcome is Outcome.SUCCESS


def test_a_topic_with_one_witness_of_two_waits_again_in_the_next_process_and_others_do_not(tmp_path: Path) -> None:
    waits = three(tmp_path)
    known = waits.say(put("known", 1))
    waits.loop()
    for proxy in (0, 1):
        confirm(waits, proxy)
    assert waits.answered(known).outcome is Outcome.SUCCESS
    waits.say(put("t", 1))
    waits.loop()
    confirm(waits, 0)
    assert list(waits.core.state.unconfirmed) == ["t"]
    waits.restart()
    waits.loop()
    again = waits.say(put("t", 1))
    assert waits.put("known", 2, previous=1).outcome is Outcome.SUCCESS
    confirm(waits, 1)
    assert waits.answer(again) is None
    confirm(waits, 0)
    assert waits.answered(again).outcome is Outcome.DUPLICATE
    waits.restart()
    assert not waits.core.state.unconfirmed


@pytest.mark.parametrize(("proxies", "witnesses", "majority"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 2, 3), (5, 3, 3)])
def test_any_witnesses_and_any_majority_have_a_proxy_in_common(proxies: int, witnesses: int, majority: int) -> None:
    assert quorums(proxies) == (witnesses, majority)
    assert witnesses + majority > proxies


def test_an_answer_released_in_the_loop_of_a_full_announcement_is_sent(waits: Waits) -> None:
    first = waits.say(put("t", 1))
    waits.loop()
    change = waits.change
    waits.say(put("u", 2))
    waits.loop()
    waits.now += 2.0  # The process stood still: what came meanwhile is handled first, and then all times are over.
    waits.confirm(change)
    assert waits.answered(first).outcome is Outcome.SUCCESS
