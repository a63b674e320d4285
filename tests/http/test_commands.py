"""`pubsub http …` as used by a person, and the receiver that files the arriving requests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pubsub.http import Receiver
from pubsub.web.tokens import digest
from tests.faults.forkserver import run
from tests.http.rig import QUICK, serving
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
READY_SECONDS = 120.0


def pubsub(*words: Any, home: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run("http", *words, stdin=stdin, directory=home, variables={"XDG_DATA_HOME": str(home / "data")})


class Served:
    """`pubsub http serve`, running."""

    def __init__(self, home: Path, *words: str) -> None:
        self.directory = home / "receiver"
        command = [sys.executable, "-m", "pubsub", "http", "serve", "--dir", str(self.directory), *words]
        self._process = subprocess.Popen(
            command, cwd=home, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("receiving at "), self._process.communicate()
        self.url = line.split()[-1]

    def arrived(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.directory / "arrived").iterdir())]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        self._process.communicate(timeout=120.0)
        return self._process.returncode


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, "--bind", f"127.0.0.1:{free_port()}")
    yield made
    made.stop()


def test_put_send_and_job_are_filed_once_each_and_answered(tmp_path: Path, served: Served) -> None:
    (tmp_path / "file").write_bytes(b"content")
    put = pubsub("put", served.url + "/a", "file", "--key", "k1", home=tmp_path)
    assert (put.returncode, json.loads(put.stdout)) == (0, {"number": 1, "bytes": 7}), put.stderr
    again = pubsub("put", served.url + "/a", "file", "--key", "k1", "--json", home=tmp_path)
    told = json.loads(again.stdout)
    assert (told["status"], json.loads(told["body"])) == (200, {"number": 1, "bytes": 7})
    send = pubsub("send", served.url + "/b", "-", "-H", "X-Trace: 7", home=tmp_path, stdin=b"from stdin")
    assert (send.returncode, send.stdout) == (0, b"")
    local = f"http://127.0.0.1:{free_port()}/results"
    job = pubsub("job", served.url + "/c", "file", "--local", local, home=tmp_path)
    assert (job.returncode, json.loads(job.stdout)["number"]) == (0, 3), job.stderr
    assert served.arrived() == [b"content", b"from stdin", b"content"]
    assert pubsub("list", home=tmp_path).stdout == b"nothing is open\n"
    assert len(pubsub("list", "--all", "--json", home=tmp_path).stdout.splitlines()) == 3


def test_kept_requests_are_listed_resumed_and_forgotten(tmp_path: Path) -> None:
    port = free_port()
    url, out = f"http://127.0.0.1:{port}/x", ("--dir", tmp_path / "out")
    for body in (b"one", b"two"):
        kept = pubsub("put", url, "-", "--timeout", 0.3, *out, home=tmp_path, stdin=body)
        assert kept.returncode == 5
        assert b"pubsub http resume --dir" in kept.stderr
    listed = [json.loads(line) for line in pubsub("list", "--json", *out, home=tmp_path).stdout.splitlines()]
    assert [(one["state"], one["url"], one["kind"]) for one in listed] == [("open", url, "put")] * 2
    assert b"open" in pubsub("list", *out, home=tmp_path).stdout
    forgotten = pubsub("forget", listed[1]["id"], *out, home=tmp_path)
    assert forgotten.returncode == 0
    assert pubsub("forget", listed[1]["id"], *out, home=tmp_path).returncode == 13
    assert pubsub("resume", "--timeout", 0.3, *out, home=tmp_path).returncode == 5
    served = Served(tmp_path, "--bind", f"127.0.0.1:{port}")
    resumed = pubsub("resume", "--json", "--timeout", 60, *out, home=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert [json.loads(line)["state"] for line in resumed.stdout.splitlines()] == ["done"]
    assert served.arrived() == [b"one"]
    assert served.stop() == 0


def test_ctrl_c_ends_a_put_with_130_and_names_the_kept_request(tmp_path: Path) -> None:
    words = ["http", "put", f"http://127.0.0.1:{free_port()}/x", "-", "--dir", str(tmp_path / "out")]
    command = subprocess.Popen(
        [sys.executable, "-m", "pubsub", *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + READY_SECONDS
    log = tmp_path / "out" / "http.db-wal"
    while not log.exists() or b"/x" not in log.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=120.0)
    assert command.returncode == 130
    listed = json.loads(pubsub("list", "--json", "--dir", tmp_path / "out", home=tmp_path).stdout)
    assert f"is kept as {listed['id']}" in errors


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("put", "ftp://x/", "-"), 2),
        (("put", "http://127.0.0.1:9/", "no-such-file"), 2),
        (("put", "http://127.0.0.1:9/", "-", "-H", "nonsense"), 2),
        (("put", "http://127.0.0.1:9/", "-", "--token-file", "no-such-file"), 8),
        (("put", "https://127.0.0.1:9/", "-", "--ca", "no-such-file"), 8),
        (("list", "--dir", "nowhere"), 7),
        (("resume", "--dir", "nowhere"), 7),
        (("forget", "x", "--dir", "nowhere"), 7),
        (("failed", "--dir", "nowhere"), 7),
        (("retry", "x", "--dir", "nowhere"), 7),
        (("serve", "receiver", "--bind", "0.0.0.0:8099"), 8),
        (("serve", "receiver", "--bind", "nonsense"), 8),
        (("serve", "receiver", "--tokens", "no-such-file"), 8),
        (("serve", "receiver", "--bind", "127.0.0.1:0", "--tls-certificate", "no-such-file"), 8),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    ended = pubsub(*words, home=tmp_path)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.startswith(b"pubsub: error: ")
    assert ended.stderr.count(b"\n") == 1


def test_a_final_answer_has_its_own_exit_code(tmp_path: Path, served: Served) -> None:
    pubsub("put", served.url + "/a", "-", "--key", "k", home=tmp_path, stdin=b"x")
    other = pubsub("put", served.url + "/a", "-", "--key", "k", "--dir", tmp_path / "b", home=tmp_path, stdin=b"y")
    assert other.returncode == 26
    assert b"422" in other.stderr
    second = subprocess.run(
        [sys.executable, "-m", "pubsub", "http", "serve", str(served.directory), "--bind", f"127.0.0.1:{free_port()}"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert second.returncode == 9, second.stderr


@pytest.mark.parametrize("line", ["alice {token}", "alice th_{digest} put=*"])
def test_only_clients_with_a_token_are_served(tmp_path: Path, line: str) -> None:
    (tmp_path / "tokens").write_text(line.format(token="a" * 20, digest=digest("a" * 20)) + "\n")
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "token").write_text("a" * 20)
    served = Served(tmp_path, "--bind", f"127.0.0.1:{free_port()}", "--tokens", "tokens")
    assert pubsub("put", served.url, "-", home=tmp_path, stdin=b"x").returncode == 26
    assert pubsub("put", served.url, "-", "--token-file", "token", home=tmp_path, stdin=b"x").returncode == 0
    assert served.arrived() == [b"x"]
    assert served.stop(signal.SIGINT) == 0


def test_an_uncommitted_file_is_removed_and_its_number_reused(tmp_path: Path) -> None:
    port = str(free_port())
    served = Served(tmp_path, "--bind", f"127.0.0.1:{port}")
    pubsub("put", served.url, "-", home=tmp_path, stdin=b"one")
    served.stop(signal.SIGKILL)
    for name in ("00000002", "00000003.part"):  # As a process that was killed before its commit leaves them.
        (served.directory / "arrived" / name).write_bytes(b"never committed")
    served = Served(tmp_path, "--bind", f"127.0.0.1:{port}")
    assert served.arrived() == [b"one"]
    pubsub("put", served.url, "-", home=tmp_path, stdin=b"two")
    assert served.arrived() == [b"one", b"two"]
    served.stop()


def test_a_failed_request_is_shown_and_handled_after_the_next_start(tmp_path: Path) -> None:
    broken = [True]

    def receiver() -> Receiver:
        made = Receiver(tmp_path / "in", settings=replace(QUICK, handler_attempts=1))

        @made.put("/x")
        def handle(request: Any, transaction: Any) -> str:
            if broken[0]:
                raise ValueError("no stock")
            return "mended"

        return made

    async def ask() -> tuple[int, str]:
        async with serving(receiver()) as url, httpx2.AsyncClient(timeout=120.0) as client:
            deadline = time.monotonic() + 60.0
            while True:  # The next start may be handling it, of which it says 409.
                answer = await client.put(f"{url}/x", headers={"idempotency-key": '"k1"'})
                if answer.status_code != 409 or time.monotonic() > deadline:
                    return answer.status_code, answer.text
                await asyncio.sleep(0.05)

    there = ("--dir", str(tmp_path / "in"))
    assert asyncio.run(ask())[0] == 501
    (row,) = [json.loads(line) for line in pubsub("failed", "--json", *there, home=tmp_path).stdout.splitlines()]
    assert (row["key"], row["path"], row["problem"]) == ("k1", "/x", "ValueError: no stock")
    assert b"no stock" in pubsub("failed", *there, home=tmp_path).stdout
    assert pubsub("retry", "k2", *there, home=tmp_path).returncode == 13
    assert pubsub("retry", "k1", *there, home=tmp_path).returncode == 0
    assert pubsub("failed", *there, home=tmp_path).stdout == b"nothing has failed\n"
    broken[0] = False
    assert asyncio.run(ask()) == (200, "mended")


def test_a_command_without_the_extra_names_the_package_to_install(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u; true = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'httpx2' else true(name, *a)\n"
        "from pubsub.cli import main; sys.exit(main(['http', 'list']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 8
    assert "pip install '.[http]' in a clone" in ended.stderr
