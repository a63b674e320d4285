"""Simple Pirate: golden frames, and every event in every state of a worker as the queue knows it."""

import pytest

from pubsub.services.core.interface import Asked, Dial, Requested, Send
from pubsub.services.core.queue import BACKEND, FRONTEND, HELD_SECONDS, WORKERS_MAX
from pubsub.services.core.simple import REDIAL_SECONDS, SimpleQueue, SimpleWorker
from tests.services.stage import Stage

READY = (b"", b"\x01")
CLIENT, WORKER, OTHER = b"\0client", b"\0worker", b"\0other"


def queue(*workers: bytes) -> Stage:
    stage = Stage(SimpleQueue())
    for worker in workers:
        stage.receive(BACKEND, *READY, peer=worker)
    return stage


def asked(stage: Stage, client: bytes = CLIENT, body: bytes = b"1") -> Stage:
    return stage.receive(FRONTEND, b"", body, peer=client)


def test_golden_frames_of_the_queue():
    stage = asked(queue(WORKER))
    assert stage.sent() == [(BACKEND, WORKER, (b"", CLIENT, b"", b"1"))]
    stage.receive(BACKEND, b"", CLIENT, b"", b"one", peer=WORKER)
    assert stage.sent() == [(FRONTEND, CLIENT, (b"", b"one"))]


def test_golden_frames_of_the_worker():
    stage = Stage(SimpleWorker("tcp://q:1"))
    assert stage.acts == [Dial("queue", "tcp://q:1"), Send("queue", b"", READY)]
    stage.sent()
    stage.receive("queue", b"", CLIENT, b"", b"1")
    assert stage.said() == [Requested(1, (b"1",))]
    stage.do("reply", 1, (b"one",))
    assert stage.sent() == [("queue", b"", (b"", CLIENT, b"", b"one"))]


def test_the_worker_that_has_been_free_for_longest_is_next():
    stage = queue(b"a", b"b", b"c")
    for number in range(2):
        asked(stage, b"c%d" % number)
    stage.receive(BACKEND, b"", b"c0", b"", b"done", peer=b"a")
    for number in range(2, 4):
        asked(stage, b"c%d" % number)
    assert [peer for port, peer, _ in stage.sent() if port == BACKEND] == [b"a", b"b", b"c", b"a"]


def test_the_front_is_read_only_while_a_worker_is_free():
    stage = queue()
    assert not stage.core.reads(FRONTEND)
    stage.receive(BACKEND, *READY, peer=WORKER)
    assert stage.core.reads(FRONTEND)
    assert not asked(stage).core.reads(FRONTEND)


FREE, BUSY, UNKNOWN = "free", "busy", "unknown"
TABLE = {
    (UNKNOWN, "ready"): (FREE, ""),
    (FREE, "ready"): (FREE, ""),
    (BUSY, "ready"): (FREE, "requests_dropped"),
    (UNKNOWN, "reply"): (UNKNOWN, "unasked"),
    (FREE, "reply"): (FREE, "unasked"),
    (BUSY, "reply"): (FREE, "replies"),
    (BUSY, "another's reply"): (BUSY, "unasked"),
    (FREE, "another's reply"): (FREE, "unasked"),
    (UNKNOWN, "another's reply"): (UNKNOWN, "unasked"),
    (UNKNOWN, "nonsense"): (UNKNOWN, "undecodable"),
    (FREE, "nonsense"): (FREE, "undecodable"),
    (BUSY, "nonsense"): (BUSY, "undecodable"),
    (BUSY, "gone"): (UNKNOWN, "workers_gone"),
    (FREE, "gone"): (UNKNOWN, "workers_gone"),
    (UNKNOWN, "gone"): (UNKNOWN, "workers_gone"),
}
MESSAGES = {
    "ready": READY,
    "reply": (b"", CLIENT, b"", b"one"),
    "another's reply": (b"", OTHER, b"", b"one"),
    "nonsense": (b"x", b"y"),
}


def state(stage: Stage) -> str:
    if WORKER in stage.core._busy:
        return BUSY
    return FREE if WORKER in stage.core._free else UNKNOWN


@pytest.mark.parametrize("before", [UNKNOWN, FREE, BUSY])
@pytest.mark.parametrize("event", [*MESSAGES, "gone"])
def test_every_event_in_every_state_has_its_result(before, event):
    stage = queue(*[] if before == UNKNOWN else [WORKER])
    if before == BUSY:
        asked(stage)
    stage.sent()
    if event == "gone":
        stage.do("undelivered", Send(BACKEND, WORKER, (b"",)), gone=True)
    else:
        stage.receive(BACKEND, *MESSAGES[event], peer=WORKER)
    after, counter = TABLE[before, event]
    assert state(stage) == after
    assert not counter or stage.core.counters[counter] == 1
    replies = [send for send in stage.sent() if send[0] == FRONTEND]
    assert len(replies) == (before == BUSY and event == "reply")


