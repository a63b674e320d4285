"""Handlers that hang: a command is killed, a coroutine cancelled, and the process of a function ends.

The rule is docs/explanation/services-engine.md, E9.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import CallerError
from pubsub.services.client import ServiceClient
from pubsub.services.command import CommandFailed, command_handler
from pubsub.services.core.majordomo.broker import PORT, Broker
from pubsub.services.engine import Engine
from pubsub.services.errors import HandlerOverran
from pubsub.services.handlers import Request
from pubsub.services.majordomo.commands import broker_ports
from pubsub.services.majordomo.listing import ask, rows
from pubsub.services.worker import Worker
from tests.faults.cluster import ROOT, until
from tests.services.running import Running

SECONDS = 0.3
FOREVER = "1000"


def run(script: str, seconds: float | None = SECONDS) -> bytes:
    return command_handler(["sh", "-c", script], seconds)(Request((b"hello",), "", lambda frames: None))


def ended(process: int) -> bool:
    """Whether a process is gone, or waits for its parent to hear of its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    "script",
    [
        "sleep {forever} & echo $! >{pid}; sleep {forever}",
        "sleep {forever} & echo $! >{pid}",  # It has ended, and one of its children holds its output.
        "exec >&-; sleep {forever} & echo $! >{pid}; sleep {forever}",
        "trap '' TERM INT HUP; sleep {forever} & echo $! >{pid}; while true; do wait; sleep 0.1; done",
    ],
)
def test_a_hanging_command_is_killed_with_its_children(tmp_path: Path, script: str) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(CommandFailed, match=r"sh: it ran for longer than 0\.3 s and was killed"):
        run(script.format(forever=FOREVER, pid=pid))
    child = int(pid.read_text())
    until(lambda: ended(child), "its child is gone")


def test_a_command_that_ends_in_time_is_as_without_a_timeout() -> None:
    assert run("cat", 60.0) == b"hello"
    with pytest.raises(CommandFailed, match="exit code 3"):
        run("exit 3", 60.0)


def test_a_worker_goes_on_after_a_command_that_was_killed() -> None:
    script = 'read -r word; test "$word" = hang && sleep 1000; echo "$word"'
    handler = command_handler(["sh", "-c", script], SECONDS)
    with Running() as running:
        core = Broker()
        broker = running.engine(Engine(core, broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]
        worker = Worker("sh", broker=broker, handler=handler)
        running.worker(worker)
        with ServiceClient(broker, timeout=30.0, tries=1) as client:
            hung = client.submit("sh", b"hang\n")
            until(lambda: worker._core.counters["failed"], "the command is killed")
            hung.cancel()
            assert client.call("sh", b"go\n").body == b"go\n"


def test_a_coroutine_is_cancelled_and_the_next_request_answered(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = []

    async def handle(request: Request) -> bytes:
        if request.body == b"hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.body)
                raise
        if request.body == b"its own":
            raise TimeoutError("its own")
        return request.body

    async def main() -> None:
        worker = Worker("slow", bind="tcp://127.0.0.1:0", handler=handle, handler_timeout=SECONDS)
        opened = asyncio.Event()
        task = asyncio.create_task(worker.serve(opened.set))
        await asyncio.wait_for(opened.wait(), 30.0)
        with ServiceClient(worker.address, kind="lazy", timeout=30.0, tries=1) as client:
            hung, own = client.submit("", b"hang"), client.submit("", b"its own")
            assert (await asyncio.wrap_future(client.submit("", b"a"))).body == b"a"
            hung.cancel()
            own.cancel()
        worker.stop()
        await asyncio.wait_for(task, 30.0)

    asyncio.run(main())
    assert cancelled == [b"hang"]
    assert "the handler of slow has run for longer than 0.3 s" in caplog.text
    assert "TimeoutError('its own')" in caplog.text


WORKER = """
import asyncio, sys, threading
from pubsub import Worker

def handle(request):
    print("begun", flush=True)
    threading.Event().wait()

async def stubborn(request):
    print("begun", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

from pubsub.services import worker
worker.CANCEL_SECONDS = 0.2
how, broker = sys.argv[1:]
handler = stubborn if how == "stubborn" else handle
worker = Worker("slow", broker=broker, handler=handler, handler_timeout=0.3)
worker.run() if how == "run" else asyncio.run(worker.serve())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "serve", "stubborn"])
def test_a_hanging_function_ends_its_process_and_another_worker_gets_the_next_try(how: str) -> None:
    with Running() as running:
        core = Broker()
        broker = running.engine(Engine(core, broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]
        words = [sys.executable, "-c", WORKER, how, broker]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=os.environ.copy())
        try:
            until(lambda: core.services, "it is registered")
            with ServiceClient(broker, timeout=3.0, tries=5) as client:
                future = client.submit("slow", b"x")
                said, errors = child.communicate(timeout=60.0)
                assert (child.returncode, said) == (HandlerOverran.exit_code, b"begun\n")
                assert (
                    b"the handler of slow has run for longer than 0.3 s; this worker ends with exit code 35" in errors
                )
                until(lambda: core.counters["requests_given_up"] == 1, "its request is given up")
                assert not core.workers
                running.worker(Worker("slow", broker=broker, handler=lambda request: b"by another one"))
                assert future.result(60.0).body == b"by another one"
        finally:
            child.kill()
            child.wait()


def test_the_list_shows_a_hanging_handler_and_the_given_up_requests() -> None:
    go = threading.Event()

    def hang(request: Request) -> bytes:
        assert go.wait(60.0)
        return b""

    with Running() as running:
        core = Broker()
        broker = running.engine(Engine(core, broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]
        worker = Worker("slow", broker=broker, handler=hang)
        running.worker(worker)
        try:
            with ServiceClient(broker, timeout=30.0, tries=1) as client:
                client.submit("slow", b"x")
                until(lambda: ask(client)["services"][0]["longest_seconds"] >= 0.2, "it hangs for a while")
                running.worker(Worker("slow", broker=broker))
                worker._engine.submit(worker._core.leave)
                until(lambda: ask(client)["services"][0]["given_up"] == 1, "it left with its request")
                report: dict[str, Any] = ask(client)
                assert rows(report) == [["slow", "1", "1", "0", "0.0", "0", "1", ""]]
        finally:
            go.set()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_invalid_timeout_is_refused(seconds: float) -> None:
    with pytest.raises(CallerError, match="handler_timeout"):
        Worker("echo", bind="tcp://127.0.0.1:0", handler_timeout=seconds)


def test_a_worker_with_a_quick_handler_runs_longer_than_its_timeout() -> None:
    with Running() as running:
        server = Worker(bind="tcp://127.0.0.1:0", handler_timeout=SECONDS)
        running.worker(server)
        began = time.monotonic()
        with ServiceClient(server.address, kind="lazy", timeout=30.0, tries=1) as client:
            until(lambda: client.call("", b"a").body == b"a" and time.monotonic() > began + 2 * SECONDS, "it goes on")
