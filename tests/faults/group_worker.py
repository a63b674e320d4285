"""A member of a consumer group that may be killed at any moment: `python -m tests.faults.group_worker JSON`.

Each effect is a row of its own database: the message's body, whether it was marked as doubtful, its attempt, and the
order in which this member did it. It says `joined`, and `taken N` after each call. Told to finish, it leaves and says
`ended N`.

Facts: name, directory, proxies, topics: one; group, mode, start, claim, concurrency; seconds: how long a handler takes;
at: a body at which something happens, once, and `does`: what.

    hangs      says `hangs` in the handler before it writes, and waits to be killed
    writes     says `writes` after its first statement, which has its message claimed, and waits to be killed
    commits    is killed by itself after the commit, before anything is told
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from pubsub import Client
from pubsub.client import Message, Transaction
from pubsub.client.core.group_in_hand import RecordInHand
from pubsub.client.core.group_member import GroupMember
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.orders import Orders


class Worker:
    """The handler, and what happens in it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.at = facts.get("at", "").encode()

    def handle(self, message: Message, transaction: Transaction) -> None:
        does = self.facts.get("does") if message.body == self.at else ""
        if self.facts.get("seconds"):
            time.sleep(self.facts["seconds"])
        if does == "hangs":
            wait_for_the_end("hangs")
        transaction.execute("insert into effects (body, doubtful, attempt) values (?, ?, ?)", (
            message.body, message.doubtful, message.attempts,
        ))  # fmt: skip
        if does == "writes":
            wait_for_the_end("writes")
        if does == "commits":
            die_after_the_commit()


def wait_for_the_end(word: str) -> None:
    print(word, flush=True)
    threading.Event().wait()


def die_after_the_commit() -> None:
    """Have this process killed when its present transaction is committed."""

    def finished(self: GroupMember, hand: RecordInHand) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    GroupMember.finished = finished  # type: ignore[method-assign]


def main() -> None:
    facts = json.loads(sys.argv[1])
    orders, worker = Orders(facts), Worker(facts)
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=facts["directory"], timeout_seconds=facts.get("timeout", 5.0)
    )
    (topic,), group, taken = facts["topics"], facts["group"], 0
    with Client(facts["name"], settings=settings) as client, orders.finished():
        with client.transaction() as transaction:
            transaction.execute("create table if not exists effects (n integer primary key, body, doubtful, attempt)")
        while True:
            try:
                client.subscribe(topic, group=group, mode=facts.get("mode"), start="earliest")
                break
            except Unavailable:
                continue
        print("joined", flush=True)
        options = {"claim": facts.get("claim", "auto"), "concurrency": facts.get("concurrency", 1)}
        while not orders.finishing.is_set():
            try:
                found = client.process(topic, worker.handle, 0.5, max=50, group=group, **options)
            except Unavailable:
                continue
            taken += found
            if found:
                print(f"taken {taken}", flush=True)
    print(f"ended {taken}", flush=True)


if __name__ == "__main__":
    main()
