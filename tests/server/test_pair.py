"""Two processes of one server: a ROUTER plays the proxy, with the register that the proxy ships."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.errors import ConfigurationError, StoreFull
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_router
from pubsub.protocol import Outcome, Periodic, Put, Status, decode, encode, join_topics
from pubsub.protocol.messages import Heartbeat, Operate
from pubsub.protocol.register import Accept, Admit, Look, Prepare
from pubsub.protocol.standby import EntryId
from pubsub.protocol.transfers import Owners
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RouteChanges
from pubsub.server.links import GOODBYE_MS, Links
from pubsub.server.listening import listen
from pubsub.server.pair import Pair
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.follower import Following
from pubsub.server.storage.store import Store
from tests.server.running import Running, until
from tests.server.stage import put

BEAT = 0.5


class Proxy:
    """A proxy on a thread: its register, and requests of one client, which it sends to whoever serves."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.sock, self.endpoint = open_router(self.context, "tcp://127.0.0.1:0")
        self.registers = Registers("p1", "1" * 16, [], RouteChanges(), 3 * BEAT)
        self.serves: tuple[bytes, str] = (b"", "")
        """Whose connection the last announcement came over, and the member that it named."""
        self.answers: dict[int, Status] = {}
        self.wanted: list[tuple[int, Any]] = []
        self._announced: tuple[str, str, int] = ("", "", 0)
        self._callback = 100
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            while self.wanted and self.serves[0]:
                callback, message = self.wanted.pop(0)
                self._send(self.serves[0], message, b"cX", callback=callback)
            if self.sock.poll(5):
                self._take(*self.sock.recv_multipart())

    def _take(self, link: bytes, origin: bytes, head: bytes, *rest: bytes) -> None:
        prefix = unpack(head)
        message = decode(head[prefix.length :], rest[0] if rest else None)
        if link == self.serves[0]:
            self.registers.received(*self._announced, time.monotonic())
        if isinstance(message, Prepare | Accept | Look | Admit):
            self._send(link, self.registers.handle(message, time.monotonic()))
            if self.serves[0] not in {b"", link}:  # It is to show that it is there.
                self._send(self.serves[0], Heartbeat("p1", 0), callback=1)
        elif isinstance(message, Owners):
            others = join_topics(dict.fromkeys(message.topics or {}, ""))
            self._send(link, Status("p1", Outcome.SUCCESS, body=others), destination=prefix.source)
        elif isinstance(message, Periodic):
            if self.registers.received(message.store, message.member, message.incarnation, time.monotonic()):
                self.serves, self._announced = (
                    (link, message.member),
                    (message.store, message.member, message.incarnation),
                )
                self._send(link, Status("p1", Outcome.SUCCESS, change=message.change))
            else:
                row = self.registers.rows[message.store]
                term = row.view.term if row.view is not None else 0
                self._send(link, Status("p1", Outcome.DEPOSED, term=term))
        elif isinstance(message, Status) and origin == b"cX":
            self.answers[prefix.destination] = message

    def _send(self, link: bytes, message: Any, origin: bytes = b"", callback: int = 0, destination: int = 0) -> None:
        head, body = encode(message)
        frames = [link, origin, pack(1, callback, destination) + head, *([body] if len(body) else [])]
        with contextlib.suppress(zmq.ZMQError):  # Nobody is there any more.
            self.sock.send_multipart(frames)

    def ask(self, message: Any) -> Status:
        """Ask whoever serves, again until there is an answer that is none of "later"."""
        while True:
            self._callback += 1
            callback = self._callback
            self.wanted.append((callback, message))
            try:
                until(lambda callback=callback: callback in self.answers, 2.0)
            except AssertionError:
                continue
            if self.answers[callback].outcome not in {Outcome.UNAVAILABLE, Outcome.BUSY}:
                return self.answers[callback]

    @property
    def in_sync(self) -> tuple[str, ...]:
        rows = list(self.registers.rows.values())
        return rows[0].view.in_sync if rows and rows[0].view is not None else ()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.sock.close(0)
        self.context.term()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def run(tmp_path: Path, proxy: Proxy) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(name: str, **changed: Any) -> Running:
        facts = {"heartbeat_seconds": BEAT, "standby_heartbeat_seconds": BEAT, "skew_seconds": 1.0, **changed}
        running.append(Running(tmp_path / name, proxy, **facts))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for one in running:
        if one.thread.is_alive():
            one.stop()


