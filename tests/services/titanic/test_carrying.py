"""The connections by which Titanic runs requests: each state with each event."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Act, Dial, HangUp, Send
from pubsub.services.core.titanic.carrying import ANSWER_SECONDS, ASK_SECONDS, KEPT_MAX, QUESTIONS_MAX, Carrier, Outcome

AT = "tcp://broker"
REQUEST = (b"", b"MDPC01", b"echo", b"hello")
QUESTION = (b"", b"MDPC01", b"mmi.pending", b"echo")


class Rig:
    def __init__(self) -> None:
        self.core, self.now = Carrier(AT), 100.0

    def run(self, token: int, seconds: float = 2.0) -> list[Act]:
        self.core.run(token, "echo", (b"hello",), seconds, self.now)
        return self.core.take_sends()

    def hears(self, port: str, service: bytes, *body: bytes) -> list[Outcome]:
        self.core.receive(port, b"", [b"", b"MDPC01", service, *body], self.now)
        return self.core.take_outcomes()

    def wait(self, seconds: float) -> list[Act]:
        end = self.now + seconds
        while (due := self.core.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.tick(self.now)
        self.now = end
        return self.core.take_sends()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_request_uses_a_lasting_connection_and_the_next_one_reuses_it(rig: Rig) -> None:
    assert rig.run(1) == [Dial("run 1", AT, lasting=True), Send("run 1", b"", REQUEST)]
    assert rig.hears("run 1", b"echo", b"done") == [Outcome(1, (b"done",))]
    assert rig.run(2) == [Send("run 1", b"", REQUEST)]
    assert rig.run(3) == [Dial("run 2", AT, lasting=True), Send("run 2", b"", REQUEST)]


def test_the_broker_is_asked_about_a_late_reply_until_it_lacks_the_request(rig: Rig) -> None:
    rig.run(1)
    assert rig.wait(1.9) == []
    assert rig.wait(0.1) == [Send("run 1", b"", QUESTION)]
    for _ in range(5):
        assert rig.hears("run 1", b"mmi.pending", b"200", b"1") == []
        assert rig.wait(ASK_SECONDS - 0.1) == []
        assert rig.wait(0.1) == [Send("run 1", b"", QUESTION)]
    assert rig.hears("run 1", b"echo", b"done") == [Outcome(1, (b"done",))]


def test_a_connection_with_an_open_question_carries_no_other_request(rig: Rig) -> None:
    rig.run(1)
    rig.wait(2.0)
    rig.hears("run 1", b"echo", b"done")
    assert rig.core.take_sends() == [HangUp("run 1")]
    assert rig.run(2)[0] == Dial("run 2", AT, lasting=True)
    assert rig.hears("run 1", b"mmi.pending", b"200", b"0") == []


def test_a_lost_request_is_reported_and_its_connection_closed(rig: Rig) -> None:
    rig.run(1)
    rig.wait(2.0)
    assert rig.hears("run 1", b"mmi.pending", b"200", b"0") == [Outcome(1, None)]
    assert rig.core.take_sends() == [HangUp("run 1")]
    assert rig.hears("run 1", b"echo", b"done") == []
    assert rig.core.timer() is None


def test_a_broker_without_an_answer_keeps_the_connection_for_a_late_reply(rig: Rig) -> None:
    rig.run(1)
    rig.wait(2.0)
    assert rig.hears("run 1", b"mmi.pending", b"501") == [Outcome(1, None, kept=True)]
    assert rig.core.take_sends() == []
    assert rig.core.timer() is None
    assert rig.hears("run 1", b"mmi.pending", b"501") == []
    assert rig.hears("run 1", b"echo", b"done") == [Outcome(1, (b"done",))]
    assert rig.core.take_sends() == [HangUp("run 1")]


def test_no_answer_at_all_is_a_loss(rig: Rig) -> None:
    rig.run(1)
    assert rig.wait(2.0 + QUESTIONS_MAX * ANSWER_SECONDS - 0.1) == [Send("run 1", b"", QUESTION)] * QUESTIONS_MAX
    rig.wait(0.1)
    assert rig.core.take_outcomes() == [Outcome(1, None)]


def test_a_broken_connection_is_asked_at_once_and_one_without_an_answer_waits_its_time(rig: Rig) -> None:
    rig.run(1, 10.0)
    rig.now += 1.0
    rig.core.ended("run 1", rig.now)
    assert rig.wait(0.0) == [Send("run 1", b"", QUESTION)]
    assert rig.hears("run 1", b"mmi.pending", b"501") == []
    assert rig.wait(8.9) == []
    assert rig.wait(0.1) == [Send("run 1", b"", QUESTION)]
    assert rig.hears("run 1", b"mmi.pending", b"501") == [Outcome(1, None, kept=True)]


def test_a_refused_client_runs_nothing(rig: Rig) -> None:
    rig.run(1)
    rig.core.refused("run 1", "", rig.now)
    assert rig.core.take_outcomes() == []
    rig.core.refused("run 1", "the key is unknown", rig.now)
    assert rig.core.take_outcomes() == [Outcome(1, None)]


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_request_is_not_reported(rig: Rig, late: bool) -> None:
    rig.run(1)
    if late:
        rig.wait(2.0)
        rig.hears("run 1", b"mmi.pending", b"501")
    rig.core.cancel(1)
    rig.core.cancel(1)
    assert rig.core.take_sends() == [HangUp("run 1")]
    assert rig.hears("run 1", b"echo", b"done") == []
    assert rig.core.counters["unasked"] == 1


def test_kept_connections_stay_within_the_limit(rig: Rig) -> None:
    for token in range(KEPT_MAX + 1):
        rig.run(token)
        rig.wait(2.0)
        rig.hears(f"run {token + 1}", b"mmi.pending", b"501")
    assert rig.core.take_sends() == [HangUp("run 1")]
    assert rig.hears("run 1", b"echo", b"done") == []
    assert rig.hears("run 2", b"echo", b"done") == [Outcome(1, (b"done",))]


@pytest.mark.parametrize("frames", [[b""], [b"x"], [b"", b"MDPC01", b"echo"], [b"", b"MDPC01", b"other", b"x"]])
def test_an_invalid_answer_is_counted(rig: Rig, frames: list[bytes]) -> None:
    rig.run(1)
    rig.core.receive("run 1", b"", frames, rig.now)
    assert (rig.core.counters["undecodable"], rig.core.take_outcomes()) == (1, [])
