"""Tasks or threads that put at the same time until they are killed: `python -m tests.faults.together JSON`.

Each prints `begun BODY` before a put and `answered BODY` when that has returned.

Facts: name, directory, proxies, topics; callers: how many; threads: whether they are threads; die: see `dying`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pubsub import AsyncClient, Client
from pubsub.config.settings import ClientSettings
from tests.faults.dying import die_at


def say(text: str) -> None:
    """One line, out of this process when it returns."""
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def main(facts: dict[str, Any]) -> None:
    """Puts."""
    die_at(**facts["die"])
    settings = ClientSettings(proxies=tuple(facts["proxies"]), directory=Path(facts["directory"]))
    topic, callers = facts["topics"][0], range(facts["callers"])
    if facts["threads"]:
        client = Client(facts["name"], settings=settings)

        def work(caller: int) -> None:
            for number in range(1 << 60):
                say(f"begun {caller}:{number}")
                client.put(topic, b"%d:%d" % (caller, number))
                say(f"answered {caller}:{number}")

        for caller in callers:
            threading.Thread(target=work, args=(caller,)).start()
        return

    async def tasks() -> None:
        async with AsyncClient(facts["name"], settings=settings) as opened:

            async def task(caller: int) -> None:
                for number in range(1 << 60):
                    say(f"begun {caller}:{number}")
                    await opened.put(topic, b"%d:%d" % (caller, number))
                    say(f"answered {caller}:{number}")

            await asyncio.gather(*[task(caller) for caller in callers])

    asyncio.run(tasks())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
