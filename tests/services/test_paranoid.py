"""Paranoid Pirate (RFC 6): golden frames, every event in every state, both sides' heartbeats."""

import pytest

from pubsub.services.core.interface import Dial, HangUp, Noticed, Requested, Send
from pubsub.services.core.paranoid import REQUESTS_MAX, ParanoidQueue, ParanoidWorker
from pubsub.services.core.queue import BACKEND, FRONTEND
from tests.services.stage import Stage

READY, HEARTBEAT = b"\x01", b"\x02"
CLIENT, WORKER, OTHER = b"\0client", b"\0worker", b"\0other"


def queue(*workers: bytes) -> Stage:
    stage = Stage(ParanoidQueue())
    for worker in workers:
        stage.receive(BACKEND, READY, peer=worker)
    return stage


def asked(stage: Stage, client: bytes = CLIENT) -> Stage:
    return stage.receive(FRONTEND, b"", b"1", peer=client)


def test_golden_frames_of_the_queue():
    stage = asked(queue(WORKER))
    assert stage.sent() == [(BACKEND, WORKER, (CLIENT, b"", b"1"))]
    stage.receive(BACKEND, CLIENT, b"", b"one", peer=WORKER)
    assert stage.sent() == [(FRONTEND, CLIENT, (b"", b"one"))]
    stage.wait(1.0)
    assert stage.sent() == [(BACKEND, WORKER, (HEARTBEAT,))]


def test_golden_frames_of_the_worker():
    stage = Stage(ParanoidWorker("tcp://q:1"))
    assert stage.acts == [Dial("queue", "tcp://q:1"), Send("queue", b"", (READY,))]
    stage.sent()
    stage.receive("queue", CLIENT, b"", b"1", b"2")
    assert stage.said() == [Requested(1, (b"1", b"2"))]
    stage.do("reply", 1, (b"one",))
    assert stage.sent() == [("queue", b"", (CLIENT, b"", b"one"))]
    stage.wait(1.0)
    assert stage.sent() == [("queue", b"", (HEARTBEAT,))]


FREE, BUSY, UNKNOWN = "free", "busy", "unknown"
MESSAGES = {
    "ready": (READY,),
    "heartbeat": (HEARTBEAT,),
    "reply": (CLIENT, b"", b"one"),
    "another's reply": (OTHER, b"", b"one"),
    "nonsense": (b"x", b"y"),
    "one frame": (b"\x03",),
}
TABLE = {
    (UNKNOWN, "ready"): (FREE, "workers_came"),
    (UNKNOWN, "heartbeat"): (UNKNOWN, "strangers"),
    (UNKNOWN, "reply"): (UNKNOWN, "strangers"),
    (UNKNOWN, "another's reply"): (UNKNOWN, "strangers"),
    (UNKNOWN, "nonsense"): (UNKNOWN, "strangers"),
    (UNKNOWN, "one frame"): (UNKNOWN, "strangers"),
    (UNKNOWN, "silence"): (UNKNOWN, ""),
    (UNKNOWN, "gone"): (UNKNOWN, "workers_gone"),
    (FREE, "ready"): (FREE, ""),
    (FREE, "heartbeat"): (FREE, ""),
    (FREE, "reply"): (FREE, "unasked"),
    (FREE, "another's reply"): (FREE, "unasked"),
    (FREE, "nonsense"): (FREE, "undecodable"),
    (FREE, "one frame"): (FREE, "undecodable"),
    (FREE, "silence"): (UNKNOWN, "workers_silent"),
    (FREE, "gone"): (UNKNOWN, "workers_gone"),
    (BUSY, "ready"): (FREE, "requests_dropped"),
    (BUSY, "heartbeat"): (BUSY, ""),
    (BUSY, "reply"): (FREE, "replies"),
    (BUSY, "another's reply"): (BUSY, "unasked"),
    (BUSY, "nonsense"): (BUSY, "undecodable"),
    (BUSY, "one frame"): (BUSY, "undecodable"),
    (BUSY, "silence"): (UNKNOWN, "requests_dropped"),
    (BUSY, "gone"): (UNKNOWN, "workers_gone"),
}


