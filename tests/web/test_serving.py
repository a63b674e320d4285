"""A server's end by signals; the tests of its addresses and its start are in tests/http/test_serving.py."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.listening import listen_at
from pubsub.web.serving import HttpServer, Tls
from tests.web.rig import LIMITS, SECONDS

CERTIFICATE = Path(__file__).parents[1] / "gateway" / "localhost.pem"


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """Answers, and never ends the answer."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_ctrl_c_waits_for_no_request_and_a_third_ends_the_process(numbers: tuple[int, ...]) -> None:
    stopped: list[bool] = []
    ended: list[str] = []

    async def main() -> None:
        listening = listen_at("127.0.0.1:0", insecure=False, remedy="")
        server = HttpServer(endless, listening, LIMITS, lambda *_: b"", stopping=lambda: stopped.append(True))
        server.config.timeout_graceful_shutdown = 3_600
        running = asyncio.create_task(server.run_process(ended.append))
        while not ended:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"begun")
        for number in numbers:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        await running
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        writer.close()

    before = signal.getsignal(signal.SIGINT)
    try:
        asyncio.run(asyncio.wait_for(main(), SECONDS))
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended[0].startswith("http://127.0.0.1:")
    assert stopped


def test_a_connection_over_tls_may_be_closed_twice() -> None:
    async def main() -> None:
        listening = listen_at("127.0.0.1:0", insecure=False, remedy="")
        server = HttpServer(endless, listening, LIMITS, lambda *_: b"", tls=Tls(str(CERTIFICATE), str(CERTIFICATE)))
        await server.start()
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        _, writer = await asyncio.open_connection(*server.address, ssl=trusting)
        while not server.room.idle:
            await asyncio.sleep(0.01)
        (connection,) = server.room.idle
        connection.transport.close()  # As uvicorn does behind a last answer.
        connection.end()  # As the server does when it stops.
        await server.stop()
        writer.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))
