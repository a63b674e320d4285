"""The state of a server caused by peers has limits; each is a name, an answer and, without an answer, a counter."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.errors import ConfigurationError
from pubsub.protocol import Get, Heartbeat, Outcome, Read, Status, Transfer, encode_batch
from pubsub.server import links, loop
from pubsub.server.moves import receiving
from pubsub.server.process import ServerProcess
from pubsub.server.requests import reads as named
from pubsub.server.state import publishers
from pubsub.server.state.replies import LISTENER, Origin
from tests.server.stage import STORE, Stage

LOG = "f" * 16


def transfer(stage: Stage, topic: str, step: str, chunk: int = 0, body: bytes = b"") -> Transfer | Status:
    """What a step of a giver is answered."""
    stage.core.handle(Origin(LISTENER, b"s9", 7), Transfer("s9", topic, step, LOG, chunk, LOG, body), stage.now)
    (out,) = [out for out in stage.loop() if out.link == LISTENER]
    assert isinstance(out.message, Transfer | Status)
    return out.message


def description(log: str = LOG) -> bytes:
    head = {"open": log, "logs": [[log, 1, 1, 0, 0]], "spine": [], "absorbed": [], "ended": [], "rivals": {}}
    return json.dumps(head).encode() + b"\n"


def test_publishers_of_all_topics_have_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "STORE_PUBLISHERS_MAX", 2)
    for topic, sender in (("a", "ann"), ("b", "bob")):
        assert stage.put(topic, 1, sender=sender).outcome is Outcome.SUCCESS
    for topic in ("a", "new"):
        answer = stage.put(topic, 1, sender="carol")
        assert (answer.outcome, answer.reason) == (Outcome.FULL, "STORE_PUBLISHERS_MAX")
    assert stage.put("a", 1, sender="bob").outcome is Outcome.SUCCESS
    refused = transfer(stage, "c", "offer")
    assert isinstance(refused, Status)
    assert (refused.outcome, refused.reason) == (Outcome.FULL, "STORE_PUBLISHERS_MAX")


def test_descriptions_of_arriving_topics_have_a_limit_over_all_transfers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOVING_BYTES_MAX", 20_000)
    counters = {"last": [[f"ann{number}/{STORE}", 1] for number in range(200)]}
    chunk = json.dumps(counters).encode() + b"\n"
    answers = []
    for topic in ("a", "b", "c", "d", "e", "f"):
        transfer(stage, topic, "offer")
        for number, body in enumerate((description(), chunk)):
            answers.append(transfer(stage, topic, "chunk", number, body))
    full = [answer for answer in answers if isinstance(answer, Status)]
    assert full
    assert {(answer.outcome, answer.reason) for answer in full} == {(Outcome.FULL, "MOVING_BYTES_MAX")}
    assert sum(one.moving.size for one in stage.core.moves.receiving.incoming.values()) <= 20_000
    stage.sleep(receiving.IDLE_SECONDS + 1)
    transfer(stage, "g", "offer")
    assert isinstance(transfer(stage, "g", "chunk", 0, description()), Transfer)


def test_arriving_pieces_have_the_limit_of_staged_ones(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "PIECES_MAX", 3)
    batch = encode_batch([b"x"])
    line = {"stage": [f"ann/{STORE}", 1, "x", 1], "rows": [[k, 1, crc32(batch), len(batch)] for k in range(2)]}
    chunk = json.dumps(line).encode() + b"\n" + batch * 2
    transfer(stage, "a", "offer")
    assert isinstance(transfer(stage, "a", "chunk", 0, description()), Transfer)
    assert isinstance(transfer(stage, "a", "chunk", 1, chunk), Transfer)
    refused = transfer(stage, "a", "chunk", 2, chunk)
    assert isinstance(refused, Status)
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "PIECES_MAX")
    assert stage.core.moves.receiving.incoming == {}


def test_a_client_has_no_more_waiting_reads_than_its_share(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "READS_PER_CLIENT_MAX", 3)
    stage.put("t", 1)
    asked = [stage.say(Read("eve", "t", None, records_max=1), origin=b"ceve") for _ in range(5)]
    other = stage.say(Read("bob", "t", None, records_max=1), origin=b"cbob")
    stage.loop()
    outcomes = [stage.answered(callback).outcome for callback in asked]
    assert outcomes == [Outcome.SUCCESS] * 3 + [Outcome.BUSY] * 2
    assert stage.answered(other).outcome is Outcome.SUCCESS
    assert stage.core.state.counters["reads_rejected"] == 2
    again = stage.say(Read("eve", "t", None, records_max=1), origin=b"ceve")
    stage.loop()
    assert stage.answered(again).outcome is Outcome.SUCCESS


def test_one_subscriber_of_a_topic_has_one_get_waiting(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    for _ in range(100):
        stage.say(Get("bob", "t", None, 5, 5, wait_ms=60_000, records_max=1))
        stage.loop()
    assert stage.core.state.long_polls.waits("t", "bob")


def test_a_mark_of_a_proxy_is_answered_and_its_heartbeats_are_not(stage: Stage) -> None:
    stage.loop()
    stage.say(Heartbeat("p1"), origin=b"", callback=0)
    assert not [out for out in stage.loop() if isinstance(out.message, Status)]
    stage.say(Heartbeat("p1"), origin=b"", callback=2**40)
    (out,) = [out for out in stage.loop() if isinstance(out.message, Status)]
    assert (out.destination, out.origin, out.link) == (2**40, b"", 0)


def test_sockets_to_other_servers_have_a_limit_and_the_one_silent_for_longest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PEERS_MAX", 3)
    server = ServerProcess(Stage.settings_of(tmp_path, proxies=("tcp://127.0.0.1:1",)))
    server.start()
    addresses = [f"tcp://127.0.0.1:{port}" for port in range(2, 7)]
    for address in addresses:
        server._loop.server(address, 0.0)
    assert list(server._loop.servers) == addresses[-3:]
    assert server.core.state.counters["servers_forgotten"] == 2
    server.close()


def test_a_socket_to_a_proxy_that_cannot_be_opened_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerProcess(Stage.settings_of(tmp_path, proxies=("tcp://127.0.0.1:1",)))
    server.start()
    before = list(server._loop.dealers)

    def none_left(*_: object) -> None:
        raise ConfigurationError("no socket: Too many open files")

    monkeypatch.setattr(links, "open_dealer", none_left)
    server.core.proxies.reconnect.append(0)
    server._loop.reconnect()
    assert server._loop.dealers == before
    assert server.core.state.counters["sockets_not_opened"] == 1
    server.close()
