"""Offer the pytest fixture `pubsub_cluster`: a proxy and a server on threads, for tests of an application.

    def test_orders(pubsub_cluster):
        with pubsub_cluster.client("billing") as client:
            client.subscribe("orders")

The package registers this plugin at installation. Importing the plugin is cheap: the fixture imports its dependencies
at its first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pubsub.embedded import Embedded


@pytest.fixture
def pubsub_cluster(tmp_path: Path) -> Iterator[Embedded]:
    """Start a proxy and a server for one test, with an empty directory; `.client(name)` opens a client of it."""
    from pubsub.embedded import embedded  # noqa: PLC0415  only where the fixture is used

    with embedded(tmp_path / "pubsub") as cluster:
        yield cluster
