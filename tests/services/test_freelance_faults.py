"""Freelance servers are killed and stopped at seeded moments under traffic.

While one of them is left every call is answered, with its own reply, in bounded time.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from pubsub.services.client import ServiceClient
from tests.faults.cluster import Process
from tests.services.callers import Caller, all_answered, strike
from tests.services.running import Town, address

pytestmark = pytest.mark.faults

SERVERS, CALLERS, STRIKES = 3, 3, 6
TIMEOUT, TRIES = 2.0, 3


def server(town: Town, name: str, bind: str, kind: str) -> Process:
    facts = {"name": name, "bind": bind, "kind": kind}
    process = Process(name, town.directory, ["-m", "tests.services.naming_server", json.dumps(facts)])
    town.processes.append(process)
    return process.start()


@pytest.mark.parametrize("kind", ["freelance1", "freelance2", "freelance3"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_random_faults_under_traffic_lose_no_call(kind: str, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    addresses = [address() for _ in range(SERVERS)]
    with Town(tmp_path) as town:
        servers = [server(town, f"s{number}", bind, kind) for number, bind in enumerate(addresses)]
        for process in servers:
            process.wait_line("server")
        callers = [
            Caller(addresses, kind, number, TIMEOUT, TRIES, TIMEOUT * TRIES).start() for number in range(CALLERS)
        ]
        all_answered(callers, 5)
        for _ in range(STRIKES):
            struck = chance.choice(servers)
            strike(chance, struck, callers, [1, 5, 40])
            struck.wait_line("server")
        all_answered(callers, 20)
        for caller in callers:
            caller.end()
        assert [caller.flaws for caller in callers] == [[]] * CALLERS
        assert [caller.given_up for caller in callers] == [0] * CALLERS
        assert len({answer.name for caller in callers for answer in caller.answers}) > 1, "others took over"


def test_a_lost_server_costs_model_2_no_time_and_model_3_one_timeout(tmp_path: Path) -> None:
    for kind in ("freelance2", "freelance3"):
        addresses = [address(), address()]
        with Town(tmp_path) as town:
            first, second = (server(town, f"{kind}-{number}", bind, kind) for number, bind in enumerate(addresses))
            for process in (first, second):
                process.wait_line("server")
            with ServiceClient(addresses, kind=kind, timeout=4.0, tries=2) as client:
                client.call("", b"before")
                first.kill()
                for number in range(20):
                    assert client.call("", b"%d" % number).body.startswith(second.name.encode() + b" ")
