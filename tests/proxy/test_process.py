"""The proxy's shell over real sockets: forwarding, disk before wire, gone peers, full queues, start and stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.errors import ConfigurationError, StorageError, StoreFull, StoreInUse
from pubsub.messenger.framing import unpack
from pubsub.protocol import Heartbeat, Outcome, Periodic, Put, Status, Subscribe, decode, encode
from pubsub.proxy.process import ProxyProcess
from pubsub.proxy.remembered import RouteChanges
from tests.proxy.peers import TCP, Peer, Running, ServerPeer, get, running, wait_until
from tests.proxy.stage import log_id, settings


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


@pytest.mark.parametrize(
    "addresses",
    [{}, {"servers": None}, {"bind": "inproc://clients", "servers": "inproc://servers"},
     {"bind": "inproc://both", "servers": None}],
    ids=["two tcp", "one tcp", "two inproc", "one inproc"],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 1000])
def test_a_put_and_its_answer_pass_unchanged(
    tmp_path: Path, context: zmq.Context[Any], addresses: dict[str, Any], count: int
) -> None:
    with running(tmp_path, context, **addresses) as proxy:
        assert (proxy.process.bind == proxy.process.servers) == ("servers" in addresses and not addresses["servers"])
        server, client = proxy.server(), proxy.client()
        assert server.announce({"t": log_id("x")}).outcome is Outcome.SUCCESS
        body = b"b" * 100 * count
        put = Put("ann", "t", 1, "0" * 16, count, 0, 99, body=body)
        client.send(put)
        origin, head, got = server.request()
        assert (origin[:1], head, got) == (b"c", b"1-40-0-" + encode(put)[0], body)
        answer = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 7), records=count, body=body)
        server.send(answer, origin=origin, destination=40, source=0)
        assert client.status() == answer
        server.send(Status("s1", Outcome.DUPLICATE, last=5), origin=origin, destination=40, source=0)
        assert client.status().last == 5


def test_answers_go_to_the_client_that_asked(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context) as proxy:
        server = proxy.server()
        server.announce({"t": log_id("x")})
        clients = [proxy.client() for _ in range(3)]
        for client in clients:
            client.send(get())
        origins = [server.request()[0] for _ in clients]
        assert len(set(origins)) == 3
        for k, origin in enumerate(origins):
            server.send(Status("s1", Outcome.SUCCESS, last=k), origin=origin, destination=40)
        assert {client.status().last for client in clients} == {0, 1, 2}


class SlowStore:
    """Takes note of when what was written."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], float] = {}
        self.error: Exception | None = None

    def write(self, changes: RouteChanges) -> None:
        if self.error is not None:
            raise self.error
        time.sleep(0.05)  # Long enough that an answer sent before it would be seen to come first.
        for key in changes.holders:
            self.written[key] = time.monotonic()

    def close(self) -> None:
        pass


def with_store(directory: Path, context: zmq.Context[Any], store: SlowStore) -> Running:
    proxy = Running(directory, context)

    def prepare(process: ProxyProcess) -> None:
        assert process._store is not None
        process._store.close()
        process._store = store  # type: ignore[assignment]

    proxy.prepare = prepare
    return proxy.start()


def test_an_answer_is_sent_only_after_earlier_routes_are_written(tmp_path: Path, context: zmq.Context[Any]) -> None:
    store = SlowStore()
    proxy = with_store(tmp_path, context, store)
    server, client = proxy.server(), proxy.client()
    server.announce({})
    for k in range(5):
        topic = f"t{k}"
        client.send(Subscribe("ann", topic, 1, 1))
        origin = server.request()[0]
        said = Periodic("s1", log_id("s1"), 1, k + 2, "tcp://s1", "p", 0, 1, {topic: log_id("x")})
        server.send(said, origin=b"")
        server.send(Status("s1", Outcome.SUCCESS), origin=origin, destination=40)
        assert client.status().outcome is Outcome.SUCCESS
        assert store.written[topic, log_id("s1")] < time.monotonic()
        assert server.told().change == k + 2
    proxy.stop()


