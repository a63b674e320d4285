"""Offer a service with one group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.groups.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, parts=3)
    yield made
    made.close()
