"""Commands on a cluster with keys, and their fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from pubsub.cli import main
from tests.cli.test_cluster import up

Command = Callable[..., tuple[int, str, str]]
numbers = count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("keyed")
    with up(place, "--servers", "1", "--keys"):
        yield place


@pytest.fixture
def topic() -> str:
    return f"topic{next(numbers)}"


@pytest.fixture
def command(directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("PUBSUB_PROXIES_FILE", str(directory / "proxies"))
    monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", str(directory / "client.key"))
    monkeypatch.setenv("XDG_DATA_HOME", str(directory / "data"))  # State directories of clients.

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def done(said: tuple[int, str, str]) -> str:
    assert said[0] == 0, said[2]
    return said[1]


def failed(said: tuple[int, str, str]) -> tuple[int, str]:
    assert said[0] != 0
    assert said[2].count("\n") == 1, said[2]
    return said[0], said[2]