def test_a_proxy_with_a_full_disk_refuses_until_there_is_room(tmp_path: Path, context: zmq.Context[Any]) -> None:
    store = SlowStore()
    proxy = with_store(tmp_path, context, store)
    server, client = proxy.server(), proxy.client()
    server.announce({"t": log_id("x")})
    store.error = StoreFull("routes.db", "no space is left on the disk")
    server.send(Periodic("s1", log_id("s1"), 1, 2, "tcp://s1", "p", 0, 1, {"u": log_id("y")}), origin=b"")
    wait_until(lambda: bool(proxy.process.core.suspended))
    answer = client.ask(get())
    assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "the_disk_of_the_proxy_is_full")
    store.error = None
    server.send(Heartbeat("s1"), origin=b"")  # Any message wakes the loop; so would the next heartbeat.

    def served() -> bool:
        client.send(get("u"))
        server.send(Heartbeat("s1"), origin=b"")
        wait_until(lambda: bool(server.socket.poll(0) or client.socket.poll(0)))
        if client.socket.poll(0):
            client.status()  # A refusal; what is served only the server could answer.
            return False
        return server.frames()[0] != b""

    wait_until(served)
    assert ("u", log_id("s1")) in store.written
    proxy.stop()


def test_a_disk_that_fails_ends_the_proxy(tmp_path: Path, context: zmq.Context[Any]) -> None:
    store = SlowStore()
    proxy = with_store(tmp_path, context, store)
    store.error = StorageError("routes.db", "disk I/O error")
    server = proxy.server()
    server.send(Periodic("s1", log_id("s1"), 1, 1, "tcp://s1", "p", 0, 0, {"t": log_id("x")}), origin=b"")
    proxy.thread.join(10)
    assert "disk I/O error" in str(proxy.error)
    assert not server.socket.poll(0)
    proxy.stop()


def test_a_request_for_a_server_that_is_gone_is_answered_and_the_next_one_is_not_misread(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path, context) as proxy:
        server, client = proxy.server(), proxy.client()
        server.announce({"t": log_id("x")})
        server.socket.close(0)

        def unavailable() -> bool:
            client.send(Put("ann", "t", 1, "0" * 16, 9, 0, 0, body=b"PUT x y z" * 100))
            if not client.socket.poll(100):
                return False
            return client.status().reason == "server_s1_sends_no_heartbeats"

        wait_until(unavailable)
        # Answers to the puts before may still be on their way.
        wait_until(lambda: client.ask(get("other")).outcome is Outcome.UNKNOWN)


def test_a_restarted_server_need_not_wait_for_its_own_silence(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context, heartbeat_seconds=30.0) as proxy:
        old, client = proxy.server(), proxy.client()
        old.announce({"t": log_id("x")})
        old.socket.close(0)
        new = proxy.server()

        def accepted() -> bool:
            return new.announce({"t": log_id("x")}, incarnation=2, change=2).outcome is Outcome.SUCCESS

        wait_until(accepted)
        client.send(get())
        assert new.request()[1].endswith(encode(get())[0])


def test_an_answer_for_a_client_that_is_gone_is_dropped_and_the_next_one_arrives(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path, context) as proxy:
        server, gone, client = proxy.server(), proxy.client(), proxy.client()
        server.announce({"t": log_id("x")})
        gone.send(get())
        origin_gone = server.request()[0]
        gone.socket.close(0)
        client.send(get())
        origin = server.request()[0]
        answer = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 1), records=3, body=b"records")

        def dropped() -> bool:
            server.send(answer, origin=origin_gone, destination=40)
            return proxy.process.core.counters["answers_dropped"] > 0

        wait_until(dropped)
        server.send(answer, origin=origin, destination=40)
        assert client.status() == answer


def test_a_server_that_does_not_read_makes_only_its_own_clients_busy(tmp_path: Path, context: zmq.Context[Any]) -> None:
    addresses = {"bind": "inproc://clients", "servers": "inproc://servers"}
    with running(tmp_path, context, **addresses) as proxy:
        server, client, other = proxy.server(), proxy.client(), proxy.client()
        server.announce({"t": log_id("x")})
        deadline = time.monotonic() + 30
        while not client.socket.poll(0):
            assert time.monotonic() < deadline
            for _ in range(500):
                client.send(get())
        answer = client.status()
        assert (answer.outcome, answer.reason) == (Outcome.BUSY, "the_queue_to_server_s1_is_full")
        assert other.ask(get("unknown")).outcome is Outcome.UNKNOWN