def counted(number: int) -> Put:
    return put("t", number, [b"%d" % number], previous=number - 1)


def paired(proxy: Proxy, run: Callable[..., Running]) -> tuple[Running, Running]:
    a = run("a")
    assert proxy.ask(counted(1)).outcome is Outcome.SUCCESS
    b = run("b", standby_of=a.process.address)
    until(lambda: len(proxy.in_sync) == 2)
    return a, b


def leading(running: Running) -> Any:
    """What a primary waits for, once it is one of two."""
    pair = running.process._pair
    return None if pair is None else pair.member.leading


def test_a_server_gets_a_standby_while_it_serves(proxy: Proxy, run: Callable[..., Running], tmp_path: Path) -> None:
    a, _ = paired(proxy, run)
    members = {LocalFile(tmp_path / name).local.member for name in "ab"}  # type: ignore[union-attr]
    assert members == set(proxy.in_sync)
    until(lambda: proxy.serves[1] in members)
    assert proxy.ask(counted(2)).outcome is Outcome.SUCCESS
    assert a.process.core.proxies.member == proxy.serves[1]


def test_the_primarys_log_names_the_times_in_sync_and_the_drop_of_its_standby(
    proxy: Proxy, run: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pubsub.server.pair")
    _, b = paired(proxy, run)

    def said(text: str) -> list[str]:
        return [record.levelname for record in caplog.records if text in record.getMessage()]

    until(lambda: said("the standby is in sync") == ["INFO"])
    assert not said("no standby is in sync")
    b.stop()
    until(lambda: said("no standby is in sync") == ["WARNING"])


def test_the_standby_takes_over_with_all_puts(proxy: Proxy, run: Callable[..., Running]) -> None:
    a, _ = paired(proxy, run)
    before = proxy.serves[1]
    assert proxy.ask(counted(2)).outcome is Outcome.SUCCESS
    a.stop()
    proxy.registers.disconnected(next(iter(proxy.registers.rows)), before)
    until(lambda: proxy.serves[1] not in {"", before})
    assert proxy.ask(counted(2)).outcome is Outcome.DUPLICATE
    assert proxy.ask(counted(3)).outcome is Outcome.SUCCESS
    run("a")
    until(lambda: len(proxy.in_sync) == 2)
    assert proxy.serves[1] != before


def test_a_standby_without_space_retries_its_takeover(
    proxy: Proxy, run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = paired(proxy, run)
    assert proxy.ask(counted(2)).outcome is Outcome.SUCCESS
    before, take, refused = proxy.serves[1], MemberDisk.take, count(1)

    def full(disk: MemberDisk, following: Following) -> EntryId:
        if next(refused) <= 2:
            raise StoreFull("server.db", "no space")
        return take(disk, following)

    monkeypatch.setattr(MemberDisk, "take", full)
    a.stop()
    proxy.registers.disconnected(next(iter(proxy.registers.rows)), before)
    until(lambda: proxy.serves[1] not in {"", before})
    assert b.error is None
    assert proxy.ask(counted(2)).outcome is Outcome.DUPLICATE
    assert proxy.ask(counted(3)).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("step", ["entry", "commit"])
def test_a_standby_without_space_for_its_term_retries(
    proxy: Proxy, run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    a, b = paired(proxy, run)
    assert proxy.ask(counted(2)).outcome is Outcome.SUCCESS
    before, refused = proxy.serves[1], count(1)
    kind, name = {"entry": (Stream, "append"), "commit": (HeldAnswers, "begin_term")}[step]
    original = getattr(kind, name)

    def full(self: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("own", True) and next(refused) <= 2:
            raise StoreFull("stream", "no space, says the test")
        return original(self, *arguments, **named)

    a.stop()
    monkeypatch.setattr(kind, name, full)
    proxy.registers.disconnected(next(iter(proxy.registers.rows)), before)
    until(lambda: proxy.serves[1] not in {"", before})
    assert b.error is None
    assert next(refused) > 2
    assert proxy.ask(counted(2)).outcome is Outcome.DUPLICATE
    assert proxy.ask(counted(3)).outcome is Outcome.SUCCESS


def test_a_standby_confirms_first_and_applies_later_or_at_its_takeover(
    proxy: Proxy, run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = paired(proxy, run)
    done: list[str] = []

    def note(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def dirty(self: Any, *arguments: Any) -> Any:
            if self in (b.process._pair, b.process._disk):
                done.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(kind, name, dirty)

    monkeypatch.setattr("pubsub.server.pair.APPLY_SECONDS", 3600.0)
    note(Pair, "send")
    note(MemberDisk, "write")
    note(MemberDisk, "apply")
    for number in range(2, 12):
        assert proxy.ask(counted(number)).outcome is Outcome.SUCCESS
    assert done.count("apply") <= 1
    assert all(then == "send" for name, then in pairwise(done[:]) if name == "write")
    a.stop()
    proxy.registers.disconnected(next(iter(proxy.registers.rows)), proxy.serves[1])
    assert proxy.ask(counted(11)).outcome is Outcome.DUPLICATE


def test_a_switch_and_a_switch_back_work_within_the_same_processes(proxy: Proxy, run: Callable[..., Running]) -> None:
    a, b = paired(proxy, run)
    for number in (2, 3):
        before = proxy.serves[1]
        assert proxy.ask(Operate("op", "s1", "switch")).outcome is Outcome.SUCCESS
        until(lambda before=before: proxy.serves[1] not in {"", before})
        assert proxy.ask(counted(number)).outcome is Outcome.SUCCESS
        until(lambda: len(proxy.in_sync) == 2)
        # A switch needs the other one as its standby again.
        until(lambda: proxy.ask(Operate("op", "s1", "remove", member="f" * 16)).reason == "it_is_none")
    assert a.error is b.error is None


def test_a_switch_there_and_back_waits_for_no_heartbeat(
    proxy: Proxy, run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    close, lingers = Links.close, []

    def closed(links: Links, sock: Any, linger_ms: int = 0) -> None:
        lingers.append(linger_ms)
        close(links, sock, linger_ms)

    monkeypatch.setattr(Links, "close", closed)
    for one in paired(proxy, run):
        one.stop()
    slow = {"heartbeat_seconds": 60.0, "standby_heartbeat_seconds": 60.0, "retention_hold_seconds": 600.0}
    run("a", **slow), run("b", **slow)
    for number in (2, 3, 4):
        before = proxy.serves[1]
        assert proxy.ask(Operate("op", "s1", "switch")).outcome is Outcome.SUCCESS
        until(lambda before=before: proxy.serves[1] not in {"", before})
        assert proxy.ask(counted(number)).outcome is Outcome.SUCCESS
    assert lingers.count(GOODBYE_MS) == 3, "the last word to who is replaced may leave"


def test_a_standby_without_a_connectable_primary_continues_and_takes_over(
    proxy: Proxy, run: Callable[..., Running]
) -> None:
    """As where the primary's host was stolen, and its key is taken out of the file of who is authorized."""
    a, b = paired(proxy, run)
    before = proxy.serves[1]
    pair, asked = b.process._pair, []
    assert pair is not None

    def to_member(address: str) -> Any:
        asked.append(address)
        raise ConfigurationError("no key of another member of server s1 is authorized here")

    leading = a.process._pair.member.leading if a.process._pair is not None else None
    assert leading is not None
    leading._silence, leading.unreachable = 60.0, lambda: None  # type: ignore[method-assign]  # Its host is gone first.
    b.process._links.to_member = to_member  # type: ignore[method-assign]
    pair._link_to = "the rules have changed"
    until(lambda: asked)
    a.stop()
    proxy.registers.disconnected(next(iter(proxy.registers.rows)), before)
    until(lambda: proxy.serves[1] not in {"", before} or b.error is not None)
    assert b.error is None
    assert proxy.ask(counted(2)).outcome is Outcome.SUCCESS


def test_the_only_proxy_gets_its_vote_back_on_an_operators_request(proxy: Proxy, run: Callable[..., Running]) -> None:
    paired(proxy, run)
    term = next(iter(proxy.registers.rows.values())).view
    proxy.registers = Registers("p1", "2" * 16, [], RouteChanges(), 3 * BEAT)
    # The primary may not have seen yet that anything was lost: the command repeats it too.
    until(lambda: proxy.ask(Operate("op", "s1", "reset")).outcome is Outcome.SUCCESS and len(proxy.in_sync) == 2)
    assert next(iter(proxy.registers.rows.values())).view == term
    assert proxy.ask(Operate("op", "s1", "reset")).outcome is Outcome.SUCCESS


def test_a_directory_with_a_store_is_not_made_a_standby(
    proxy: Proxy, run: Callable[..., Running], tmp_path: Path
) -> None:
    Store(tmp_path / "b").close()
    with pytest.raises(ConfigurationError, match="a store of its own"):
        run("b", standby_of="tcp://127.0.0.1:1")
    assert LocalFile(tmp_path / "b").local is None


def test_a_server_with_a_full_disk_keeps_serving_when_a_standby_asks(
    proxy: Proxy, run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        asked.append(1)
        raise StoreFull("disk", "no space, says the test")

    a, asked = run("a"), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(MemberDisk, "found", no_space)
        run("b", standby_of=a.process.address)
        until(lambda: len(asked) > 1)
        assert proxy.ask(counted(1)).outcome is Outcome.SUCCESS
    until(lambda: len(proxy.in_sync) == 2)  # There is space again.
    assert a.error is None


def test_no_standby_is_added_before_there_is_space_to_record_the_register(
    proxy: Proxy,
    run: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A primary whose next start knows of no register would serve alone."""
    tried, keep = list[int](), LocalFile.keep

    def no_space(file: LocalFile, **changed: Any) -> None:
        if file.local is not None and file.local.registered:
            return keep(file, **changed)  # The other member's.
        tried.append(1)
        raise StoreFull("local", "no space, says the test")

    a = run("a")
    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "keep", no_space)
        run("b", standby_of=a.process.address)
        until(lambda: len(tried) > 1)
        assert proxy.ask(counted(1)).outcome is Outcome.SUCCESS
        until(lambda: leading(a) is not None and leading(a).proposal(time.monotonic()) is not None)
        assert len(proxy.in_sync) < 2
    until(lambda: len(proxy.in_sync) == 2)
    assert caplog.text.count("no space to record this member's state for its next start") == 1
    assert LocalFile(tmp_path / "a").local.registered  # type: ignore[union-attr]
    assert a.error is None


def test_a_member_without_a_copy_needs_the_address_of_the_primary(
    proxy: Proxy, run: Callable[..., Running], tmp_path: Path
) -> None:
    run("b", standby_of="tcp://127.0.0.1:9").stop()
    with pytest.raises(ConfigurationError, match="has no copy of a store: start the member with --standby-of"):
        run("b")


def test_a_member_takes_over_though_the_other_address_is_unreachable(proxy: Proxy, run: Callable[..., Running]) -> None:
    a, b = paired(proxy, run)
    b.stop()
    a.stop()
    before = proxy.serves[1]
    # The other one had keys; or its host is gone for good, and its key is not authorized any more.
    gone = "tcp://s1@127.0.0.1:9"
    ((store, row),) = proxy.registers.rows.items()
    assert row.view is not None
    proxy.registers.rows[store] = replace(row, view=row.view._replace(address=gone))
    b = run("b")
    until(lambda: b.error or proxy.serves[1] not in {"", before})
    assert b.error is None


def test_a_member_without_space_for_its_port_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalFile(tmp_path)
    local.make("a" * 16)

    def no_space(*_: object) -> None:
        raise StoreFull("disk", "no space, says the test")

    monkeypatch.setattr(LocalFile, "_write", no_space)
    context: zmq.Context[Any] = zmq.Context()
    sock, _ = listen("tcp://127.0.0.1:0", lambda bind: open_router(context, bind), None, local)
    sock.close(0)
    context.term()


def test_a_server_without_a_standby_has_no_file_of_a_member(
    proxy: Proxy, run: Callable[..., Running], tmp_path: Path
) -> None:
    run("a")
    assert proxy.ask(counted(1)).outcome is Outcome.SUCCESS
    assert proxy.serves[1] == ""
    assert not (tmp_path / "a" / "local").exists()
    assert not (tmp_path / "a" / "stream").exists()
