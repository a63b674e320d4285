"""Invalid connections: half open, not ZeroMQ, too many, many identities."""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import zmq

from pubsub.protocol import messages as m
from tests.faults.cluster import Cluster, Process, until
from tests.faults.hostile import GREETING, KEYS, MIB, PORTS, Growth, Peer, Town, framed, raw, with_keys

pytestmark = pytest.mark.faults

HALF_OPEN = 10_000
KEYED_HALF_OPEN = 3_000
"""The same with keys, each time; the larger number runs by night."""

SPARE_FILES = 1_000
"""What a process has open besides."""

HALF_OPEN_BYTES = 8 * 1024
"""What one of them may cost the process that accepted it."""

FILES = 150
"""Files that a process may have open where it is tested what happens when they run out."""

IDENTITIES = 2_000
KEYED_IDENTITIES = 500
"""The same where each handshake is by a key, which costs the test as much as the process."""

IDENTITY_BYTES = 32 * 1024
"""What one that has shaken hands may cost."""


@pytest.fixture(scope="module", params=KEYS, ids=with_keys)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory, keys=request.param) as cluster:
        town = Town(cluster)
        yield town
        town.well.stop()


def half_open(most: int) -> dict[str, int]:
    """How many connections go to each port: at most this number, or fewer where the machine's limit is lower.

    The proxy has two of the ports in one process.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = most * 3 if hard == resource.RLIM_INFINITY else hard - SPARE_FILES
    clients = min(most, room // 2)
    return {"clients": clients, "servers": min(most, room - clients), "other servers": min(most, room)}


def test_thousands_of_half_open_connections_to_each_port_are_dropped(town: Town) -> None:
    growth = Growth(town.everyone)
    before = {name: town.counters(name) for name in ("-", town.owner)}
    wanted = half_open(HALF_OPEN if town.cluster.keys is None else KEYED_HALF_OPEN)
    helpers = []
    for port, count in wanted.items():
        beginnings = [b"", GREETING[:16], *([town.hello(port)] if town.cluster.keys is not None else [GREETING])]
        process = town.cluster.process(port.replace(" ", "-"), "-m", "tests.faults.half_open")
        helpers.append(process.start(town.endpoint(port), str(count), *[one.hex() for one in beginnings]))
    for process, count in zip(helpers, wanted.values(), strict=True):
        assert process.wait_line("open") == f"open {count}"
    town.unharmed()
    for process, count in zip(helpers, wanted.values(), strict=True):
        assert process.wait_line("dropped") == f"dropped {count}"
    town.unharmed()
    growth.within(64 * MIB + HALF_OPEN_BYTES * (wanted["clients"] + wanted["servers"]))
    ended = {"-": wanted["clients"] + wanted["servers"], town.owner: wanted["other servers"]}
    for name, count in ended.items():
        town.counted(name, "connections_accepted", before[name], count)
        town.counted(name, "connections_ended", before[name], count)
    for process in helpers:
        process.end()


def test_bytes_other_than_present_zeromq_are_dropped_and_counted(town: Town) -> None:
    chance = random.Random(7)
    greeting = GREETING
    large = (2**63 - 1).to_bytes(8, "big")
    kinds = {  # What is sent, and whether hands were shaken before.
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n": False,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(600): False,
        b"\1\0" * 2_000: False,
        bytes(5_000): False,
        b"\xff" * 5_000: False,
        b"\xff" + large + b"x" * 1_000: False,
        greeting + chance.randbytes(3_000): False,
        greeting.replace(b"NULL", b"CURV") + b"x" * 100: False,
        greeting + b"\6" + large + b"x" * 1_000: False,
        b"\2" + large + b"x" * 1_000: True,
        b"\2" + (64 * MIB).to_bytes(8, "big") + b"x" * 1_000: True,
    }
    growth = Growth(town.everyone)
    for port in PORTS:
        name = town.behind(port)
        before = town.counters(name)
        if town.cluster.keys is not None:
            kinds = beginnings(town.hello(port), kinds)
        for data, ready in kinds.items():
            with raw(town.endpoint(port), ready=ready) as eve, contextlib.suppress(ConnectionError):
                eve.settimeout(60)
                eve.sendall(data)
                while eve.recv(65_536):
                    continue
        town.counted(name, "connections_accepted", before, len(kinds))
        town.counted(name, "connections_ended", before, len(kinds))
    town.unharmed()
    growth.within(64 * MIB)


def beginnings(hello: bytes, kinds: Iterable[bytes]) -> dict[bytes, bool]:
    """What is sent where keys are asked for: nobody shakes hands without one, and a handshake may go wrong."""
    chance, large = random.Random(7), (2**63 - 1).to_bytes(8, "big")
    greeted, said = hello[: len(GREETING)], hello[len(GREETING) :]
    bad = (
        said[:-1] + b"x",
        said + said,
        said + b"\4\xff" + b"\x08INITIATE" + chance.randbytes(246),
        said + b"\6" + large + b"\x08INITIATE" + b"x" * 1_000,
        said + b"\0\5xxxxx",
        b"\4\xc8\5HELLO" + bytes(194),
        b"\0\1x",
        chance.randbytes(3_000),
        b"\2" + (64 * MIB).to_bytes(8, "big") + b"x" * 1_000,
    )
    words = [*kinds, *[greeted + one for one in bad], GREETING + b"\4\x1c\5READY\x0bSocket-Type\0\0\0\6DEALER"]
    return dict.fromkeys(words, False)


@pytest.mark.parametrize("port", PORTS)
def test_a_peer_that_opens_many_identities_costs_little_for_each(town: Town, port: str) -> None:
    growth, before = Growth(town.everyone), town.counters(town.behind(port))
    head = framed(m.Heartbeat("eve") if port == "servers" else m.Subscribe("eve", "kept", 0, 0))[0]
    origin = [b""] * (port == "servers")
    frames = b"\1\0" * len(origin) + b"\0" + bytes([len(head)]) + head
    curve = town.curve(port)
    count = IDENTITIES if curve is None else KEYED_IDENTITIES
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        context.max_sockets = KEYED_IDENTITIES + 10
        for _ in range(count):
            if curve is None:
                stack.enter_context(raw(town.endpoint(port), ready=True)).sendall(frames)
            else:
                stack.enter_context(Peer(town.endpoint(port), curve=curve, context=context)).send([*origin, head])
        town.counted(town.behind(port), "connections_established", before, count)
        town.unharmed()
    town.counted(town.behind(port), "connections_ended", before, count)
    growth.within(64 * MIB + IDENTITY_BYTES * count)


@pytest.mark.parametrize("keys", KEYS, ids=with_keys)
def test_connected_peers_are_served_when_files_run_out_and_others_later(tmp_path: Path, keys: bool) -> None:
    with Cluster(tmp_path, keys=keys) as cluster:
        town = Town(cluster)
        for process in town.everyone:
            resource.prlimit(process.running.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        with contextlib.ExitStack() as stack:
            for port in PORTS:
                for _ in range(2 * FILES):
                    stack.enter_context(raw(town.endpoint(port)))
            for process in (town.process("-"), town.process(town.owner)):
                until(lambda process=process: open_files(process) == FILES, "files have run out")
            town.unharmed()
        with cluster.client("late") as late:
            late.put("kept2", b"x")
        town.unharmed()
        town.well.stop()


def open_files(process: Process) -> int:
    return len(list(Path(f"/proc/{process.running.pid}/fd").iterdir()))
