"""Titanic and a reply that is late: it is taken, and the request is not sent again while the broker has it."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Send
from tests.services.titanic.rig import Rig

MANY_SECONDS = 40


class Late:
    """A request that is run, and a broker that answers in its own way what it is asked about it."""

    def __init__(self, *said: bytes) -> None:
        self.rig, self.said = Rig(reply_seconds=2.0), said
        status, self.name = self.rig.ask("request", b"echo", b"hello")
        assert status == b"200"
        self.runs: list[Send] = []
        self.times: list[float] = []
        self._answer(self.rig.calls())

    def _answer(self, sent: list[Send]) -> None:
        for act in sent:
            if act.frames[2] == b"echo":
                self.runs.append(act)
                self.times.append(self.rig.now)
            elif act.frames[2] == b"mmi.workers":
                self._answer(self.rig.calls(self.rig.answer(act, b"200", b"9")))
            elif self.said:
                self._answer(self.rig.calls(self.rig.answer(act, *self.said)))

    def wait(self, seconds: int) -> None:
        for _ in range(seconds * 10):
            self._answer(self.rig.calls(self.rig.wait(0.1)))

    def reply(self, run: Send, *body: bytes) -> None:
        self._answer(self.rig.calls(self.rig.answer(run, *body)))

    def kept(self) -> tuple[bytes, ...]:
        return self.rig.ask("reply", self.name)


def test_a_late_reply_is_taken_and_the_request_sent_once_while_the_broker_has_it() -> None:
    late = Late(b"200", b"1")
    late.wait(MANY_SECONDS)
    assert len(late.runs) == 1
    assert late.kept() == (b"300",)
    late.reply(late.runs[0], b"at last")
    assert late.kept() == (b"200", b"at last")
    assert late.rig.core.counters["runs_without_reply"] == 0


def test_a_request_that_the_broker_lost_is_sent_again_at_once() -> None:
    late = Late(b"200", b"0")
    late.wait(4)
    assert [round(at - late.times[0]) for at in late.times] == [0, 3]
    late.reply(late.runs[1], b"done")
    assert late.kept() == (b"200", b"done")


@pytest.mark.parametrize("said", [(b"501",), (b"404",), (b"200",), (b"200", b"yes"), (b"",)])
def test_the_first_reply_on_any_connection_counts_if_the_broker_cannot_answer(said: tuple[bytes, ...]) -> None:
    late = Late(*said)
    late.wait(4)
    assert len(late.runs) == 2
    late.reply(late.runs[0], b"late")
    assert late.kept() == (b"200", b"late")
    assert late.rig.core.counters["replies_late"] == 1
    late.reply(late.runs[1], b"later")
    assert late.kept() == (b"200", b"late")
    assert late.rig.replied() == 1
    late.wait(MANY_SECONDS)
    assert len(late.runs) == 2


def test_a_broker_that_cannot_answer_gets_twice_as_long_each_time() -> None:
    late = Late(b"501")
    late.wait(70)
    gaps = [after - before for before, after in zip(late.times, late.times[1:], strict=False)]
    assert [round(gap) for gap in gaps] == [3, 6, 12, 24]  # 2, 4, 8 and 16 s, and 1, 2, 4 and 8 s of pause


def test_a_request_without_any_answer_about_it_is_sent_again() -> None:
    late = Late()
    late.wait(12)
    assert len(late.runs) == 2
    late.reply(late.runs[1], b"done")
    assert late.kept() == (b"200", b"done")


def test_a_late_reply_that_the_full_disk_does_not_take_is_kept_and_the_request_not_sent_again() -> None:
    late = Late(b"501")
    late.wait(4)
    late.rig.full = True
    late.reply(late.runs[0], b"late")
    late.wait(MANY_SECONDS)
    assert (len(late.runs), late.kept()) == (2, (b"300",))
    late.rig.full = False
    late.wait(3)
    assert (len(late.runs), late.kept()) == (2, (b"200", b"late"))


def test_a_reply_that_comes_while_the_request_waits_to_be_sent_again_ends_the_wait() -> None:
    late = Late(b"501")
    late.wait(2)
    late.reply(late.runs[0], b"late")
    late.wait(MANY_SECONDS)
    assert (len(late.runs), late.kept()) == (1, (b"200", b"late"))


def test_a_closed_request_is_not_waited_for_by_any_connection() -> None:
    late = Late(b"501")
    late.wait(4)
    assert late.rig.ask("close", late.name) == (b"200",)
    for run in late.runs:
        late.reply(run, b"late")
    late.wait(MANY_SECONDS)
    assert (len(late.runs), late.rig.replied()) == (2, 0)