def state(stage: Stage) -> str:
    if WORKER in stage.core._busy:
        return BUSY
    return FREE if WORKER in stage.core._free else UNKNOWN


@pytest.mark.parametrize("before", [UNKNOWN, FREE, BUSY])
@pytest.mark.parametrize("event", [*MESSAGES, "silence", "gone"])
def test_every_event_in_every_state_has_its_result(before, event):
    stage = queue(*[] if before == UNKNOWN else [WORKER])
    if before == BUSY:
        asked(stage)
    stage.sent()
    if event == "gone":
        stage.do("undelivered", Send(BACKEND, WORKER, (b"",)), gone=True)
    elif event == "silence":
        stage.wait(3.0)
    else:
        stage.receive(BACKEND, *MESSAGES[event], peer=WORKER)
    after, counter = TABLE[before, event]
    assert state(stage) == after
    assert not counter or stage.core.counters[counter] == 1
    replies = [send for send in stage.sent() if send[0] == FRONTEND]
    assert len(replies) == (before == BUSY and event == "reply")


def test_a_heartbeat_of_a_busy_worker_does_not_make_it_free():
    stage = asked(queue(WORKER))
    for _ in range(10):
        stage.receive(BACKEND, HEARTBEAT, peer=WORKER).wait(1.0)
    assert not stage.core.reads(FRONTEND)
    stage.sent()
    stage.receive(BACKEND, CLIENT, b"", b"one", peer=WORKER)
    assert [send for send in stage.sent() if send[0] == FRONTEND] == [(FRONTEND, CLIENT, (b"", b"one"))]


def test_a_silent_worker_gets_no_more_work_even_before_the_timer():
    stage = queue(WORKER, OTHER).wait(2.5).receive(BACKEND, HEARTBEAT, peer=OTHER)
    stage.sent()
    stage.now += 0.7  # No timer was looked after meanwhile: the machine was busy.
    asked(stage)
    assert [send[1] for send in stage.sent()] == [OTHER]


def test_heartbeats_go_to_busy_and_free_workers_alike_and_at_once():
    stage = asked(queue(WORKER, OTHER))
    stage.sent()
    stage.wait(1.0)
    assert [send[1:] for send in stage.sent()] == [(WORKER, (HEARTBEAT,)), (OTHER, (HEARTBEAT,))]
    assert stage.core.timer() == stage.now + 1.0


def test_a_queue_without_workers_has_no_timer():
    assert queue().core.timer() is None
    assert queue(WORKER).wait(3.0).core.timer() is None


def test_an_unsent_heartbeat_for_lack_of_room_does_not_end_a_worker():
    stage = queue(WORKER).wait(1.0)
    (beat,) = [act for act in stage.acts if isinstance(act, Send)]
    stage.do("undelivered", beat, gone=False)
    assert state(stage) == FREE
    stage.do("undelivered", beat, gone=True)
    assert state(stage) == UNKNOWN


def test_silent_workers_are_reported():
    assert queue(WORKER, OTHER).wait(4.0).said() == [Noticed("2 workers are silent and get no more work")]


# The worker


def worker() -> Stage:
    stage = Stage(ParanoidWorker("tcp://q:1"))
    stage.sent()
    return stage


def busy() -> Stage:
    return worker().receive("queue", CLIENT, b"", b"1")


def test_a_worker_sends_heartbeats_while_it_works():
    stage = busy()
    for _ in range(3):
        stage.receive("queue", HEARTBEAT).wait(1.0)
    assert [send[2] for send in stage.sent()] == [(HEARTBEAT,)] * 3


def test_a_worker_in_silence_reconnects_after_longer_and_longer_pauses():
    stage = worker()
    waits = []
    for silence in (3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 192.0, 300.0):
        stage.wait(silence)
        assert stage.acts[-1] == HangUp("queue")
        waits.append(stage.core.timer() - stage.now)
        stage.wait(waits[-1])
        assert stage.acts[-2:] == [Dial("queue", "tcp://q:1"), Send("queue", b"", (READY,))]
    assert waits == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0])


