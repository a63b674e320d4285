"""uvicorn on a socket of ours: where it may listen, and what is said where it cannot."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import ConfigurationError
from pubsub.http.serving import Server, Tls, is_loopback, listening_socket, split_bind


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.0.2.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here


def test_host_and_port_are_read() -> None:
    assert split_bind("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_bind("[::1]:80") == ("::1", 80)
    for text in ("", "80", "h:", "h:99999", "::1:80", "a b:80", "h:80x"):
        with pytest.raises(ConfigurationError, match="HOST:PORT"):
            split_bind(text)


def test_where_others_would_reach_it_it_listens_only_if_that_is_wanted() -> None:
    with pytest.raises(ConfigurationError, match="insecure"):
        listening_socket("0.0.0.0", 0, insecure=False)
    listening_socket("0.0.0.0", 0, insecure=True).close()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        listening_socket("no-such-host.invalid", 0, insecure=True)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="in use"):
        listening_socket("127.0.0.1", taken.getsockname()[1], insecure=False)


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no"})


def test_what_does_not_start_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="did not start"):
            await Server(_app, listening_socket("127.0.0.1", 0, insecure=False)).start()
        (tmp_path / "bad.pem").write_text("nonsense")
        for file in ("bad.pem", "none.pem"):
            server = Server(_app, listening_socket("127.0.0.1", 0, insecure=False), Tls(str(tmp_path / file)))
            with pytest.raises(ConfigurationError, match="cannot be served"):
                await server.start()

    asyncio.run(main())
