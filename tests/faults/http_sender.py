"""A sender for tests of faults: `python -m tests.faults.http_sender DIR BASE PORT LOCAL COUNT AT_ONCE RECORD`.

It asks for values 0 to COUNT - 1, in turn as a put, a message and a job, every second one under a key of its own, and
writes into RECORD what it was told. Started again it looks what its directory knows, and asks for the rest: so may any
application that was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from pubsub.http import AsyncReliableHttp, HttpSettings, Outgoing
from pubsub.http.checking import outcome
from pubsub.http.serving import listen, make_server
from tests.faults.http_dying import die_where_told

SETTINGS = HttpSettings(backoff_seconds=0.05, backoff_seconds_max=0.5, try_seconds=3.0)
KINDS = ("put", "send", "job")


def kind_of(value: int) -> str:
    return KINDS[value % 3]


class Asking:
    """The application."""

    def __init__(self, http: AsyncReliableHttp, base: str, local: str, record: Path) -> None:
        self.http, self.base, self.local = http, base, local
        self.file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.told = {json.loads(line)["value"] for line in record.read_text().splitlines() if line.endswith("}")}
        self.known: dict[int, Outgoing] = {}

    async def look(self) -> None:
        """What an earlier life asked for."""
        for request in await self.http.requests(open_only=False):
            self.known[int(request.headers["x-value"])] = request

    async def ask(self, value: int) -> None:
        """Ask for a value, unless that was done before; then wait for what becomes of it."""
        if value in self.told:
            return
        if value in self.known:
            answer = outcome(await self.http._delivery.over(self.known[value].id))
            self._tell(value, answer.body.decode())
            return
        key = f"key-{value}" if value % 2 else ""
        body, headers = f"{value} {'x' * (value % 7) * 1000}".encode(), {"x-value": str(value)}
        match kind_of(value):
            case "put":
                answer = await self.http.put(f"{self.base}/put", body, key=key, headers=headers)
                self._tell(value, answer.body.decode())
            case "send":
                await self.http.send(f"{self.base}/message", body, key=key, headers=headers)
                self._tell(value, "")
            case "job":
                answer = await self.http.perform_job(
                    f"{self.base}/job", self.local, body, key=key, headers=headers, listen=False
                )
                self._tell(value, answer.body.decode())

    def _tell(self, value: int, answer: str) -> None:
        os.write(self.file, json.dumps({"value": value, "answer": answer}).encode() + b"\n")


async def main() -> None:
    directory, base, port, local, count, at_once, record = sys.argv[1:]
    die_where_told()
    http = AsyncReliableHttp(directory, settings=SETTINGS)
    server = make_server(http.results, listen(f"127.0.0.1:{port}", insecure=False))
    await server.start()
    async with http:
        asking = Asking(http, base, local, Path(record))
        await asking.look()
        values = iter(range(int(count)))

        async def work() -> None:
            for value in values:
                await asking.ask(value)

        await asyncio.gather(*[work() for _ in range(int(at_once))])
        # What was doubled or confirmed is given its time: nothing is open then but what nobody waits for.
    await server.stop()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
