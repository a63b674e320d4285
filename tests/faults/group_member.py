"""A member of several consumer groups that may be killed at any moment: `python -m tests.faults.group_member JSON`.

Before a handler it writes a line to a file, and the handler's effect is a row of its own database
(`tests/faults/group_audit.py` says how both look). The body of a message is `NUMBER FAILURES KIND`: so many attempts
fail, and the KIND `kills` kills the process at a first attempt. It says `joined`, `taken N` from time to time, and
`ended N`. Told to finish, it closes its client.

Facts: name, directory, proxies; groups: a list of topic, group, claim, and options of `subscribe`; seconds: how long a
handler takes; concurrency; asynchronous: an `AsyncClient`; begun: the path of the file; die, boot: see `dying.py` and
`Client`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from pubsub import AsyncClient, Client, Later
from pubsub.client import Message, Transaction
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.dying import die_at_step
from tests.faults.orders import Orders

TURN_SECONDS = 0.5
"""Limit of a call without a message."""

MOST = 50
"""Messages of a call."""

LATER_SECONDS = 0.1


class FailedError(Exception):
    """A handler that fails, as its message asks for."""


class Handling:
    """What both clients do with a message.

    Args:
        facts: see above.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.seconds: float = facts.get("seconds", 0.0)
        self._begun = os.open(facts["begun"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.taken = 0
        self._lock = threading.Lock()

    def begin(self, group: str, message: Message) -> tuple[int, int, str]:
        """Write down that it began; return what its body says."""
        number, failures, kind = message.body.decode().split()
        line = f"{time.monotonic_ns()} {group} {number} {message.attempts} {int(message.doubtful)}\n"
        os.write(self._begun, line.encode())
        return int(number), int(failures), kind

    def act(self, group: str, message: Message, transaction: Transaction, facts: tuple[int, int, str]) -> None:
        """Fail, die, or write the effect."""
        number, failures, kind = facts
        if message.attempts <= failures:
            if kind == "later":
                raise Later(LATER_SECONDS)
            raise FailedError(f"attempt {message.attempts} of message {number}")
        if kind == "kills" and message.attempts == 1 and not message.doubtful:
            os.kill(os.getpid(), signal.SIGKILL)
        transaction.execute("select 1")  # The message is claimed now. The mark may have come meanwhile.
        row = group, number, message.doubtful, message.attempts, time.monotonic_ns()
        transaction.execute("insert into effects (name, number, doubtful, attempt, at) values (?, ?, ?, ?, ?)", row)

    def took(self, count: int) -> None:
        """Say how many messages all calls took so far."""
        if count:
            with self._lock:
                self.taken += count
                print(f"taken {self.taken}", flush=True)


def make_table(client: Client | AsyncClient) -> None:
    """Make the table of effects."""
    with client.transaction() as transaction:
        transaction.execute(
            "create table if not exists effects (n integer primary key, name text, number, doubtful, attempt, at)"
        )


def work(facts: dict[str, Any], settings: ClientSettings, orders: Orders) -> int:
    """Work with a `Client`, with a thread for each group."""
    handling = Handling(facts)

    def of_group(client: Client, group: dict[str, Any]) -> None:
        name = group["group"]

        def handle(message: Message, transaction: Transaction) -> None:
            found = handling.begin(name, message)
            time.sleep(handling.seconds)
            handling.act(name, message, transaction, found)

        while not orders.finishing.is_set():
            try:
                client.subscribe(group["topic"], group=name, start="earliest", **group["options"])
                break
            except Unavailable:
                continue
        print(f"joined {name}", flush=True)
        options = {"group": name, "claim": group["claim"], "concurrency": facts["concurrency"]}
        while not orders.finishing.is_set():
            try:
                handling.took(client.process(group["topic"], handle, TURN_SECONDS, MOST, **options))
            except (Unavailable, FailedError):
                continue

    with Client(facts["name"], settings=settings, boot=facts.get("boot")) as client:
        make_table(client)
        with ThreadPoolExecutor() as pool, orders.finished():
            threads = [pool.submit(of_group, client, group) for group in facts["groups"]]
            wait(threads, return_when=FIRST_EXCEPTION)
        for thread in threads:
            thread.result()
    return handling.taken


async def work_asynchronously(facts: dict[str, Any], settings: ClientSettings, orders: Orders) -> int:
    """The same with an `AsyncClient`, with a task for each group."""
    handling = Handling(facts)

    async def of_group(client: AsyncClient, group: dict[str, Any]) -> None:
        name = group["group"]

        async def handle(message: Message, transaction: Transaction) -> None:
            found = handling.begin(name, message)
            await asyncio.sleep(handling.seconds)
            handling.act(name, message, transaction, found)

        while not orders.finishing.is_set():
            try:
                await client.subscribe(group["topic"], group=name, start="earliest", **group["options"])
                break
            except Unavailable:
                continue
        print(f"joined {name}", flush=True)
        options = {"group": name, "claim": group["claim"], "concurrency": facts["concurrency"]}
        while not orders.finishing.is_set():
            try:
                handling.took(await client.process(group["topic"], handle, TURN_SECONDS, MOST, **options))
            except (Unavailable, FailedError):
                continue

    async with AsyncClient(facts["name"], settings=settings, boot=facts.get("boot")) as client:
        make_table(client)
        await asyncio.gather(*(of_group(client, group) for group in facts["groups"]))
    return handling.taken


def main() -> None:
    """Works until it is told to finish."""
    facts = json.loads(sys.argv[1])
    orders = Orders({"topics": []} | facts)
    if "die" in facts:
        die_at_step(**facts["die"])
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=facts["directory"], timeout_seconds=facts.get("timeout", 5.0)
    )
    if facts.get("asynchronous"):
        taken = asyncio.run(work_asynchronously(facts, settings, orders))
    else:
        taken = work(facts, settings, orders)
    print(f"ended {taken}", flush=True)


if __name__ == "__main__":
    main()
