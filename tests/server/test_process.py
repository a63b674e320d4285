"""The server's process: sockets, signals, disks; a ROUTER plays the proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest
import zmq

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import ConfigurationError, StorageError, StoreFull, StoreInUse
from pubsub.messenger.framing import pack
from pubsub.messenger.sockets import open_router
from pubsub.protocol import Get, Heartbeat, Outcome, Periodic, Status, Subscribe, encode
from pubsub.protocol.transfers import Merge
from pubsub.server import group_commit as serving
from pubsub.server.process import ServerProcess
from pubsub.server.storage import checkpoint
from pubsub.server.storage.checkpoint import Checkpointer
from pubsub.server.storage.store import Store
from tests.messenger.stranger import STRANGERS, Stranger
from tests.server.running import Proxy, Running, until
from tests.server.stage import Stage, bodies, put

MIB = 1024 * 1024


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def run(tmp_path: Path, proxy: Proxy) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(**changed: Any) -> Running:
        running.append(Running(tmp_path, proxy, **changed))
        proxy.ready()
        return running[-1]

    yield start
    for server in running:
        server.stop()


def test_a_server_announces_itself_and_serves_and_announces_its_end(run: Callable[..., Running], proxy: Proxy) -> None:
    server = run()
    assert proxy.ask(Subscribe("bob", "t", 5, 5)).outcome is Outcome.SUCCESS
    large = os.urandom(3 * MIB)
    assert proxy.ask(put("t", 1, [b"a", large])).outcome is Outcome.SUCCESS
    answer = proxy.ask(Get("bob", "t", None, 5, 5, records_max=10))
    assert bodies(answer) == [b"a", large]
    assert server.stop() < 2
    proxy.until(lambda message: isinstance(message, Heartbeat) and message.leaving == 1)
    assert server.error is None


def test_answered_changes_are_there_after_a_restart(run: Callable[..., Running], proxy: Proxy) -> None:
    first = run()
    incarnation = next(message.incarnation for message in proxy.heard if isinstance(message, Periodic))
    proxy.ask(Subscribe("bob", "t", 5, 5))
    proxy.ask(put("t", 1, [b"a"]))
    first.stop()
    proxy.heard.clear()
    run()
    announced = next(message for message in proxy.heard if isinstance(message, Periodic))
    assert announced.incarnation > incarnation
    assert set(announced.topics or {}) == {"t"}
    assert bodies(proxy.ask(Get("bob", "t", None, 5, 5))) == [b"a"]
    assert proxy.ask(put("t", 1, [b"a"])).outcome is Outcome.DUPLICATE


def test_a_waiting_get_is_answered_as_soon_as_a_message_comes(run: Callable[..., Running], proxy: Proxy) -> None:
    run()
    proxy.ask(Subscribe("bob", "t", 5, 5))
    begin = time.monotonic()
    waiting = proxy.ask_later(Get("bob", "t", None, 5, 5, wait_ms=20_000))
    proxy.ask_later(put("t", 1, [b"a"]))
    assert bodies(proxy.answer(waiting)) == [b"a"]
    assert time.monotonic() - begin < 5


def test_hostile_frames_are_counted_and_do_no_harm(run: Callable[..., Running], proxy: Proxy) -> None:
    server = run()
    head, body = encode(put("t", 1))
    hostile = [
        [b""],
        [b"", b""],
        [b"", b"-"],
        [b"cX", b"1-5-0-"],
        [b"cX", b"1-5-0-PUT\r\n\r\n"],
        [b"cX", b"\xff" * 100_000],
        [b"cX", pack(1, 5, 0) + head],
        [b"cX", pack(1, 5, 0) + head, body, b"more"],
        [b"cX", pack(1, 5, 0) + head, bytes(body)[:-1]],
        [b"cX", pack(1, 5, 0) + head, b"x" * 20 * MIB],
        [b"c" * 10_000, pack(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX) + head, b""],
        [b"cX", b"99999999999999999999-0-0-" + head],
        [b"", pack(1, 0, 16) + b"STATUS x success !v=1\r\n\r\n", b"\xff"],
        [b"", pack(1, 0, 0) + b"MERGE p t tcp://-:0 !v=1\r\n\r\n"],
    ]
    for frames in hostile:
        proxy.sock.send_multipart([proxy.server, *frames])
    assert proxy.ask(put("t", 1)).outcome is Outcome.SUCCESS
    proxy.send(Merge("p1", "t", "tcp://-:0"), origin=b"")  # an address that no socket takes
    assert proxy.ask(put("t", 2)).outcome is Outcome.SUCCESS
    assert server.process.core.state.counters["malformed"] >= 5
    until(lambda: server.process.core.state.counters["addresses_bad"] >= 1)
    assert server.thread.is_alive()


def test_a_listener_with_foreign_bytes_stays_alive(run: Callable[..., Running], proxy: Proxy) -> None:
    server = run()
    stranger = proxy.context.socket(zmq.DEALER)
    stranger.connect(server.process.address)
    for message in (
        put("t", 1),
        Subscribe("bob", "t", 5, 5),
        Status("x", Outcome.SUCCESS),
        Merge("x", "t", "tcp://h:1"),
    ):
        head, body = encode(message)
        stranger.send_multipart([pack(1, 7, 0) + head, bytes(body)])
    stranger.send_multipart([b"x"])
    assert proxy.ask(put("u", 1)).outcome is Outcome.SUCCESS
    assert set(server.process.core.state.topics) == {"u"}
    stranger.close(0)


def test_a_second_server_on_the_directory_is_refused(run: Callable[..., Running], proxy: Proxy, tmp_path: Path) -> None:
    run()
    with pytest.raises(StoreInUse):
        Running(tmp_path, proxy)
    assert proxy.ask(put("t", 1)).outcome is Outcome.SUCCESS


def test_a_server_returns_at_its_old_port_if_the_port_is_free(
    tmp_path: Path, run: Callable[..., Running], proxy: Proxy
) -> None:
    """Whoever was giving it a topic knows no other address."""
    first = run()
    before = first.process.address
    first.stop()
    second = run()
    assert second.process.address == before
    second.stop()
    with socket.create_server(("127.0.0.1", int(before.rpartition(":")[2]))):
        third = run()
        assert third.process.address != before
        elsewhere = third.process.address
        third.stop()
    assert run().process.address == elsewhere


def test_an_address_in_use_leaves_the_store_free(tmp_path: Path, proxy: Proxy) -> None:
    with pytest.raises(ConfigurationError, match="in use"):
        Running(tmp_path, proxy, bind=proxy.endpoint)
    Store(tmp_path).close()


def test_a_failed_checkpoint_ends_the_server_before_it_answers(
    run: Callable[..., Running], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL_SECONDS", 0.001)
    server = run()
    proxy.ask(put("t", 1))

    def fails(self: Checkpointer, db: apsw.Connection) -> NoReturn:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(Checkpointer, "_round", fails)
    server.thread.join(60)
    assert isinstance(server.error, StorageError)
    server.stop()
    monkeypatch.undo()
    run()
    assert proxy.ask(put("t", 1)).outcome is Outcome.DUPLICATE


def test_a_failed_commit_ends_the_server_before_it_answers(
    run: Callable[..., Running], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = run()
    proxy.ask(put("t", 1))

    def fails(self: Store) -> NoReturn:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(Store, "commit", fails)
    callback = proxy.ask_later(put("t", 2))
    server.thread.join(60)
    assert isinstance(server.error, StorageError)
    while (got := proxy.receive(0.3)) is not None:
        assert got[1] != callback
    server.stop()


def test_a_full_store_refuses_puts_takes_acknowledgements_and_comes_back(
    run: Callable[..., Running], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FULL_RETRY_SECONDS", 0.02)
    server = run(store_bytes_max=6 * MIB, retention_hold_seconds=0.6, skew_seconds=0.1, heartbeat_seconds=0.1)
    log = proxy.ask(Subscribe("bob", "t", 5, 5)).log
    counter = 0
    while True:
        answer = proxy.ask(put("t", counter + 1, [os.urandom(200_000)], previous=counter))
        if answer.outcome is not Outcome.SUCCESS:
            break
        counter += 1
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "disk")
    assert server.process.core.state.full
    assert counter >= 10
    assert proxy.ask(put("t", counter, [b""])).outcome is Outcome.DUPLICATE
    last, taken = None, 0
    while taken < counter:
        got = proxy.ask(Get("bob", "t", last, 5, 5, records_max=3))
        assert got.outcome is Outcome.SUCCESS
        last, taken = got.message, taken + got.records
    assert last == (log, counter)
    proxy.ask(Get("bob", "t", last, 5, 5, records_max=0))
    deadline = time.monotonic() + 20
    while (answer := proxy.ask(put("t", counter + 1, [b"again"], previous=counter))).outcome is Outcome.FULL:
        assert time.monotonic() < deadline, answer
        proxy.receive(0.05)
    assert answer.outcome is Outcome.SUCCESS
    assert bodies(proxy.ask(Get("bob", "t", last, 5, 5))) == [b"again"]


def test_a_returned_proxy_gets_a_full_announcement_on_the_new_link(
    run: Callable[..., Running], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(heartbeat_seconds=0.1, retention_hold_seconds=60.0, announce_seconds=60.0)
    old = proxy.server
    proxy.ask(put("t", 1))
    deadline = time.monotonic() + 10
    while proxy.server == old:  # it says nothing, so the server takes a new socket
        assert time.monotonic() < deadline
        proxy.receive(0.1)
    announced = proxy.heard[-1]
    assert isinstance(announced, Periodic)
    assert (announced.partial, set(announced.topics or {})) == (0, {"t"})


def test_a_server_whose_id_stays_taken_gives_up(tmp_path: Path, proxy: Proxy) -> None:
    proxy.confirms = False
    server = Running(tmp_path, proxy, heartbeat_seconds=0.05)
    deadline = time.monotonic() + 10
    while server.thread.is_alive():
        assert time.monotonic() < deadline
        got = proxy.receive(0.05)
        if got is not None and isinstance(got[2], Periodic):
            proxy.send(Status("p1", Outcome.TAKEN, reason="id_in_use"), origin=b"")
    assert isinstance(server.error, ConfigurationError)
    server.stop()


def test_a_server_with_an_older_copy_ends_and_does_not_start_again(tmp_path: Path, proxy: Proxy) -> None:
    server = Running(tmp_path, proxy)
    proxy.until(lambda message: isinstance(message, Periodic))
    stale = Status("p1", Outcome.STALE, reason="store_is_at_change_1_but_was_at_7_before", change=7)
    proxy.send(stale, origin=b"")
    server.thread.join(60)
    assert "pubsub server restored" in str(server.error)
    server.stop()
    with pytest.raises(ConfigurationError, match="older copy"):
        ServerProcess(server.process.settings).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly_and_soon(tmp_path: Path, proxy: Proxy, number: int) -> None:
    command = [sys.executable, "-m", "pubsub.server", "start", "--id", "s1", "--proxy", proxy.endpoint]
    child = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("server s1 ready: tcp://")
        proxy.ready()
        proxy.ask(Subscribe("bob", "t", 5, 5))
        acknowledged = []
        for counter in range(1, 30):
            proxy.ask_later(put("t", counter, previous=counter - 1))
        child.send_signal(number)
        begin = time.monotonic()
        while (got := proxy.receive(0.5)) is not None:
            if isinstance(got[2], Status) and got[2].outcome is Outcome.SUCCESS and got[2].last > 0:
                acknowledged.append(got[2].last)
        assert child.wait(30) == 0
        assert time.monotonic() - begin < 10, "two seconds, on a machine that is not busy"
    finally:
        child.kill()
        child.wait()
        child.stdout.close() if child.stdout else None
    store = Store(tmp_path)
    (topic,) = store.topics()
    assert max(topic.last.values(), default=0) >= max(acknowledged, default=0)
    store.close()


def test_a_killed_process_leaves_all_answered_changes(tmp_path: Path, proxy: Proxy) -> None:
    command = [sys.executable, "-m", "pubsub.server", "start", "--id", "s1", "--proxy", proxy.endpoint]
    child = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        proxy.ready()
        proxy.ask(Subscribe("bob", "t", 5, 5))
        for counter in range(1, 40):
            assert proxy.ask(put("t", counter, previous=counter - 1)).outcome is Outcome.SUCCESS
    finally:
        child.kill()
        child.wait()
    stage = Stage(tmp_path)
    assert len(bodies(stage.get("bob", "t", None, 5))) == 39
    assert stage.put("t", 39).outcome is Outcome.DUPLICATE
    stage.close()


def test_an_unwritable_directory_is_one_clear_error(tmp_path: Path, proxy: Proxy) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Running(tmp_path / "file" / "data", proxy)


def test_no_space_for_a_new_store_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Store, *, read_only: bool) -> NoReturn:
        raise StoreFull(str(tmp_path), "no space for a new store")

    monkeypatch.setattr(Store, "_open_format", full)
    with pytest.raises(StoreFull):
        Store(tmp_path)
    monkeypatch.undo()
    Store(tmp_path).close()


@pytest.mark.parametrize("name", ["no greeting", "another mechanism"])
def test_a_server_reaches_its_proxy_at_the_address_of_a_former_stranger(tmp_path: Path, name: str) -> None:
    stranger, proxy = Stranger(STRANGERS[name]), Proxy()
    proxy.sock.close(0)
    running = Running(tmp_path, proxy, proxies=(stranger.endpoint,), heartbeat_seconds=0.2)
    try:
        until(lambda: stranger.connections)
        stranger.leave()
        proxy.sock, _ = open_router(proxy.context, stranger.endpoint)
        assert proxy.until(lambda message: isinstance(message, Periodic), 30.0)
    finally:
        running.stop()
        proxy.close()
