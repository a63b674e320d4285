"""uvicorn on a socket of the package: the allowed addresses, and the errors for others."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.addresses import is_loopback
from pubsub.errors import ConfigurationError
from pubsub.http.serving import LIMITS, listen, make_server
from pubsub.web.connections import Limits
from pubsub.web.serving import Tls


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.0.2.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_loopback_hosts_are_recognized(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here


@pytest.mark.parametrize("address", ["", "80", "h:", "h:99999", "::1:80", "a b:80", "h:80x"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
        listen(address, insecure=True)


def test_an_address_reachable_by_others_needs_insecure() -> None:
    with pytest.raises(ConfigurationError, match="insecure"):
        listen("0.0.0.0:0", insecure=False)
    listen("0.0.0.0:0", insecure=True).close()
    with pytest.raises(ConfigurationError, match=r"^no-such-host\.invalid:0: "):
        listen("no-such-host.invalid:0", insecure=True)
    with pytest.raises(ConfigurationError, match="label"):  # Python's own error, which is no OSError.
        listen(f"{'x' * 70}:0", insecure=True)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="in use"):
        listen(f"127.0.0.1:{taken.getsockname()[1]}", insecure=False)


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no"})


def test_a_server_that_cannot_start_raises_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="did not start"):
            await make_server(_app, listen("127.0.0.1:0", insecure=False)).start()
        (tmp_path / "bad.pem").write_text("nonsense")
        for file in ("bad.pem", "none.pem"):
            server = make_server(_app, listen("127.0.0.1:0", insecure=False), Tls(str(tmp_path / file)))
            with pytest.raises(ConfigurationError, match="cannot be served"):
                await server.start()

    asyncio.run(main())


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    while scope["type"] == "lifespan":
        await send({"type": f"{(await receive())['type']}.complete"})
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answered(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]


def test_silent_connections_do_not_block_others() -> None:
    async def main() -> None:
        limits = replace(LIMITS, connections_max=20, header_seconds=60.0, idle_seconds=60.0)
        server = make_server(_nothing, listen("127.0.0.1:0", insecure=False), limits=limits)
        await server.start()
        try:
            silent = [await asyncio.open_connection(*server.address) for _ in range(40)]
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(GET)
            assert await _answered(reader) == b"HTTP/1.1 204 No Content"
            for one, _ in silent[:20]:
                assert await one.read() == b""
            for _, one in silent:
                one.close()
            writer.close()
        finally:
            await server.stop()

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


def test_silent_connections_are_closed() -> None:
    async def main() -> None:
        limits = replace(LIMITS, header_seconds=0.1)
        server = make_server(_nothing, listen("127.0.0.1:0", insecure=False), limits=limits)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection(*server.address)
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
        finally:
            await server.stop()

    asyncio.run(main())


def test_the_limits_are_those_of_the_docs() -> None:
    assert Limits(1_000, 64 * 1024, 30.0, 100, 10.0, 60.0) == LIMITS


def test_a_malformed_request_is_answered_by_a_problem() -> None:
    async def main() -> None:
        server = make_server(_nothing, listen("127.0.0.1:0", insecure=False))
        await server.start()
        try:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 30)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 400
            writer.close()
        finally:
            await server.stop()

    asyncio.run(main())
