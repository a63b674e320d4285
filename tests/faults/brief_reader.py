"""A subscriber of messages with a time to live, which may be killed: `python -m tests.faults.brief_reader JSON`.

It writes down each message in the commit that takes it, with a time before the client looked at it. When it is told to
finish, it takes all up to the body `end`, and says `ended`.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pubsub import Client
from pubsub.client.core.message import Message
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.orders import Orders

TABLE = "create table if not exists taken (n integer primary key, body, stamp, before)"


def main(facts: dict[str, Any]) -> None:
    orders = Orders(facts)
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=Path(facts["directory"]), timeout_seconds=5.0, try_seconds=0.1
    )
    (topic,) = facts["topics"]
    before, last = 0.0, ""

    def record(message: Message, transaction: Any) -> None:
        nonlocal last
        last = message.body.decode()
        transaction.execute(
            "insert into taken (body, stamp, before) values (?, ?, ?)", (last, message.stamp / 1e6, before)
        )

    with Client(facts["name"], settings=settings) as client, orders.finished():
        with client.transaction() as transaction:
            transaction.execute(TABLE)
        while not client.subscriptions().get(topic, {}).get("settled"):
            with suppress(Unavailable):
                client.subscribe(topic)
        print("subscribed", flush=True)
        while not (orders.finishing.is_set() and last == "end"):
            before = time.time()
            with suppress(Unavailable):
                if client.process(topic, record, 0.2, 1):
                    print("took", last, flush=True)
        print("ended", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
