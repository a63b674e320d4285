"""Reliable HTTP on failing disks: no unstored request is sent or done, and all continues with space."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from pubsub.errors import StorageError
from pubsub.http import AsyncReliableHttp
from pubsub.http.errors import RequestKept
from tests.faults.http_rig import ROOT
from tests.faults.http_sender import SETTINGS
from tests.http.rig import serving
from tests.ports import free_port

pytestmark = pytest.mark.faults


class Process:
    """A receiver whose files may be kept from growing."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = [sys.executable, "-m", "tests.faults.http_receiver", str(directory), str(self.port), "0.01"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def limit(self, size: int) -> None:
        """No file of it may be longer than that."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def effects(self) -> list[str]:
        """What its handlers did, once it is stopped."""
        self.process.kill()
        self.process.wait()
        with contextlib.closing(sqlite3.connect(self.directory / "http.db")) as db:
            return sorted(value for (value,) in db.execute("select value from effects"))


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "receiver")
    yield made
    made.process.kill()
    made.process.wait()


def test_a_receiver_with_a_failing_disk_refuses_and_continues_with_space(tmp_path: Path, receiver: Process) -> None:
    async def main() -> None:
        async with AsyncReliableHttp(tmp_path / "sender", settings=SETTINGS) as http:
            await http.put(f"{receiver.url}/put", b"1")
            receiver.limit((receiver.directory / "http.db-wal").stat().st_size)
            with pytest.raises(RequestKept, match="503"):
                await http.put(f"{receiver.url}/put", b"2 " + b"x" * 200_000, key="two", timeout=3.0)
            async with httpx2.AsyncClient() as client:
                headers = {"Idempotency-Key": "three"}
                told = await client.post(f"{receiver.url}/message", content=b"3 " + b"x" * 200_000, headers=headers)
                assert told.status_code == 503
                assert told.headers["retry-after"]
            receiver.limit(resource.RLIM_INFINITY)
            await http.put(f"{receiver.url}/put", b"2 " + b"x" * 200_000, key="two", timeout=120.0)
            await http.put(f"{receiver.url}/put", b"4")

    asyncio.run(main())
    assert receiver.effects() == ["1", "2", "4"]


SENDER = """
import asyncio, resource, sys
from pubsub.errors import StorageError
from pubsub.http import AsyncReliableHttp

async def main():
    directory, url = sys.argv[1:]
    async with AsyncReliableHttp(directory) as http:
        await http.put(url, b"1")
        size = __import__("os").stat(directory + "/http.db-wal").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                await http.put(url, b"2 " + b"x" * 200_000)
            except StorageError as error:
                print("refused", flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await http.put(url, b"3")
        print("done", flush=True)

asyncio.run(main())
"""


def test_a_sender_with_a_failing_disk_sends_nothing_and_continues_with_space(tmp_path: Path, receiver: Process) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SENDER, str(tmp_path / "sender"), f"{receiver.url}/put"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["refused", "refused", "refused", "done"]
    assert receiver.effects() == ["1", "3"]


def test_a_sender_that_cannot_store_an_answer_asks_again_and_gets_it_again(tmp_path: Path) -> None:
    """The answer is lost where it cannot be stored; the handler has done its work, and does it no more."""
    from tests.faults.http_receiver import make

    async def main() -> None:
        receiver = make(tmp_path / "receiver", 0.0)
        async with serving(receiver) as url, AsyncReliableHttp(tmp_path / "sender", settings=SETTINGS) as http:
            true, refused = http._sending.answered, []

            def answered(name: str, answer: object) -> object:
                if len(refused) < 3:
                    refused.append(name)
                    raise StorageError(http.journal.path, "the test's disk refuses")
                return true(name, answer)  # type: ignore[arg-type]

            http._sending.answered = answered  # type: ignore[method-assign, assignment]
            assert (await http.put(f"{url}/put", b"7", timeout=120.0)).text.startswith("7-")
            assert len(refused) == 3
            with receiver._journal.transaction() as transaction:
                assert list(transaction.execute("select value from effects")) == [("7",)]

    asyncio.run(main())
