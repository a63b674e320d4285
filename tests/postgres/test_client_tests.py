"""Tests of the client that run again with each client's state in PostgreSQL: forty by day, the others by night.

A test here is the same function as in `tests/client`. Its clients get a database by the embedded cluster, or by the
variable PUBSUB_CLIENT_DATABASE.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from pubsub import embedded
from pubsub.client import Client
from pubsub.embedded import Embedded
from tests.client.opened import names
from tests.postgres.client_tests import DAY, ELSEWHERE, MODULES
from tests.postgres.server import Postgres

FIXTURES = {"client", "cluster", "topic", "nowhere", "tmp_path", "monkeypatch", "caplog", "capsys"}


@pytest.fixture(scope="module")
def shared_database(postgres: Postgres) -> Iterator[str]:
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(autouse=True)
def by_variable(monkeypatch: pytest.MonkeyPatch, shared_database: str) -> None:
    """Give a database to every client that names none."""
    monkeypatch.setenv("PUBSUB_CLIENT_DATABASE", shared_database)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, shared_database: str) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running, pytest.MonkeyPatch.context() as patch:
        original = running._options

        def options(name: str, given: dict[str, Any]) -> dict[str, Any]:
            return original(name, {"database": shared_database} | given)

        patch.setattr(running, "_options", options)
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic{next(names)}"


@pytest.fixture
def client(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"client{next(names)}") as opened:
        yield opened


@pytest.fixture
def nowhere() -> str:
    """An address without a process behind it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{sock.getsockname()[1]}"


def test_each_named_test_exists() -> None:
    functions = {(module, name) for module, name, _ in _functions()}
    assert not {*DAY, *ELSEWHERE} - functions
    assert not set(DAY) & set(ELSEWHERE)


def _functions() -> Iterator[tuple[str, str, Callable[..., object]]]:
    for module in MODULES:
        for name, function in vars(import_module(f"tests.client.{module}")).items():
            if name.startswith("test_") and callable(function):
                yield module, name, function


def _collect() -> None:
    for module, name, function in _functions():
        wanted = set(inspect.signature(function).parameters)
        parametrized = {one for mark in getattr(function, "pytestmark", ()) for one in _named_by(mark)}
        if (module, name) in ELSEWHERE or not wanted - parametrized <= FIXTURES:
            continue
        if not wanted & {"client", "cluster"}:
            continue
        by_day = (module, name) in DAY
        globals()[f"{name}__of_{module}"] = function if by_day else _nightly(function)


def _named_by(mark: pytest.Mark) -> list[str]:
    """Return the arguments that `parametrize` gives."""
    if mark.name != "parametrize":
        return []
    given = mark.args[0]
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _nightly(function: Callable[..., object]) -> Callable[..., object]:
    import functools

    @functools.wraps(function)
    def again(*values: object, **named: object) -> object:
        return function(*values, **named)

    return pytest.mark.nightly(again)


_collect()
