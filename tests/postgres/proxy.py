"""A connection to PostgreSQL through a small relay that cuts at a chosen message, as a network does."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from tests.postgres.server import SUPERUSER, Postgres

COMMIT: Final = b"; commit\0"


class Cutting:
    """A TCP relay before a PostgreSQL; a context manager.

    Attributes:
        cut_behind: bytes of a client's message. The message is passed on, the connection to the client is cut before
            the answer comes back, and PostgreSQL carries the message out; None: nothing is cut.
        cut_before: the same, but the message is not passed on.
        cuts_all: a cut is one of all connections, as when the network is down.
        refuses: no new connection is taken.
        postgres: the server of new connections.
    """

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self.cut_behind: bytes | None = None
        self.cut_before: bytes | None = None
        self.refuses = self.cuts_all = False
        self.cuts = 0
        self._open: list[socket.socket] = []
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
        for sock in self._open:
            _shut(sock)
        self._open.clear()

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.postgres.port))
                self._open += (client, server)
                self._clients.append(client)
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cut_before is not None and self.cut_before in data:
                    self.cut_before = None
                    self._cut(client)
                    return
                behind = self.cut_behind is not None and self.cut_behind in data
                if behind:
                    self.cut_behind = None
                    self._cut(client)
                server.sendall(data)
                if behind:
                    return  # As after a network's fault, PostgreSQL does not know yet, and the backend stays.
            _shut(server)

    def _cut(self, client: socket.socket) -> None:
        self.cuts += 1
        for one in self._clients if self.cuts_all else (client,):
            _shut(one)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _shut(client)


def _shut(sock: socket.socket) -> None:
    """End a connection; another thread may wait for it, which `close` alone would not end."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
