"""Fixtures: a store with its connections through a relay that can cut them; test modules import them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pubsub.client.storage.postgres.store import PostgresStore
from tests.postgres.proxy import Cutting
from tests.postgres.server import Postgres
from tests.postgres.stores import name_of, opened, row


@pytest.fixture
def network(postgres: Postgres) -> Iterator[Cutting]:
    with Cutting(postgres) as relay:
        yield relay


@pytest.fixture
def store(network: Cutting, database: str) -> Iterator[PostgresStore]:
    """A store with its connections through the relay."""
    with closing(opened(network.url(name_of(database)))) as made:
        made.commit([row(1)])
        yield made
