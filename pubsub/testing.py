"""A pytest plugin: the fixture `pubsub_cluster`, a proxy and a server on threads, for tests of your programs.

    def test_orders(pubsub_cluster):
        with pubsub_cluster.client("billing") as client:
            client.subscribe("orders")

It is registered by installing the package, so importing it costs nothing; what it needs is imported by its first use.
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
    """A proxy and a server for one test, with an empty disk; `.client(name)` connects to it."""
    from pubsub.embedded import embedded  # noqa: PLC0415  only where the fixture is used

    with embedded(tmp_path / "pubsub") as cluster:
        yield cluster
