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

from pubsub.base.listening import Listening
from pubsub.web.serving import HttpServer
from tests.web.rig import LIMITS, echo


async def main() -> None:
    server = HttpServer(echo, LIMITS, lambda status, reason: reason.encode(), stop_seconds=1, owns_loop=True)
    listening = Listening()
    listening.bind(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    print(listening.getsockname()[1], server.room.connections_max, flush=True)
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
    server.force_exit = server.should_exit = True
    await serving


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    asyncio.run(main())
