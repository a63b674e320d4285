"""A receiver of webhooks: a real HTTP server on a thread, with answers set by a test and a record of requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """A receiver; a context manager.

    Args:
        answer: the status of an answer, from the headers and the body; 0: none at all.

    Attributes:
        requests: headers and body of each, as they came; paths: theirs, each once.
        taken: those that were answered 2xx.
        page: status and body of the answer to a GET.
    """

    def __init__(self, answer: Callable[[dict[str, str], bytes], int] = lambda headers, body: 204) -> None:
        self.answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.page = 404, b""
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers["content-length"]))
                if self.path not in outer.paths:
                    outer.paths.append(self.path)
                status = outer.came(headers, body)
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                status, body = outer.page
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing is said."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)

    def came(self, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            self.requests.append((headers, body))
        status = self.answer(headers, body)
        with self._lock:
            if 200 <= status < 300:
                self.taken.append((headers, body))
        return status

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def bodies(self) -> list[bytes]:
        """What was taken, in order, each ID once."""
        with self._lock:
            return list({headers["webhook-id"]: body for headers, body in self.taken}.values())

    def attempts(self) -> Counter[bytes]:
        """How often each body came."""
        with self._lock:
            return Counter(body for _, body in self.requests)

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