def test_messages_with_too_many_frames_do_not_shift_the_ones_behind(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context) as proxy:
        server, client = proxy.server(), proxy.client()
        server.announce({"t": log_id("x")})
        for count in (1, 3, 4, 40):
            client.socket.send_multipart([b"1-0-0-" + encode(get())[0], *[b"x"] * count])
            client.socket.send_multipart([b""] * count)
            server.socket.send_multipart([b"cC", *[b"x"] * count])
            server.socket.send_multipart([b""] * count)
        assert client.ask(get("unknown")).outcome is Outcome.UNKNOWN
        client.send(get())
        while len(frames := server.request()) != 2:
            continue
        server.send(Status("s1", Outcome.SUCCESS), origin=frames[0], destination=40)
        assert client.status().outcome is Outcome.SUCCESS


def test_bytes_that_are_not_zeromq_and_half_open_connections_do_no_harm(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path, context) as proxy:
        server, client = proxy.server(), proxy.client()
        server.announce({"t": log_id("x")})
        opened = []
        for address in (proxy.process.bind, proxy.process.servers):
            host, port = address.removeprefix("tcp://").split(":")
            for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 500):
                opened.append(socket.create_connection((host, int(port))))
                opened[-1].sendall(sent)
        assert client.ask(get("unknown")).outcome is Outcome.UNKNOWN
        for connection in opened:
            connection.close()


def test_a_client_cannot_pose_as_a_server_at_the_clients_address(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context) as proxy:
        impostor, client = proxy.client(), proxy.client()
        said = Periodic("s1", log_id("s1"), 1, 1, "tcp://s1", "p", 0, 0, {"t": log_id("x")})
        impostor.send(said, origin=b"")
        impostor.send(said, origin=b"c")
        assert impostor.ask(said).outcome is Outcome.REFUSED
        assert client.ask(get()).outcome is Outcome.UNKNOWN
        assert not proxy.process.core.table.servers


def test_heartbeats_go_out_over_an_idle_link(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context, heartbeat_seconds=0.05) as proxy:
        server = proxy.server()
        server.announce({})
        for _ in range(3):
            origin, head = server.frames()
            assert origin == b""
            assert isinstance(decode(head[unpack(head).length :]), Heartbeat)


def test_a_proxy_stops_at_once_and_says_good_bye(tmp_path: Path, context: zmq.Context[Any]) -> None:
    proxy = Running(tmp_path, context).start()
    server = proxy.server()
    server.announce({})
    assert proxy.stop() < 2.0
    while (said := decode((head := server.frames()[1])[unpack(head).length :])) != Heartbeat("p1", leaving=1):
        assert isinstance(said, Heartbeat)


def test_an_address_in_use_is_one_clear_error_and_nothing_stays_locked(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path / "one", context) as proxy:
        for changed in ({"bind": proxy.process.bind}, {"bind": TCP, "servers": proxy.process.servers}):
            second = ProxyProcess(settings(directory=tmp_path / "two", **changed), context=context)
            with pytest.raises(ConfigurationError, match="in use"):
                second.start()
    with running(tmp_path / "two", context):
        pass


def test_an_invalid_address_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        ProxyProcess(settings(directory=tmp_path, bind="nonsense")).start()


def test_two_proxies_cannot_share_a_routes_file(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context), pytest.raises(StoreInUse):
        Running(tmp_path, context).start()


# The process itself

PROGRAM = """
import sys
from pathlib import Path
from pubsub.config.settings import ProxySettings
from pubsub.proxy.process import run_proxy
tcp = "tcp://127.0.0.1:0"
run_proxy(ProxySettings(id="p1", bind=tcp, servers=tcp, directory=Path(sys.argv[1]), startup_wait_seconds=0.0))
"""


@contextmanager
def program(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        words = process.stdout.readline().replace(",", "").split()
        assert words[:4] == ["proxy", "p1", "ready:", "clients"]
        yield process, words[4], words[6]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly_and_soon(tmp_path: Path, number: int) -> None:
    with program(tmp_path) as (process, _, _):
        process.send_signal(number)
        assert process.wait(10.0) == 0  # Two seconds, on a machine that is not busy.


def test_a_topic_of_a_dead_server_is_not_reassigned_after_sigkill(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with program(tmp_path) as (process, _, servers):
        server = ServerPeer(context, servers)
        assert server.announce({"t": log_id("x")}).outcome is Outcome.SUCCESS
        process.kill()
        process.wait()
    server.socket.close(0)
    with program(tmp_path) as (_, clients, _):
        client = Peer(context, clients)
        answer = client.ask(Subscribe("ann", "t", 1, 1))
        assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "server_s1_sends_no_heartbeats")
        assert client.ask(Subscribe("ann", "u", 1, 1)).reason == "no_server_sends_heartbeats"
