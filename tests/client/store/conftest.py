"""Offer both kinds of stores to each test of the interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.store.stores import Database, Files, Place
from tests.postgres.fixtures import leave_out
from tests.postgres.programs import missing


@pytest.fixture(scope="session")
def shared_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """One database for all tests here: each uses clients of its own."""
    if reason := missing():
        leave_out(reason)
    postgres = request.getfixturevalue("postgres")
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for the state of clients."""
    return Files(tmp_path) if request.param == "file" else Database(request.getfixturevalue("shared_database"))
