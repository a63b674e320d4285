"""A close, a cancellation or a failed start during a wait: no caller waits permanently, nothing stays open."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pubsub.errors import CallerError, ConfigurationError, TooLarge
from pubsub.http import Answer, AsyncReliableHttp, HttpSettings, Receiver, ReliableHttp
from pubsub.http.core.outgoing import Kind
from pubsub.http.delivery import Delivery
from pubsub.http.sending import Draft
from pubsub.http.serving import listen, make_server
from tests.http.rig import PATIENCE_SECONDS, QUICK, until
from tests.ports import free_port


def test_a_waiting_thread_gets_an_error_when_another_closes(tmp_path: Path) -> None:
    http, told = ReliableHttp(tmp_path, settings=QUICK), []

    def put() -> None:
        try:
            http.put(f"http://127.0.0.1:{free_port()}/x", b"")
        except CallerError as error:
            told.append(error)

    waiting = threading.Thread(target=put, daemon=True)
    waiting.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not http._inner._delivery._waiters:
        assert time.monotonic() < deadline, "it waits"
        time.sleep(0.01)
    http.close()
    waiting.join(PATIENCE_SECONDS)
    (error,) = told
    assert "closed" in str(error)
    assert "is kept as" in error.__notes__[0]


def test_a_call_after_the_close_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        http = AsyncReliableHttp(tmp_path, settings=QUICK)
        await http.close()
        with pytest.raises(CallerError, match="closed"):
            await http.put("http://127.0.0.1:9/", b"")
        with pytest.raises(CallerError, match="closed"):
            await http.requests()

    asyncio.run(main())


def test_a_sender_that_cannot_begin_leaves_its_directory_to_the_next_one(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        async with AsyncReliableHttp(tmp_path, settings=QUICK) as http:
            local = f"http://127.0.0.1:{port}/r"
            await http._store(http._sending.submit, Draft(Kind.JOB, "http://127.0.0.1:9/j", {}, b"", "", local))
        taken = listen(f"127.0.0.1:{port}", insecure=False)
        with pytest.raises(ConfigurationError):
            await AsyncReliableHttp(tmp_path, settings=QUICK).__aenter__()
        taken.close()
        async with AsyncReliableHttp(tmp_path, settings=QUICK) as http:
            assert len(await http.requests()) == 1

    asyncio.run(main())


def test_a_server_whose_start_is_cancelled_leaves_its_port_free(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        async with AsyncReliableHttp(tmp_path, settings=QUICK) as http:
            server = make_server(http.results, listen(f"127.0.0.1:{port}", insecure=False))
            starting = asyncio.create_task(server.start())
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await http.results.listen(f"http://127.0.0.1:{port}/r", insecure=False)

    asyncio.run(main())


def test_a_cancelled_call_that_the_outbox_refuses_counts_as_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        settings = HttpSettings(body_bytes_max=10)
        async with AsyncReliableHttp(tmp_path, settings=settings) as http:
            busy, go = threading.Event(), threading.Event()

            def hold() -> None:
                busy.set()
                go.wait(120.0)

            holding = asyncio.create_task(http._store(hold))
            await until(busy.is_set, "the store is busy")
            call = asyncio.create_task(http.put("http://127.0.0.1:9/", b"x" * 11))
            await asyncio.sleep(0)
            call.cancel()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            await holding
            with pytest.raises(TooLarge):
                await http.put("http://127.0.0.1:9/", b"x" * 11)

    asyncio.run(main())


def test_a_try_that_fails_unexpectedly_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncReliableHttp(tmp_path, settings=QUICK) as http:
            tries: list[str] = []

            async def exchange(method: str, url: str, *_: object) -> Answer:
                tries.append(url)
                if len(tries) == 1:
                    raise ValueError("nobody foresaw this")
                return Answer(200, {}, b"done")

            monkeypatch.setattr(http._delivery, "_exchange", exchange)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await http.put("http://127.0.0.1:9/", b"")).body == b"done"

    asyncio.run(main())


def test_a_receiver_that_cannot_begin_leaves_its_directory_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Delivery) -> None:
        raise OSError("no certificates are found")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Delivery, "start", refuse)
            with pytest.raises(OSError, match="certificates"):
                await Receiver(tmp_path).start()
        receiver = Receiver(tmp_path)
        await receiver.start()
        await receiver.close()

    asyncio.run(main())