def test_a_queue_that_is_silent_during_the_work_gets_the_reply():
    stage = busy().wait(60.0)
    assert stage.dialled
    stage.sent()
    assert stage.do("reply", 1, (b"done",)).sent() == [("queue", b"", (CLIENT, b"", b"done"))]
    assert stage.wait(2.9).dialled
    assert not stage.wait(0.2).dialled


@pytest.mark.parametrize("frames", [(HEARTBEAT,), (CLIENT, b"", b"1")])
def test_a_worker_that_stood_still_drops_waiting_requests(frames):
    stage = worker().wait(1.0).receive("queue", HEARTBEAT)
    stage.now += 3.1
    stage.receive("queue", *frames).receive("queue", CLIENT, b"", b"1")
    assert not any(isinstance(event, Requested) for event in stage.said())
    assert (stage.core.counters["stood_still"], stage.dialled) == (1, {})
    assert stage.wait(1.0).receive("queue", CLIENT, b"", b"1").said()[-1] == Requested(1, (b"1",))


def test_a_worker_close_to_its_end_of_liveness_sends_a_heartbeat_before_it_works():
    stage = worker()
    stage.now += 2.9
    assert stage.receive("queue", CLIENT, b"", b"1").sent() == [("queue", b"", (HEARTBEAT,))]


@pytest.mark.parametrize("frames", [(HEARTBEAT,), (CLIENT, b"", b"1"), (b"nonsense",)])
def test_every_message_is_a_sign_of_life_of_the_queue(frames):
    stage = worker().wait(3.0)
    stage.wait(1.0).wait(2.9).receive("queue", *frames).wait(2.9)
    assert stage.dialled
    stage.wait(0.2)
    assert stage.core.timer() - stage.now == pytest.approx(1.0, abs=0.3)


def test_a_worker_reconnects_soon_after_its_connection_ends():
    stage = busy().do("ended", "queue").do("ended", "queue")
    assert (stage.dialled, stage.core.timer()) == ({}, stage.now + 1.0)
    assert stage.core.counters["queues_given_up"] == 1
    assert stage.said()[-1] == Noticed(
        "the connection to the queue ended: tcp://q:1 is tried again in 1 s", warning=True
    )


def test_a_request_from_before_a_reconnection_is_not_answered():
    stage = busy().do("ended", "queue").wait(1.0)
    stage.sent()
    stage.do("reply", 1, (b"late",))
    assert stage.sent() == []


def test_a_late_message_of_a_closed_connection_is_ignored():
    stage = worker().do("ended", "queue").receive("queue", CLIENT, b"", b"1")
    assert Requested not in map(type, stage.said())


def test_a_worker_whose_handler_fails_reports_itself_free():
    stage = busy().do("fail", 1, "why").do("fail", 1, "why")
    assert stage.sent() == [("queue", b"", (READY,))]


def test_parts_go_out_with_the_reply_and_an_empty_one_has_a_frame():
    stage = busy().do("reply_part", 1, (b"a",)).do("reply", 1, (b"b",))
    assert stage.sent()[0][2] == (CLIENT, b"", b"a", b"b")
    stage = busy().do("reply", 1, ())
    assert stage.sent()[0][2] == (CLIENT, b"", b"")


@pytest.mark.parametrize("frames", [(b"x",), (CLIENT, b""), (CLIENT, b"x", b"1"), (b"", b"", b"1")], ids=range(4))
def test_an_invalid_request_is_counted(frames):
    stage = worker().receive("queue", *frames)
    assert (stage.said(), stage.core.counters["undecodable"]) == ([], 1)


def test_requests_that_a_worker_has_are_bounded():
    stage = worker()
    for _ in range(REQUESTS_MAX + 1):
        stage.receive("queue", CLIENT, b"", b"1")
    assert len(stage.said()) == REQUESTS_MAX
