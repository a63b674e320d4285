"""`pubsub service pair` and the kinds of `serve` and `call` that speak to several servers, as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.running import Town, address
from tests.services.test_commands import pubsub

pytestmark = pytest.mark.slow

PAIR = ("pair", "--primary", "--bind", "tcp://127.0.0.1:1", "--state", "tcp://127.0.0.1:2", "--peer")


def test_a_pair_serves_and_fails_over_and_reports_so(tmp_path: Path) -> None:
    fronts, states = [address(), address()], [address(), address()]
    with Town(tmp_path) as town:
        servers = [
            town.service(
                role,
                *("pair", f"--{role}", "--bind", fronts[place], "--state", states[place]),
                *("--peer", states[1 - place], "--", "tr", "a-z", "A-Z"),
            )
            for place, role in enumerate(("primary", "backup"))
        ]
        assert servers[0].wait_line("primary") == f"primary service ready: {fronts[0]}"
        assert servers[1].wait_line("backup") == f"backup service ready: {fronts[1]}"
        call = ("call", "any", "hello", "--kind", "star", "--broker", fronts[0], "--broker", fronts[1], "--tries", "9")
        done = pubsub(*call)
        assert (done.returncode, done.stdout) == (0, b"HELLO")
        servers[0].kill()
        done = pubsub(*call)
        assert (done.returncode, done.stdout) == (0, b"HELLO")
        said = servers[1].errors.read_text()
        assert "the backup is now: active (a client asked, and the other is silent)" in said
        assert "Traceback" not in said


@pytest.mark.parametrize("kind", ["freelance1", "freelance2", "freelance3"])
def test_freelance_servers_are_served_and_called(kind: str, tmp_path: Path) -> None:
    at, nobody = address(), address()
    with Town(tmp_path) as town:
        server = town.service("server", "serve", "--kind", kind, "--bind", at)
        assert server.wait_line("server") == f"server service ready: {at}"
        done = pubsub("call", "any", "hello", "--kind", kind, "--broker", nobody, "--broker", at)
        assert (done.returncode, done.stdout) == (0, b"hello")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (PAIR[:-1], 2, b"--peer"),
        ((*PAIR, "tcp://127.0.0.1:2"), 8, b"name the address of the other server"),
        ((*PAIR, "nowhere"), 8, b"--peer"),
        ((*PAIR, "tcp://127.0.0.1:3", "--kind", "nothing"), 2, b"nothing"),
        ((*PAIR, "tcp://127.0.0.1:3", "--kind", "paranoid"), 2, b"--backend"),
        ((*PAIR, "tcp://127.0.0.1:3", "--backend", "tcp://127.0.0.1:4"), 2, b"--backend"),
        ((*PAIR, "tcp://127.0.0.1:3", "--kind", "mdp", "--", "cat"), 2, b"COMMAND"),
        ((*PAIR, "tcp://127.0.0.1:3", "--audit-file", "x"), 2, b"--audit-file"),
        ((*PAIR, "tcp://127.0.0.1:3", "--heartbeat", "0.1"), 2, b"--heartbeat"),
        (("pair", "--bind", "tcp://127.0.0.1:1", "--state", "x", "--peer", "y"), 2, b"--primary"),
        (("serve", "--kind", "freelance3", "--bind", "tcp://127.0.0.1:1", "--advertise", "x"), 8, b"advertised"),
    ],
)
def test_mistakes_are_one_line_and_a_code(words: tuple[str, ...], code: int, part: bytes) -> None:
    done = pubsub(*words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert part in done.stderr
    assert b"Traceback" not in done.stderr
