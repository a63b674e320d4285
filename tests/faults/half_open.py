"""Opens many TCP connections to an endpoint, begins a request on each, and keeps them; a separate process.

Each says one of the beginnings that it is given, in turn: nothing, a part of ZeroMQ's greeting, half a handshake.
Prints `open N` once it has N, and `dropped N` once the other end has closed them all.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import sys
from collections.abc import Sequence


def main(endpoint: str, count: int, beginnings: Sequence[bytes]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    poll = select.poll()
    opened: dict[int, socket.socket] = {}
    for number in range(count):
        one = socket.create_connection((host, int(port)), 60)
        one.sendall(beginnings[number % len(beginnings)])
        opened[one.fileno()] = one
        poll.register(one, select.POLLIN)
    print(f"open {len(opened)}", flush=True)
    while opened:
        for place, _ in poll.poll(60_000):
            with contextlib.suppress(ConnectionError):
                if opened[place].recv(4096):  # Its own greeting.
                    continue
            poll.unregister(place)
            opened.pop(place).close()
    print(f"dropped {count}", flush=True)
    sys.stdin.read(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [bytes.fromhex(one) for one in sys.argv[3:]])
