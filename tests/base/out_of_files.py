"""A server of ours in a process that may have few files; run by test_listening.py.

It prints its port. At each line on standard input it goes on: it takes all files that are left, prints `full`, gives
them back, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys

from pubsub.base.listening import listen_at
from pubsub.web.serving import HttpServer
from tests.web.rig import LIMITS, echo


async def main() -> None:
    listening = listen_at("127.0.0.1:0", insecure=False, remedy="")
    server = HttpServer(echo, listening, LIMITS, lambda status, reason: reason.encode(), owns_loop=True)
    await server.start()
    print(server.address[1], server.room.connections_max, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        print("full", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for one in taken:
        os.close(one)
    await asyncio.to_thread(sys.stdin.readline)
    server.force_exit = True
    await server.stop()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    asyncio.run(main())
