"""The start of a Python worker of Spark in tests: has the worker server fork it, or starts a Python for it.

    python -I -S worker_client.py -m MODULE …

Spark starts this program as its worker, and imports here cost time at the start of each query. It passes its standard
streams, environment and directory on, and lives as long as the forked worker. SIGTERM ends both. If there is no server,
or the server belongs to another Python, the worker is started here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Final

PLACE: Final = "SPARK_PUBSUB_WORKERS"
"""Environment variable with the path of the server's socket. It is no setting, so it does not begin as settings do."""

HEADER_BYTES: Final = 4
ORDER_BYTES_MAX: Final = 4 << 20
"""Maximum size of an order; Linux allows an environment of 2 MiB."""


def fork(words: list[str], place: str) -> int | None:
    """Have the server fork a worker, and wait until it ends.

    Args:
        words: the words behind `python`.
        place: path of the server's socket.

    Returns:
        The worker's exit code; None if no worker was forked.
    """
    facts = {"python": sys.executable, "client": os.path.realpath(__file__), "words": words}
    order = json.dumps(facts | {"environment": dict(os.environ), "directory": os.getcwd()}).encode()
    try:
        server = socket.socket(socket.AF_UNIX)
        server.connect(place)
        socket.send_fds(server, [len(order).to_bytes(HEADER_BYTES, "big")], [0, 1, 2])
        server.sendall(order)
        answers = server.makefile("rb")
        first = answers.readline()
    except OSError:
        return None
    if not first.endswith(b"\n"):
        return None
    pid = int(first)

    def end(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        code = int(answers.readline() or b"1")
    except OSError:
        code = 1  # The server has ended; the worker goes on until Spark closes its streams.
    return code if code >= 0 else 128 - code


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["-m"]:
        place = os.environ.get(PLACE)
        code = fork(words, place) if place else None
        if code is not None:
            sys.exit(code)
        words = ["-m", "pubsub.spark.workers", *words]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
