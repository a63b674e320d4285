"""A clock that is beyond all numbers: one line, nothing written, and with the clock set all goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pubsub import Client, embedded
from pubsub.base.clock import WALL_SECONDS_MAX, sound_wall
from pubsub.client.core.numbers import Numbers
from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.proxy.process import ProxyProcess, run_proxy
from pubsub.server.process import ServerProcess, run_server

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
    assert sound_wall(WALL_SECONDS_MAX) == WALL_SECONDS_MAX
    assert time.gmtime(WALL_SECONDS_MAX)[:3] == (2089, 9, 6)
    assert sound_wall(0.0) == 0.0  # Before the first one numbers go on above the last ones.
    for wall in (WALL_SECONDS_MAX + 1, YEAR_9999, 1e30, float("inf"), float("nan")):
        with pytest.raises(ConfigurationError, match=WRONG) as caught:
            sound_wall(wall)
        assert "\n" not in str(caught.value)


def test_numbers_go_on_when_the_clock_is_right_again() -> None:
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
def test_a_process_does_not_start(make: Callable[[Path], ProxyProcess | ServerProcess], tmp_path: Path) -> None:
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
def test_a_command_writes_nothing(run: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: YEAR_9999)
    with pytest.raises(ConfigurationError, match=WRONG):
        run(tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_a_cluster_goes_on_in_its_directories_once_the_clock_is_right(
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