def test_the_request_of_a_gone_worker_goes_to_the_next_one():
    stage = asked(queue(WORKER, OTHER))
    (send,) = stage.sent()
    stage.do("undelivered", Send(*send), gone=True)
    assert stage.sent() == [(BACKEND, OTHER, (b"", CLIENT, b"", b"1"))]


def test_a_request_that_no_worker_takes_waits_for_one_and_then_is_given_up():
    stage = asked(queue(WORKER))
    stage.do("undelivered", Send(*stage.sent()[0]), gone=True)
    stage.wait(HELD_SECONDS / 2)
    stage.receive(BACKEND, *READY, peer=OTHER)
    assert len(stage.sent()) == 1
    stage = asked(queue(WORKER))
    stage.do("undelivered", Send(*stage.sent()[0]), gone=True)
    stage.wait(HELD_SECONDS)
    assert stage.core.counters["requests_expired"] == 1
    stage.receive(BACKEND, *READY, peer=OTHER)
    assert (stage.sent(), stage.core.timer()) == ([], None)


def test_a_gone_client_costs_its_reply_and_no_worker():
    stage = asked(queue(WORKER)).receive(BACKEND, b"", CLIENT, b"", b"one", peer=WORKER)
    stage.do("undelivered", Send(*stage.sent()[-1]), gone=True)
    assert (state(stage), stage.core.counters["replies_dropped"]) == (FREE, 1)


@pytest.mark.parametrize("frames", [(b"x",), (b"",), (b"x", b"y")])
def test_an_invalid_request_is_counted(frames):
    stage = queue(WORKER).receive(FRONTEND, *frames, peer=CLIENT)
    assert (stage.sent(), stage.core.counters["undecodable"]) == ([], 1)


def test_workers_are_bounded():
    stage = queue()
    for number in range(WORKERS_MAX + 1):
        stage.receive(BACKEND, *READY, peer=b"%d" % number)
    assert len(stage.core._free) == WORKERS_MAX
    assert stage.core.counters["workers_forgotten"] == 1


def test_clients_call_and_workers_serve():
    core = SimpleQueue("billing")
    assert core.asked(FRONTEND, [b""]) == Asked("call", "billing")
    assert core.asked(BACKEND, [b""]) == Asked("serve", "billing")


# The worker


def busy() -> Stage:
    stage = Stage(SimpleWorker("tcp://q:1"))
    stage.receive("queue", b"", CLIENT, b"", b"1")
    stage.sent()
    return stage


def test_a_worker_whose_handler_fails_reports_itself_free():
    stage = busy().do("fail", 1, "why").do("fail", 1, "why")
    assert stage.sent() == [("queue", b"", READY)]


def test_a_workers_parts_are_sent_with_its_reply():
    stage = busy().do("reply_part", 1, (b"a",)).do("reply", 1, (b"b",))
    assert stage.sent()[0][2] == (b"", CLIENT, b"", b"a", b"b")


def test_a_worker_that_lost_its_queue_reconnects_and_forgets_its_request():
    stage = busy().do("ended", "queue").do("ended", "queue")
    assert stage.wait(REDIAL_SECONDS * 0.9).acts == []
    stage.wait(REDIAL_SECONDS)
    assert stage.acts == [Dial("queue", "tcp://q:1"), Send("queue", b"", READY)]
    stage.sent()
    stage.do("reply", 1, (b"late",))
    assert (stage.sent(), stage.core.counters["replies_dropped"]) == ([], 1)


def test_a_worker_in_silence_returns_later_each_time():
    stage = Stage(SimpleWorker("tcp://q:1"))
    waits = []
    for _ in range(12):
        stage.do("ended", "queue")
        waits.append(round(stage.core.timer() - stage.now, 3))
        stage.wait(waits[-1])
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == 32.0
    stage.receive("queue", b"", CLIENT, b"", b"1").do("ended", "queue")
    assert stage.core.timer() - stage.now == pytest.approx(REDIAL_SECONDS)


def test_a_worker_takes_one_request_at_a_time_and_counts_invalid_ones():
    stage = busy().receive("queue", b"", OTHER, b"", b"2")
    stage.receive("queue", b"").receive("queue", b"", CLIENT, b"x", b"1").receive("queue", b"x", CLIENT, b"", b"1")
    assert (stage.core.counters["unasked"], stage.core.counters["undecodable"]) == (1, 3)
    assert len(stage.said()) == 1
