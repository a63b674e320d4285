"""The pages over HTTP, before a loop that a test turns by hand."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from pubsub.errors import ConfigurationError
from pubsub.metrics import pages as pages_module
from pubsub.metrics.handover import Handover
from pubsub.metrics.limits import CONNECTIONS_MAX, HEAD_BYTES_MAX
from pubsub.metrics.serving import Metrics, listen, open_metrics, said
from pubsub.metrics.snapshot import Snapshot
from tests.metrics.reading import connect, read, samples
from tests.metrics.reading import said as heard

GET = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Turning:
    """A loop that only gives snapshots, as often as somebody wants one."""

    def __init__(self) -> None:
        self.woken, self.over = threading.Event(), False
        self.given = 0
        self.unready = ""
        self.thread: threading.Thread | None = None

    def start(self, handover: Handover) -> None:
        self.handover, handover.started = handover, True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.over:
            self.woken.wait()
            self.woken.clear()
            if self.handover.wanted:
                self.given += 1
                self.handover.give(Snapshot("proxy", "p1", self.unready, {"refused": self.given}))

    def stop(self) -> None:
        self.over = True
        self.woken.set()
        if self.thread is not None:
            self.thread.join()


@pytest.fixture
def turning() -> Iterator[Turning]:
    made = Turning()
    yield made
    made.stop()


@pytest.fixture
def metrics(turning: Turning) -> Iterator[Metrics]:
    made = Metrics("127.0.0.1:0", turning.woken.set)
    yield made
    made.close()


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def test_a_process_that_starts_is_alive_and_not_ready(metrics: Metrics) -> None:
    assert read(metrics.url, "/livez") == (200, "starting\n")
    assert read(metrics.url, "/readyz") == (503, "starting\n")
    assert read(metrics.url) == (503, "starting\n")


def test_a_process_that_turns_is_alive_ready_and_measured(metrics: Metrics, turning: Turning) -> None:
    turning.start(metrics.handover)
    assert read(metrics.url, "/livez") == (200, "alive\n")
    assert read(metrics.url, "/readyz") == (200, "ready\n")
    status, text = read(metrics.url, "/metrics?all=1")
    assert status == 200
    assert samples(text)["pubsub_proxy_refused_total", ()] == 1


def test_a_process_that_cannot_serve_gives_the_reason(metrics: Metrics, turning: Turning) -> None:
    turning.unready = "no proxy is heard"
    turning.start(metrics.handover)
    assert read(metrics.url, "/readyz") == (503, "no proxy is heard\n")
    assert read(metrics.url, "/livez")[0] == 200


def test_a_loop_that_does_not_turn_is_not_alive(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "ANSWER_SECONDS", 0.1)
    metrics.handover.started = True
    for path in ("/livez", "/readyz", "/metrics"):
        assert read(metrics.url, path) == (503, "the process's loop has not answered for 0.1 s\n")


def test_many_requests_cause_few_snapshots(metrics: Metrics, turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "SNAPSHOT_SECONDS", 3600.0)
    turning.start(metrics.handover)
    with ThreadPoolExecutor(16) as threads:
        found = set(threads.map(lambda _: read(metrics.url), range(100)))
    assert [status for status, _ in found] == [200]
    assert turning.given == 1


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /secret HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", b"431"),
    ],
)
def test_a_malformed_request_gets_its_status(metrics: Metrics, request_: bytes, status: bytes) -> None:
    with connect(metrics.url) as sock:
        sock.sendall(request_)
        assert heard(sock).split(b" ")[1] == status


def test_head_gets_no_body(metrics: Metrics, turning: Turning) -> None:
    turning.start(metrics.handover)
    with connect(metrics.url) as sock:
        sock.sendall(GET.replace(b"GET", b"HEAD"))
        head, _, body = heard(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b""


def test_half_open_connections_end_in_time(metrics: Metrics, turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "REQUEST_SECONDS", 0.2)
    turning.start(metrics.handover)
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(metrics.url)) for _ in range(5)]
        for sock in socks:
            sock.sendall(GET[:20])
        assert [heard(sock) for sock in socks] == [b""] * 5


def test_a_hundred_silent_connections_do_not_block_readers(metrics: Metrics, turning: Turning) -> None:
    turning.start(metrics.handover)
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(metrics.url)) for _ in range(100)]
        status, text = read(metrics.url)
        assert status == 200
        assert "pubsub_proxy_refused_total" in text
        open_ = list(opened(metrics))
        assert len(open_) <= CONNECTIONS_MAX
        assert heard(socks[0]) == b""  # The oldest had to go.


def opened(metrics: Metrics) -> Any:
    return dict(metrics._pages._open)


def test_a_connection_that_does_not_read_is_dropped_and_others_are_answered(
    metrics: Metrics, turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(metrics._pages, "_written", lambda snapshot: b"x" * 64 * 1024 * 1024)
    turning.start(metrics.handover)
    with connect(metrics.url) as slow:
        slow.sendall(GET)
        until(lambda: opened(metrics))
        assert read(metrics.url, "/livez") == (200, "alive\n")
        until(lambda: not opened(metrics))
        assert len(heard(slow)) < 64 * 1024 * 1024


def test_stopping_does_not_wait_for_connections(turning: Turning) -> None:
    metrics = Metrics("127.0.0.1:0", turning.woken.set)
    with connect(metrics.url) as sock:
        until(lambda: opened(metrics))
        metrics.close()
        assert heard(sock) == b""
    with pytest.raises(OSError, match="refused"):
        connect(metrics.url)


def test_an_unanswered_request_is_forgotten_when_the_loop_turns(
    metrics: Metrics, turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "ANSWER_SECONDS", 0.1)
    metrics.handover.started = True
    assert read(metrics.url, "/livez")[0] == 503
    monkeypatch.setattr(pages_module, "ANSWER_SECONDS", 30.0)
    turning.start(metrics.handover)
    assert read(metrics.url, "/livez") == (200, "alive\n")


# Where it listens


def test_others_than_this_host_need_insecure() -> None:
    with pytest.raises(ConfigurationError, match="reached from other hosts"):
        listen("0.0.0.0:0", insecure=False)
    listen("0.0.0.0:0", insecure=True).close()


def test_an_address_in_use_is_one_line() -> None:
    with listen("127.0.0.1:0", insecure=False) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"--metrics 127.0.0.1:{port}: Address already in use"):
            listen(f"127.0.0.1:{port}", insecure=False)


def test_an_unknown_host_is_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"--metrics nowhere\.invalid:1: "):
        listen("nowhere.invalid:1", insecure=True)


def test_a_lack_of_files_is_logged_in_one_line_and_answers_continue_afterwards(
    turning: Turning, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turning.start(metrics.handover)
    accept, failed = socket.socket.accept, []

    def without_files(listening: socket.socket) -> Any:
        if not failed:
            failed.append(listening)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", without_files)
    assert read(metrics.url)[0] == 200
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "no connection can be accepted: Too many open files"
    ]


def test_metrics_without_the_library_name_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pubsub.metrics.exposition", None)
    with pytest.raises(ConfigurationError, match=r"--metrics needs pip install '\.\[http\]' in a clone"):
        Metrics("127.0.0.1:0", lambda: None)


def test_a_process_without_the_option_has_no_metrics() -> None:
    assert open_metrics(None, False, lambda: None, []) is None
    assert said(None) == ""
