"""The fixtures of a real PostgreSQL: one server for a run of the tests, a database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.postgres.programs import REQUIRED, missing, program

if TYPE_CHECKING:
    from tests.postgres.bouncer import PgBouncer
    from tests.postgres.server import Postgres


left_out: dict[str, int] = {}
"""Reasons for which tests of this run were left out, and how many for each."""


def leave_out(reason: str) -> None:
    """Leave a test out for a reason; where it must run, let it fail for this reason."""
    if REQUIRED:
        pytest.fail(f"this test must run here: {reason}", pytrace=False)
    left_out[reason] = left_out.get(reason, 0) + 1
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL, which runs for this whole run of the tests. A test that stops it makes one of its own."""
    if reason := missing():
        leave_out(reason)
    from tests.postgres.server import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A real PostgreSQL of one test, which may stop, kill and restart it."""
    if reason := missing():
        leave_out(reason)
    from tests.postgres.server import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """An empty database of one test, by its URL."""
    name = postgres.create_database()
    try:
        yield postgres.url(name)
    finally:
        postgres.drop_database(name)


@pytest.fixture
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode before the `postgres` of this run."""
    if program("pgbouncer") is None:
        leave_out("PgBouncer is not installed; on Debian: apt-get install pgbouncer")
    from tests.postgres.bouncer import PgBouncer

    with PgBouncer(postgres) as pooler:
        yield pooler
