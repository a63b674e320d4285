"""Connections that are not what they should be: half open, not ZeroMQ, too many, many identities."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster
from tests.faults.hostile import MIB, Growth, Town

pytestmark = pytest.mark.faults

HALF_OPEN = 10_000
SPARE_FILES = 1_000
"""What a process has open besides."""

HALF_OPEN_BYTES = 16 * 1024
"""What one connection may cost the process that accepted it while it is one."""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory) as cluster:
        town = Town(cluster)
        yield town
        town.well.stop()


def half_open() -> dict[str, int]:
    """How many connections go to each port: as many as HALF_OPEN, or fewer where the machine's limit is lower.

    The proxy has two of the ports in one process.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = HALF_OPEN * 3 if hard == resource.RLIM_INFINITY else hard - SPARE_FILES
    clients = min(HALF_OPEN, room // 2)
    return {"clients": clients, "servers": min(HALF_OPEN, room - clients), "other servers": min(HALF_OPEN, room)}


def test_thousands_of_half_open_connections_to_each_port_are_dropped(town: Town) -> None:
    growth = Growth(town.everyone)
    before = {name: town.counters(name) for name in ("-", town.owner)}
    wanted = half_open()
    helpers = []
    for port, count in wanted.items():
        process = town.cluster.process(port.replace(" ", "-"), "-m", "tests.faults.half_open")
        helpers.append(process.start(town.endpoint(port), str(count)))
    for process, count in zip(helpers, wanted.values(), strict=True):
        assert process.wait_line("open") == f"open {count}"
    town.unharmed()
    for process, count in zip(helpers, wanted.values(), strict=True):
        assert process.wait_line("dropped") == f"dropped {count}"
    town.unharmed()
    growth.within(64 * MIB + HALF_OPEN_BYTES * (wanted["clients"] + wanted["servers"]))
    ended = {"-": wanted["clients"] + wanted["servers"], town.owner: wanted["other servers"]}
    for name, count in ended.items():
        mark = "_" if name == "-" else " "
        town.counted(name, f"connections{mark}accepted", before[name], count)
        town.counted(name, f"connections{mark}ended", before[name], count)
    for process in helpers:
        process.end()
