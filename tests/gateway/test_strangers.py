"""Commands at an address without a gateway: one line for any answer there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pubsub.cli import main
from pubsub.gateway import commands


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """What answers the first request with these bytes, or with none and waits; its address."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)
                if not answer:
                    ended.wait(120)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        (http(b"<html>"), "the process there is not a gateway", 8),
        (http(b"[1, 2]"), "the process there is not a gateway", 8),
        (http(b'{"ok": true}'), "the process there is not a gateway", 8),
        (http(b"<html>", b"404 Not Found"), "answered 404 and is not a gateway", 13),
        (http(b"", b"301 Moved"), "answered 301 and is not a gateway", 2),
        (b"-ERR unknown command\r\n", "the process there is not a gateway", 8),
        (b"", "it is suspended, or is not a gateway", 4),
    ],
)
def test_a_server_other_than_a_gateway_is_named(
    answer: bytes, said: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "SECONDS", 0.3)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with stranger(answer) as url:
        assert main(["webhook", "retry", "t", "w", "--gateway", url]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
