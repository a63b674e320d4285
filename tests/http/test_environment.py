"""The sender and the environment: proxies and certificates that lead nowhere, and a proxy that is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pubsub.http import AsyncReliableHttp, Receiver, ReliableHttp
from pubsub.http.errors import RequestKept
from tests.http.rig import QUICK, both, counting

NOWHERE = {
    "ALL_PROXY": "socks5://127.0.0.1:9", "HTTP_PROXY": "foo://x", "HTTPS_PROXY": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/nowhere/ca.pem", "SSL_CERT_DIR": "/nowhere", "SSLKEYLOGFILE": "/nowhere/keys",
}  # fmt: skip


@pytest.mark.parametrize("name", NOWHERE)
def test_a_request_to_this_host_needs_nothing_of_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, NOWHERE[name])
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))

    async def main() -> Any:
        async with both(tmp_path, receiver) as (http, url):
            return (await http.put(f"{url}/put", b"a", timeout=120)).json()

    assert asyncio.run(main()) == {"count": 1}
    ReliableHttp(tmp_path / "blocking").close()


@pytest.mark.parametrize(("name", "url"), [
    ("HTTP_PROXY", "http://other.example/"), ("SSL_CERT_FILE", "https://127.0.0.1:9/"),
    ("SSL_CERT_FILE", "https://other.example/"),
])  # fmt: skip
def test_a_request_kept_for_a_bad_variable_names_the_variable(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, NOWHERE[name])

    async def main() -> None:
        async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
            await http.put(url, b"a", timeout=0.5)

    with pytest.raises(RequestKept, match=f"{name}={NOWHERE[name]}"):
        asyncio.run(main())


@contextmanager
def proxy(seen: list[str]) -> Iterator[str]:
    """A proxy that answers by itself, and notes what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            seen.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is said."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_a_proxy_of_the_environment_is_used_for_other_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def main() -> None:
        async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
            await http.put("http://other.example/x", b"a", timeout=120)

    with proxy(seen) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        asyncio.run(main())
    assert seen == ["http://other.example/x"]
