"""Opens many TCP connections to an endpoint and never becomes ZeroMQ on any of them; a process of its own.

Prints `open N` once it has N, and `dropped N` once the other end has closed them all.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import sys

GREETING = b"\xff" + bytes(8) + b"\x7f\3\0NULL"
"""The beginning of ZeroMQ's; the rest never comes."""


def main(endpoint: str, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    poll = select.poll()
    opened: dict[int, socket.socket] = {}
    for number in range(count):
        one = socket.create_connection((host, int(port)), 60)
        if number % 2:
            one.sendall(GREETING)
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
    main(sys.argv[1], int(sys.argv[2]))
