"""Starts handshakes with unknown keys at an endpoint, as fast as it can, until its input ends; a separate process."""

from __future__ import annotations

import select
import sys
import time

import zmq

from pubsub.messenger.curve import CurveClient
from pubsub.messenger.sockets import open_dealer
from pubsub.security.keys import parse_public
from pubsub.security.pairs import new_pair

AT_ONCE = 100


def main(endpoint: str, expected: str) -> None:
    keys = (parse_public(expected),)
    print("knocking", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        with zmq.Context() as context:
            socks = [open_dealer(context, endpoint, curve=CurveClient(new_pair(), keys)) for _ in range(AT_ONCE)]
            time.sleep(0.1)  # It is refused within a few milliseconds where nobody else asks; no test waits for it.
            for sock in socks:
                sock.close(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
