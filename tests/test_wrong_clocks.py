"""A clock beyond all numbers: one line, nothing written, and all continues once the clock is set."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pubsub import Client, ServiceClient, Worker, embedded
from pubsub.base.clock import WALL_SECONDS_MAX, valid_wall
from pubsub.cli import main
from pubsub.client.core.numbers import Numbers
from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.proxy.process import ProxyProcess, run_proxy
from pubsub.security.keys import format_secret
from pubsub.security.pairs import new_pair
from pubsub.server.process import ServerProcess, run_server
from pubsub.server.promote import promote
from pubsub.services.handlers import echo
from tests.ports import free_port
from tests.services.running import Running

YEAR_9999 = 253_402_300_799.0
WRONG = "the clock of this machine is wrong"


class Wall:
    """A clock of any time."""

    def __init__(self, wall: float) -> None:
        self._wall = wall

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return self._wall


def test_the_last_moment_is_in_2089() -> None:
    assert valid_wall(WALL_SECONDS_MAX) == WALL_SECONDS_MAX
    assert time.gmtime(WALL_SECONDS_MAX)[:3] == (2089, 9, 6)
    assert valid_wall(0.0) == 0.0  # Before the first one numbers go on above the last ones.
    for wall in (WALL_SECONDS_MAX + 1, YEAR_9999, 1e30, float("inf"), float("nan")):
        with pytest.raises(ConfigurationError, match=WRONG) as caught:
            valid_wall(wall)
        assert "\n" not in str(caught.value)


def test_numbers_continue_when_the_clock_is_right_again() -> None:
    wall, saved = [YEAR_9999], list[int]()
    with pytest.raises(ConfigurationError, match=WRONG):
        Numbers(0, lambda: wall[0], Random(1), saved.append)
    assert not saved
    wall[0] = time.time()
    numbers = Numbers(0, lambda: wall[0], Random(1), saved.append)
    first = numbers.take()
    wall[0] = YEAR_9999
    with pytest.raises(ConfigurationError, match=WRONG):
        numbers.reopen()
    assert len(saved) == 1
    assert numbers.take() == first + 1  # Those under the milliseconds that are durable need no clock.
    wall[0] = time.time()
    numbers.reopen()
    assert numbers.take() > first + 1


def test_a_client_writes_nothing_and_opens_once_the_clock_is_right(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=WRONG):
        Client("c", directory=tmp_path / "c", clock=Wall(YEAR_9999))
    assert not (tmp_path / "c").exists()
    Client("c", directory=tmp_path / "c").close()


@pytest.mark.parametrize(
    "make",
    [
        lambda place: ProxyProcess(
            ProxySettings(id="p", bind="tcp://127.0.0.1:0", directory=place), clock=Wall(YEAR_9999)
        ),
        lambda place: ServerProcess(
            ServerSettings(id="s", proxies=("tcp://127.0.0.1:9",), directory=place), clock=Wall(YEAR_9999)
        ),
    ],
    ids=["proxy", "server"],
)
def test_a_process_with_a_wrong_clock_does_not_start(
    make: Callable[[Path], ProxyProcess | ServerProcess], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=WRONG):
        make(tmp_path / "place").start()


@pytest.mark.parametrize(
    "run",
    [
        lambda place: run_proxy(ProxySettings(id="p", bind="tcp://127.0.0.1:0", directory=place)),
        lambda place: run_server(ServerSettings(id="s", proxies=("tcp://127.0.0.1:9",), directory=place)),
    ],
    ids=["proxy", "server"],
)
def test_a_command_with_a_wrong_clock_writes_nothing(
    run: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: YEAR_9999)
    with pytest.raises(ConfigurationError, match=WRONG):
        run(tmp_path / "place")
    assert not (tmp_path / "place").exists()


PLACES = {
    "queue": ("queue", "--kind", "paranoid", "--frontend", "FREE", "--backend", "FREE"),
    "broker": ("broker", "--bind", "FREE"),
    "titanic": ("titanic", "--broker", "FREE", "--dir", "DIR/titanic"),
    "pair": ("pair", "--primary", "--bind", "FREE", "--state", "FREE", "--peer", "FREE"),
    "freelance": ("serve", "--kind", "freelance3", "--bind", "FREE"),
    "lazy": ("serve", "--bind", "FREE"),
    "worker": ("work", "shout", "--broker", "FREE"),
    "call": ("call", "shout", "x", "--broker", "FREE"),
    "list": ("list", "--broker", "FREE"),
}


def words(pattern: tuple[str, ...], place: Path) -> list[str]:
    """A command line with free ports, and its files below `place`."""
    made = [f"tcp://127.0.0.1:{free_port()}" if word == "FREE" else word for word in pattern]
    return [word.replace("DIR", str(place)) for word in made]


@pytest.mark.parametrize("name", PLACES)
def test_a_service_with_a_wrong_clock_does_not_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: YEAR_9999)
    monkeypatch.setattr(signal, "signal", lambda number, handler: handler)
    monkeypatch.chdir(tmp_path)
    assert main(["service", *words(PLACES[name], tmp_path)]) == 8
    complained = capsys.readouterr().err
    assert WRONG in complained
    assert complained.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_service_with_keys_writes_no_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pair = new_pair()
    for name, text in (("key", format_secret(pair.secret)), ("authorized", "")):
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setattr(time, "time", lambda: YEAR_9999)
    before = sorted(tmp_path.rglob("*"))
    keys = ["--key", "key", "--authorized", "authorized", "--audit-file", "audit"]
    assert main(["service", *words(PLACES["broker"], tmp_path), *keys]) == 8
    assert sorted(tmp_path.rglob("*")) == before


def test_a_service_continues_once_the_clock_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Running() as running:
        at = f"tcp://127.0.0.1:{free_port()}"
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: YEAR_9999)
            with pytest.raises(ConfigurationError, match=WRONG):
                Worker("shout", bind=at, handler=echo).run()
        running.worker(Worker("shout", bind=at, handler=echo))
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: YEAR_9999)
            with pytest.raises(ConfigurationError, match=WRONG):
                ServiceClient(at, kind="lazy").call("", b"x")
        with ServiceClient(at, kind="lazy") as client:
            assert client.call("", b"x", timeout=60).body == b"x"


def test_a_gateway_with_a_wrong_clock_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: YEAR_9999)
    port = free_port()
    given = ["--bind", f"127.0.0.1:{port}", "--dir", str(tmp_path / "data"), "--proxy", "tcp://127.0.0.1:9"]
    assert main(["gateway", "start", *given]) == 8
    assert WRONG in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_a_member_with_a_wrong_clock_is_not_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: YEAR_9999)
        with pytest.raises(ConfigurationError, match=WRONG):
            promote(ServerSettings(id="s", proxies=("tcp://127.0.0.1:9",), directory=tmp_path / "s"), agreed)
    with pytest.raises(ConfigurationError, match="is not the directory of a member"):
        promote(ServerSettings(id="s", proxies=("tcp://127.0.0.1:9",), directory=tmp_path / "s"), agreed)
    assert not (tmp_path / "s").exists()


def agreed(members: tuple[str, ...]) -> None:
    """The operator agrees."""


def test_a_cluster_continues_in_its_directories_once_the_clock_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded(tmp_path) as cluster, cluster.client("c") as client:
        client.subscribe("t")
        client.put("t", b"before")
    threads = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: YEAR_9999)
        with pytest.raises(ConfigurationError, match=WRONG):
            embedded(tmp_path)
    assert threading.active_count() <= threads
    with embedded(tmp_path) as cluster, cluster.client("c") as client:
        client.put("t", b"after")
        messages = [client.get("t", timeout=30), client.get("t", timeout=30)]
        assert [message.body for message in messages if message is not None] == [b"before", b"after"]
        assert all(abs(message.stamp / 1e6 - time.time()) < 3600 for message in messages if message is not None)
