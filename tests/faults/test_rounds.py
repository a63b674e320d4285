"""Some rounds of faults on a server with a standby, from a fixed seed; and their judge finds violations."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.faults.cluster import ROOT
from tests.faults.members import owner_of_port
from tests.faults.relay import DOWN, UP, Relay
from tests.faults.rounds import WEIGHTS, carry_out, waiting

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_rounds_of_faults_lose_double_and_misplace_nothing_and_leave_both_members_alike(tmp_path: Path) -> None:
    words = ["--rounds", "12", "--seed", "1", "--dir", str(tmp_path / "rounds")]
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "rounds.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads((tmp_path / "rounds" / "rounds.json").read_text())
    assert told["objections"] == []
    assert told["rounds"] == 12
    assert set(told["faults"]) == set(WEIGHTS)
    assert told["figures"]["takeovers"] >= 1
    assert told["figures"]["put"] > 100
    assert told["figures"]["delivered"] > 100
    assert told["figures"]["read"] > 100
    assert not (tmp_path / "rounds" / "run").exists()


def test_a_fault_that_waits_for_the_end_of_another_does_not_keep_that_from_ending() -> None:
    ends: list[str] = []

    def cut() -> Iterator[float]:
        yield 0.02
        ends.append("cut")

    def forget() -> Iterator[float]:
        yield 0.01
        assert (yield from waiting(lambda: bool(ends), 30.0))
        ends.append("forget")

    carry_out([forget(), cut()])
    assert ends == ["cut", "forget"]


def test_a_wait_for_an_impossible_event_ends_at_its_deadline() -> None:
    came: list[bool] = []

    def forget() -> Iterator[float]:
        came.append((yield from waiting(lambda: False, 0.1)))

    carry_out([forget()])
    assert came == [False]


def test_a_relay_cuts_off_one_process_and_no_other() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        names: dict[int, str] = {}
        port = server.getsockname()[1]
        relay = stack.enter_context(Relay(f"tcp://127.0.0.1:{port}", lambda known: names.get(known, "")))
        host, _, front = relay.endpoint.removeprefix("tcp://").partition(":")
        ends = {}
        for name in ("m1", "m2"):
            near = stack.enter_context(closing(socket.socket()))
            near.bind(("127.0.0.1", 0))
            names[near.getsockname()[1]] = name
            near.connect((host, int(front)))
            far, _ = server.accept()
            stack.enter_context(far)
            far.settimeout(5.0)
            ends[name] = near, far
        relay.apart["m1"] = {UP}
        for name in ("m1", "m2"):
            ends[name][0].sendall(b"up")
        assert ends["m2"][1].recv(2) == b"up"
        ends["m1"][1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            ends["m1"][1].recv(2)
        relay.apart["m2"] = {DOWN}
        ends["m2"][1].sendall(b"down")
        ends["m2"][0].settimeout(0.2)
        with pytest.raises(TimeoutError):
            ends["m2"][0].recv(4)


def test_the_owner_of_a_connection_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        port = near.getsockname()[1]
        assert owner_of_port(port, {os.getpid(): "this", 1: "another"}) == "this"
        assert owner_of_port(port, {1: "another"}) == ""
