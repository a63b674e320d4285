"""Metrics of real processes: scraped under traffic, by slow and silent peers, and where they cannot begin."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.embedded import Embedded, embedded
from pubsub.errors import ConfigurationError
from tests.cli.test_cluster import up
from tests.metrics.reading import connect, read, samples
from tests.ports import free_port
from tests.server.running import until


@contextmanager
def cluster() -> Iterator[tuple[Embedded, str, str]]:
    """A proxy and a server on threads, and where each tells its metrics."""
    at, of = free_port(), free_port()

    def proxy(settings: ProxySettings) -> ProxySettings:
        return replace(settings, metrics=f"127.0.0.1:{at}")

    def server(settings: ServerSettings) -> ServerSettings:
        return replace(settings, metrics=f"127.0.0.1:{of}")

    with embedded(proxy=proxy, server=server) as running:
        yield running, f"http://127.0.0.1:{at}/metrics", f"http://127.0.0.1:{of}/metrics"


def total(url: str, name: str) -> float:
    return samples(read(url)[1]).get((name, ()), -1.0)


def test_operations_are_measured_and_shown() -> None:
    with cluster() as (running, proxy, server), running.client("ann") as ann:
        ann.subscribe("t")
        for number in range(20):
            ann.put("t", b"%d" % number)
        for _ in range(20):
            assert ann.get("t", timeout=120.0) is not None
        until(lambda: total(server, "pubsub_server_put_seconds_count") == 20)
        found = samples(read(server)[1])
        assert found["pubsub_server_records_total", ()] == 20
        assert found["pubsub_server_commit_records_sum", ()] == 20
        assert found["pubsub_server_commit_seconds_count", ()] >= 20
        assert found["pubsub_server_delivery_seconds_count", ()] >= 1
        assert found["pubsub_server_wal_bytes", ()] > 1_000_000
        assert found["pubsub_server_disk_free_bytes", ()] > 0
        assert found["pubsub_server_proxies_alive", ()] == 1
        assert found["pubsub_server_topics", ()] == 1
        waiting = {labels for name, labels in found if name == "pubsub_server_waiting"}
        assert {("sole_owner",), ("whole_topics",)} <= waiting, "both values of a renamed label, for one release"
        until(lambda: total(server, "pubsub_server_checkpoint_seconds_count") >= 1)
        found = samples(read(proxy)[1])
        assert 1 <= found["pubsub_proxy_put_seconds_count", ()] <= 20
        assert found["pubsub_proxy_servers_alive", ()] == 1
        assert (read(proxy, "/readyz")[0], read(server, "/readyz")[0]) == (200, 200)


def test_a_server_without_its_proxy_is_alive_and_not_ready() -> None:
    with cluster() as (running, _, server):
        until(lambda: read(server, "/readyz")[0] == 200)
        running._processes[0].stop()
        until(lambda: read(server, "/readyz") == (503, "no proxy answers\n"))
        assert read(server, "/livez") == (200, "alive\n")


def test_traffic_goes_on_while_scrapers_are_many_slow_and_silent() -> None:
    with cluster() as (running, proxy, server), running.client("ann") as ann, ExitStack() as stack:
        over = threading.Event()
        read_: list[int] = []

        def scrape(url: str) -> None:
            while not over.wait(0.01):
                read_.append(read(url)[0])

        threads = [threading.Thread(target=scrape, args=(url,)) for url in (proxy, server)]
        for thread in threads:
            thread.start()
        try:
            for url in (proxy, server):
                for number in range(100):
                    sock = stack.enter_context(connect(url))
                    if number % 2:
                        sock.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
            ann.subscribe("t")
            for number in range(50):
                ann.put("t", b"%d" % number)
            assert [ann.get("t", timeout=120.0).body for _ in range(50)] == [b"%d" % n for n in range(50)]  # type: ignore[union-attr]
            until(lambda: len(read_) >= 4)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert set(read_) == {200}


def test_the_second_process_at_an_address_does_not_start(tmp_path: Path) -> None:
    with cluster() as (_, proxy, _):
        taken = proxy.removeprefix("http://").removesuffix("/metrics")
        with (
            pytest.raises(ConfigurationError, match=f"--metrics {taken}: Address already in use"),
            embedded(tmp_path, server=lambda settings: replace(settings, metrics=taken)),
        ):
            raise AssertionError("it started")


def test_up_gives_each_process_a_port_and_says_where(tmp_path: Path) -> None:
    with up(tmp_path / "c", "--proxies", "1", "--servers", "1", "--metrics", "127.0.0.1:0") as running:
        urls = {one["id"]: one["metrics"] for one in running.facts["processes"]}
        assert urls.keys() == {"p1", "s1"}
        until(lambda: total(urls["p1"], "pubsub_proxy_servers_alive") == 1)
        assert total(urls["s1"], "pubsub_server_serving") == 1
        assert running.stop()[0] == 0


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("0.0.0.0:0", "can be reached from other hosts"),
        ("9400", "allowed: HOST:PORT"),
    ],
)
def test_a_process_that_may_not_listen_ends_with_one_line(tmp_path: Path, address: str, line: str) -> None:
    command = [sys.executable, "-m", "pubsub", "proxy", "start", "--id", "p1", "--bind", "tcp://127.0.0.1:0"]
    command += ["--dir", str(tmp_path), "--metrics", address]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 8
    assert done.stderr.count("\n") == 1
    assert line in done.stderr


def test_a_process_without_the_extra_ends_with_one_line(tmp_path: Path) -> None:
    words = ["proxy", "start", "--id", "p1", "--bind", "tcp://127.0.0.1:0", "--dir", str(tmp_path)]
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from pubsub.cli import main\n"
        f"sys.argv[1:] = {[*words, '--metrics', '127.0.0.1:0']}\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (8, 1)
    assert "--metrics needs pip install '.[http]' in a clone" in done.stderr
