"""`ReliableHttp`, which blocks: threads, Ctrl-C, forks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pubsub.errors import AfterFork, CallerError, StoreInUse
from pubsub.http import Receiver, ReliableHttp
from pubsub.http.errors import RequestKept
from tests.http.rig import QUICK, counting, effects, serving
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Receiver, str]]:
    """A receiver that counts, on a thread of its own, and its URL."""
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))
    found: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def main() -> None:
        async with serving(receiver) as url:
            found.append(url)
            ready.set()
            await asyncio.get_running_loop().run_in_executor(None, stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(120.0)
    yield receiver, found[0]
    stop.set()
    thread.join()


def test_many_threads_share_one_sender(tmp_path: Path, served: tuple[Receiver, str]) -> None:
    receiver, url = served
    with ReliableHttp(tmp_path / "sender", settings=QUICK) as http, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: http.put(f"{url}/put", str(number).encode()).json()["count"], range(24)))
        assert sorted(answers) == list(range(1, 25))
        http.send(f"{url}/message", b"m")
        local = f"http://127.0.0.1:{free_port()}/r"
        assert http.perform_job(f"{url}/job", local, b"j").json()["count"] == 26
        assert http.requests() == []
        assert http.resume() == []
        with pytest.raises(StoreInUse):
            ReliableHttp(tmp_path / "sender")
    assert len(effects(receiver)) == 26
    http.close()
    with pytest.raises(CallerError, match="closed"):
        http.put(url, b"")


def test_an_unsettled_request_is_kept_and_continued_later(tmp_path: Path, served: tuple[Receiver, str]) -> None:
    port = free_port()
    with ReliableHttp(tmp_path / "sender", settings=QUICK) as http:
        with pytest.raises(RequestKept):
            http.put(f"http://127.0.0.1:{port}/put", b"x", timeout=0.2)
        (kept,) = http.requests()
        assert http.forget(kept.id)
        assert http.requests() == []


PROGRAM = """
import sys
from pubsub.http import ReliableHttp
directory, url = sys.argv[1:]
http = ReliableHttp(directory)
print("begins", flush=True)
with http:
    http.put(url, b"x")
"""


def test_ctrl_c_keeps_the_request_and_reports_that(tmp_path: Path, served: tuple[Receiver, str]) -> None:
    url = f"http://127.0.0.1:{free_port()}/put"
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "sender", url],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "begins\n"
    time.sleep(1.0)  # Whenever it strikes, before the commit or behind it, is right.
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=120.0)
    assert "KeyboardInterrupt" in errors
    listed = subprocess.run(
        [sys.executable, "-m", "pubsub", "http", "list", "--json", "--dir", tmp_path / "sender"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (kept,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert f"is kept as {kept['id']}" in errors
    assert f"pubsub http forget {kept['id']}" in errors
    assert kept["state"] == "open"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_moment_of_a_call_leaves_the_sender_usable(
    tmp_path: Path, served: tuple[Receiver, str]
) -> None:
    receiver, url = served

    class Struck(BaseException):
        pass

    def strike(number: int, frame: object) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    asked = struck = 0
    try:
        with ReliableHttp(tmp_path / "sender", settings=QUICK) as http:
            for number in range(60):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 * (number % 30 + 1))
                    asked += 1
                    http.put(f"{url}/put", str(number).encode(), key=f"k{number}")
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Struck:
                    struck += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number in range(60):
                http.put(f"{url}/put", str(number).encode(), key=f"k{number}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck > 5
    assert sorted(effects(receiver)) == sorted(str(number).encode() for number in range(60))


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    with ReliableHttp(tmp_path / "sender", settings=QUICK) as http:
        child = os.fork()
        if not child:
            try:
                http.put("http://127.0.0.1:9/", b"")
            except AfterFork:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert http.requests() == []
