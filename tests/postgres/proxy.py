"""A connection to PostgreSQL through a small relay that cuts at a chosen message, as a network does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final

from tests.postgres.server import SUPERUSER, Postgres

COMMIT: Final = b"; commit\0"
HOLD_SECONDS: Final = 0.005
"""Between two looks whether a stalled link goes on."""


class Cutting:
    """A TCP relay before a PostgreSQL; a context manager.

    Attributes:
        cut_behind: bytes of a client's message. The message is passed on, the connection to the client is cut before
            the answer comes back, and PostgreSQL carries the message out; None: nothing is cut.
        cut_answer: as `cut_behind`, but the connection is cut when the answer comes, so the message was carried out.
        cut_before: the same, but the message is not passed on.
        cuts_all: a cut is one of all connections, as when the network is down.
        refuses: no new connection is taken.
        stalls: nothing is passed on, and nothing is cut.
        postgres: the server of new connections.
    """

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self.cut_behind: bytes | None = None
        self.cut_before: bytes | None = None
        self.cut_answer: bytes | None = None
        self._unanswered: set[socket.socket] = set()
        self.refuses = self.stalls = self.cuts_all = False
        self.cuts = 0
        self._open: list[socket.socket] = []
        self._left: list[socket.socket] = []
        self._clients: list[socket.socket] = []

    def __enter__(self) -> Cutting:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        for sock in tuple(self._open):
            _shut(sock)
        self._open.clear()

    def release(self) -> None:
        """Tell PostgreSQL of the connections that were cut without its knowledge, as keepalive probes do later."""
        while self._left:
            _shut(self._left.pop())

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self.postgres.port))
                except OSError:  # PostgreSQL is away, and so is this link of it.
                    client.close()
                    continue
                self._open += (client, server)
                self._clients.append(client)
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        up = threading.Thread(target=self._up, args=(client, server), daemon=True)
        up.start()
        self._down(client, server)
        up.join()
        for sock in (client, server):
            sock.close()
            with contextlib.suppress(ValueError):  # `cut` was faster.
                self._open.remove(sock)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # A killed client may leave unread bytes, and its end is a reset then.
            while data := client.recv(1 << 16):
                self._hold()
                if self.cut_before is not None and self.cut_before in data:
                    self.cut_before = None
                    self._cut(client, server)
                    return
                if self.cut_answer is not None and self.cut_answer in data:
                    self.cut_answer = None
                    self._unanswered.add(client)
                behind = self.cut_behind is not None and self.cut_behind in data
                if behind:
                    self.cut_behind = None
                    self._cut(client, server)
                server.sendall(data)
                if behind:
                    return
        _shut(server)

    def _hold(self) -> None:
        while self.stalls:
            time.sleep(HOLD_SECONDS)

    def _cut(self, client: socket.socket, server: socket.socket) -> None:
        """Cut as a network's fault does: PostgreSQL does not know yet, and the backend stays."""
        self.cuts += 1
        self._left.append(server)
        for one in self._clients if self.cuts_all else (client,):
            _shut(one)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                self._hold()
                if client in self._unanswered:
                    self._cut(client, server)
                    return
                client.sendall(data)
        _shut(client)


def _shut(sock: socket.socket) -> None:
    """End a connection; another thread may wait for it, which `close` alone would not end."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
