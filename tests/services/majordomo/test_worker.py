"""The Majordomo worker: each of its states with each event."""

from __future__ import annotations

import pytest

from pubsub.services.core.interface import Act, Dial, HangUp, Requested, Send
from pubsub.services.core.majordomo.worker import REQUESTS_MAX, MajordomoWorker
from tests.services.majordomo.brokers import COMMANDS, DISCONNECT, FINAL, HEARTBEAT, LEADS, PARTIAL, READY, REQUEST

ADDRESS = "tcp://broker"


class Rig:
    """A worker that has started, and what it does."""

    def __init__(self, version: int = 1) -> None:
        self.version, self.now = version, 100.0
        self.core = MajordomoWorker("echo", ADDRESS, version)
        self.core.start(self.now)
        self.registered = [Dial("worker", ADDRESS), self.send(READY, b"echo")]

    def send(self, command: str, *frames: bytes) -> Send:
        return Send("worker", b"", (*LEADS[self.version], COMMANDS[self.version][command], *frames))

    def hears(self, command: str, *frames: bytes) -> list[Act]:
        self.core.receive("worker", b"", [*LEADS[self.version], COMMANDS[self.version][command], *frames], self.now)
        return self.core.take_sends()

    def asked(self) -> list[tuple[int, tuple[bytes, ...]]]:
        return [(event.token, event.body) for event in self.core.take_events() if isinstance(event, Requested)]

    def wait(self, seconds: float) -> list[Act]:
        end, acts = self.now + seconds, []
        while (due := self.core.timer()) is not None and due <= end:
            self.now = max(due, self.now)
            self.core.tick(self.now)
            acts += self.core.take_sends()
        self.now = end
        return acts


@pytest.fixture(params=[1, 2])
def rig(request: pytest.FixtureRequest) -> Rig:
    made = Rig(request.param)
    assert made.core.take_sends() == made.registered
    return made


def test_a_request_is_delivered_and_its_reply_goes_to_its_client(rig: Rig) -> None:
    assert rig.hears(REQUEST, b"client", b"", b"a", b"b") == []
    assert rig.asked() == [(1, (b"a", b"b"))]
    rig.core.reply(1, (b"c", b"d"), rig.now)
    assert rig.core.take_sends() == [rig.send(FINAL, b"client", b"", b"c", b"d")]
    rig.core.reply(1, (b"again",), rig.now)
    assert rig.core.take_sends() == []


