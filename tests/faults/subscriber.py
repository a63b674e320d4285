"""A subscriber that may be killed at any moment: `python -m tests.faults.subscriber JSON`.

It takes what comes, on every topic in turn, and leaves and rejoins those it is told to. When it is told to finish (see
`orders`), it subscribes to all and says `finishing`; it ends, with `ended N`, when the end of every topic came.

Facts: name, directory, proxies, topics, seed; fresh: it begins at the end; leaves: topics that it leaves and rejoins;
leaving: how likely a round; attempts: of a handler; timeout: of a call; boot, record: see `Client`; die: see `dying`;
poison: a body at which its handler kills it; clumsy: how often its handler raises; forgetful: without the client's own
net against repeats; beside:
what threads of their own do through the same client until it is told to finish: `process`, `get` or `iterate`. Who
gets or iterates writes down afterwards what it was handed, so such a subscriber is not to be killed, nor to leave.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

from pubsub import Client
from pubsub.client.core.cursor import Cursor
from pubsub.client.core.message import Message
from pubsub.config.settings import ClientSettings
from pubsub.errors import NotSubscribed, Unavailable
from tests.faults.dying import die, die_at
from tests.faults.history import Taking
from tests.faults.orders import Orders


class Clumsy(Exception):
    """What a handler raises."""


class Subscriber(Taking):
    """Takes, and does to itself what the facts say."""

    def __init__(self, client: Client, facts: dict[str, Any]) -> None:
        super().__init__(client)
        self.facts = facts
        self.topics: list[str] = []
        """Those that it has asked for."""
        self.rng = Random(f"{facts.get('seed', 0)} {self.taken}")
        beside = set(facts.get("beside", ()))
        # Between being handed a message and writing it down nobody else writes: so the order is that of the stream.
        self.turn: AbstractContextManager[Any] = threading.Lock() if beside - {"process"} else nullcontext()
        self.iterators: dict[tuple[int, str], Iterator[Message]] = {}
        """By thread and topic."""

    def record(self, message: Message, transaction: Any) -> None:
        """The handler."""
        super().record(message, transaction)
        if message.body == self.facts.get("poison", "").encode():
            die()
        if self.rng.random() < self.facts.get("clumsy", 0.0):
            self.ended.discard(message.topic)  # What was its end comes again.
            raise Clumsy

    def settle(self, topic: str, on: bool) -> None:
        """Until it is so."""
        while True:
            try:
                # Where its directory knows nothing of the topic; it waits for no proxy then.
                fresh = bool(self.facts.get("fresh")) and topic not in self.client.subscriptions()
                self.intend(topic, on, fresh=on and fresh)
            except Unavailable:
                continue
            return

    def join(self, topics: list[str]) -> None:
        """Ask for those that are new, as they were when this process, or the one before it, last asked."""
        for topic in topics[len(self.topics) :]:
            self.settle(topic, self.client.subscriptions().get(topic, {"on": True})["on"])
            self.topics.append(topic)

    def round(self, timeout: float) -> None:
        """One look at every topic."""
        subscriptions = self.client.subscriptions()
        for topic in self.topics:
            if subscriptions[topic]["on"] and topic not in self.ended:
                with suppress(Unavailable, Clumsy), self.turn:
                    self.process(topic, timeout)

    # Threads beside

    def beside(self, way: str, finishing: threading.Event) -> None:
        """Take of every topic, a message or some at a time."""
        try:
            while not finishing.wait(0.001):
                for topic in tuple(self.topics):
                    with suppress(Unavailable, NotSubscribed, Clumsy), self.turn:
                        self.take(way, topic)
        finally:
            for topic in self.topics:
                self.iterators.pop((threading.get_ident(), topic), iter(()))

    def take(self, way: str, topic: str) -> None:
        """One turn on one topic."""
        if way == "process":
            self.process(topic, 0.01)
            return
        message = self.client.get(topic, 0.01) if way == "get" else self.next(topic)
        if message is not None:
            with self.client.transaction() as transaction:
                self.record(message, transaction)
            self.count(1)

    def next(self, topic: str) -> Message | None:
        """The next of an iteration that stays open over many turns, while other threads take too."""
        mine = threading.get_ident(), topic
        iterator = self.iterators.pop(mine, None) or self.client.messages(topic, timeout=0.01)
        message = next(iterator, None)
        if message is not None:
            self.iterators[mine] = iterator
        return message


def main(facts: dict[str, Any]) -> None:
    """Subscribes."""
    orders = Orders(facts)
    if "die" in facts:
        die_at(**facts["die"])
    if facts.get("forgetful"):
        Cursor.taken = property(lambda _: {})  # type: ignore[assignment]
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]),
        **facts.get("keys", {}),
        directory=Path(facts["directory"]),
        timeout_seconds=facts.get("timeout", 40.0),
        handler_attempts=facts.get("attempts", 1000),
    )
    with (
        Client(facts["name"], settings=settings, recorder=facts.get("record"), boot=facts.get("boot")) as client,
        ThreadPoolExecutor(max_workers=8) as pool,
        orders.finished(),
    ):
        subscriber = Subscriber(client, facts)
        subscriber.join(orders.topics)
        print("subscribed", flush=True)
        threads = [pool.submit(subscriber.beside, way, orders.finishing) for way in facts.get("beside", ())]
        while not orders.finishing.is_set():
            subscriber.join(orders.topics)
            subscriber.round(0.01)
            print("took", subscriber.taken, flush=True)
            for topic in facts.get("leaves", ()):
                if subscriber.rng.random() < facts.get("leaving", 0.1):
                    subscriber.settle(topic, not client.subscriptions()[topic]["on"])
                    print("turned", topic, flush=True)
            for thread in threads:
                if thread.done():
                    thread.result()
        for thread in threads:
            thread.result()
        subscriber.join(orders.topics)
        for topic in subscriber.topics:
            subscriber.settle(topic, True)
        print("finishing", flush=True)
        while subscriber.ended != set(subscriber.topics):
            subscriber.round(0.2)
            print("took", subscriber.taken, flush=True)
    print("ended", subscriber.taken, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
