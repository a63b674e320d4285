"""A listener at a port of a Messenger, with another protocol."""

import socket
import threading

GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0"
READY = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
STRANGERS = {
    "another mechanism": GREETING + b"PLAIN" + b"\0" * 15 + b"\0" * 32,
    "no greeting": b"\0" * 300,
    "a greeting without end": b"\xff" * 64,
    "an unknown command": GREETING + b"NULL" + b"\0" * 16 + b"\0" * 32 + b"\x04\x05\x05XXXXX",
    "nonsense behind the handshake": GREETING + b"NULL" + b"\0" * 16 + b"\0" * 32 + READY + b"\xf7" * 50,
}


class Stranger:
    """Listens at a port, says the same to whoever connects, and counts them."""

    def __init__(self, words: bytes) -> None:
        self._words = words
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.sendall(self._words)
            self.connections.append(connection)

    def leave(self) -> None:
        """Close the port, so that somebody else may have it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self.connections:
            # No TIME_WAIT is left on the port.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