def test_an_empty_reply_has_one_empty_frame(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.core.reply(1, (), rig.now)
    assert rig.core.take_sends() == [rig.send(FINAL, b"client", b"", b"")]


def test_parts_are_sent_at_once_if_the_version_knows_them_and_with_the_reply_otherwise(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.core.reply_part(1, (b"1",), rig.now)
    rig.core.reply_part(1, (b"2",), rig.now)
    rig.core.reply(1, (b"3",), rig.now)
    expected = [rig.send(FINAL, b"client", b"", b"1", b"2", b"3")]
    if rig.version == 2:
        expected = [rig.send(PARTIAL, b"client", b"", part) for part in (b"1", b"2")]
        expected.append(rig.send(FINAL, b"client", b"", b"3"))
    assert rig.core.take_sends() == expected


def test_heartbeats_are_sent_when_nothing_else_is(rig: Rig) -> None:
    assert rig.wait(2.4) == []
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.core.reply(1, (b"b",), rig.now)
    rig.core.take_sends()
    assert rig.wait(2.4) == []
    assert rig.wait(0.2) == [rig.send(HEARTBEAT)]


def test_a_heartbeat_that_would_be_due_soon_goes_out_when_one_comes(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.wait(1.5)
    rig.core.reply(1, (b"b",), rig.now)
    rig.core.take_sends()
    rig.wait(1.0)
    assert rig.hears(HEARTBEAT) == []
    rig.wait(1.4)
    assert rig.hears(HEARTBEAT) == [rig.send(HEARTBEAT)]
    assert rig.wait(2.4) == []


def test_disconnect_makes_a_worker_register_on_a_new_socket_once_an_interval_at_most(rig: Rig) -> None:
    rig.now += 3.0
    assert rig.hears(DISCONNECT) == [HangUp("worker"), *rig.registered]
    assert rig.hears(DISCONNECT) == [HangUp("worker")]
    assert rig.wait(2.4) == []
    assert rig.wait(0.2) == rig.registered


def test_a_silent_broker_makes_a_worker_register_anew(rig: Rig) -> None:
    acts = rig.wait(7.6)
    assert acts[-3:] == [HangUp("worker"), *rig.registered]
    assert rig.core.counters["broker_silent"] == 1


@pytest.mark.parametrize("command", [HEARTBEAT, REQUEST])
def test_every_message_of_the_broker_is_a_sign_of_life(rig: Rig, command: str) -> None:
    for _ in range(5):
        rig.hears(command, *((b"client", b"", b"a") if command == REQUEST else ()))
        assert HangUp("worker") not in rig.wait(7.0)


def test_a_broker_that_is_silent_during_the_work_gets_the_reply(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    acts = rig.wait(60.0)
    assert set(acts) == {rig.send(HEARTBEAT)}
    rig.core.reply(1, (b"b",), rig.now)
    assert rig.core.take_sends() == [rig.send(FINAL, b"client", b"", b"b")]
    assert HangUp("worker") not in rig.wait(7.4)
    assert HangUp("worker") in rig.wait(0.2)


def test_a_worker_that_stood_still_drops_waiting_requests_and_registers_anew(rig: Rig) -> None:
    rig.wait(2.6)
    rig.hears(HEARTBEAT)
    rig.now += 7.6
    assert rig.hears(REQUEST, b"client", b"", b"a") == [HangUp("worker"), *rig.registered]
    assert rig.asked() == []
    assert rig.core.counters["stood_still"] == 1
    assert rig.hears(REQUEST, b"client", b"", b"a") == []
    assert len(rig.asked()) == 1


def test_heartbeats_do_not_hide_that_a_worker_stood_still(rig: Rig) -> None:
    rig.now += 2.4
    assert rig.hears(REQUEST, b"client", b"", b"a") == []
    rig.core.reply(1, (b"b",), rig.now)
    rig.core.take_sends()
    rig.now += 2.4
    rig.core.receive("worker", b"", [b"nonsense"], rig.now)
    rig.now += 5.2  # Of the broker it heard something meanwhile; it has said nothing for 7.6 s.
    rig.core.tick(rig.now)
    assert rig.core.take_sends() == [HangUp("worker"), *rig.registered]
    rig.now += 7.6
    assert rig.hears(HEARTBEAT) == [HangUp("worker"), *rig.registered]
    rig.now += 7.6
    rig.core.tick(rig.now)
    assert (rig.core.counters["stood_still"], rig.core.counters["broker_silent"]) == (3, 0)


def test_a_busy_worker_that_stood_still_sends_its_reply(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.now += 30.0
    assert HangUp("worker") not in rig.hears(HEARTBEAT)
    rig.core.reply(1, (b"b",), rig.now)
    assert rig.send(FINAL, b"client", b"", b"b") in rig.core.take_sends()


def test_a_worker_close_to_its_end_of_liveness_sends_a_heartbeat_before_it_works(rig: Rig) -> None:
    rig.now += 7.4
    assert rig.hears(REQUEST, b"client", b"", b"a") == [rig.send(HEARTBEAT)]
    assert len(rig.asked()) == 1


def test_a_connection_that_ended_is_made_anew(rig: Rig) -> None:
    rig.now += 3.0
    rig.core.ended("worker", rig.now)
    assert rig.core.take_sends() == [HangUp("worker"), *rig.registered]


def test_a_busy_worker_registers_anew_after_its_work_and_drops_its_late_reply(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.now += 3.0
    assert rig.hears(DISCONNECT) == [HangUp("worker")]
    assert rig.core.timer() is None
    rig.core.reply(1, (b"late",), rig.now)
    assert rig.core.take_sends() == rig.registered
    assert rig.core.counters["replies_late"] == 1


def test_a_failed_request_gets_no_reply_and_the_worker_registers_anew_at_once(rig: Rig) -> None:
    rig.hears(REQUEST, b"client", b"", b"a")
    rig.core.fail(1, "it broke", rig.now)
    assert rig.core.take_sends() == [HangUp("worker"), *rig.registered]
    rig.core.fail(1, "it broke", rig.now)
    assert rig.core.take_sends() == []


def test_a_broker_with_endless_requests_is_not_followed(rig: Rig) -> None:
    for _ in range(REQUESTS_MAX + 5):
        rig.hears(REQUEST, b"client", b"", b"a")
    assert len(rig.asked()) == REQUESTS_MAX
    assert rig.core.counters["requests_refused"] == 5


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"x"],
        [b"", b"MDPC01", b"\x02", b"c", b"", b"x"],
        [b"", b"MDPW01"],
        [b"", b"MDPW01", b"\x09"],
        [b"", b"MDPW01", b"\x02", b"c", b"x", b"y"],
        [b"", b"MDPW01", b"\x02", b"c", b""],
        [b"", b"MDPW01", b"\x04", b"more"],
    ],
)
def test_an_invalid_message_is_counted_and_dropped(frames: list[bytes]) -> None:
    rig = Rig(1)
    rig.core.take_sends()
    rig.core.receive("worker", b"", frames, rig.now)
    assert rig.core.take_sends() == []
    assert rig.core.take_events() == []
    assert sum(rig.core.counters.values()) == 1


def test_an_ending_worker_informs_the_broker(rig: Rig) -> None:
    rig.core.leave(rig.now)
    assert rig.core.take_sends() == [rig.send(DISCONNECT)]
