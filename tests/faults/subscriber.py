"""A subscriber that may be killed at any moment: `python -m tests.faults.subscriber JSON`.

It takes what comes, on every topic in turn, and leaves and rejoins those it is told to. When it is told to finish (see
`orders`), it subscribes to all and says `finishing`; it ends, with `ended N`, when the end of every topic came.

Facts: name, directory, proxies, topics, seed; leaves: topics that it leaves and rejoins; leaving: how likely a round;
attempts: of a handler; timeout: of a call; boot, record: see `Client`; die: see `dying`; poison: a body at which its
handler kills it; clumsy: how often its handler raises; forgetful: without the client's own net against repeats.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from pubsub import Client
from pubsub.client.message import Message
from pubsub.client.subscription import Subscription
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
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

    def record(self, message: Message, transaction: Any) -> None:
        """The handler."""
        super().record(message, transaction)
        if message.body == self.facts.get("poison", "").encode():
            die()
        if self.rng.random() < self.facts.get("clumsy", 0.0):
            raise Clumsy

    def settle(self, topic: str, on: bool) -> None:
        """Until it is so."""
        while True:
            try:
                self.intend(topic, on)
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
                with suppress(Unavailable, Clumsy):
                    self.process(topic, timeout)


def main(facts: dict[str, Any]) -> None:
    """Subscribes."""
    orders = Orders(facts)
    if "die" in facts:
        die_at(**facts["die"])
    if facts.get("forgetful"):
        Subscription.taken = property(lambda _: {})  # type: ignore[assignment]
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]),
        directory=Path(facts["directory"]),
        timeout_seconds=facts.get("timeout", 40.0),
        handler_attempts=facts.get("attempts", 1000),
    )
    with Client(facts["name"], settings=settings, recorder=facts.get("record"), boot=facts.get("boot")) as client:
        subscriber = Subscriber(client, facts)
        subscriber.join(orders.topics)
        print("subscribed", flush=True)
        while not orders.finishing.is_set():
            subscriber.join(orders.topics)
            subscriber.round(0.01)
            print("took", subscriber.taken, flush=True)
            for topic in facts.get("leaves", ()):
                if subscriber.rng.random() < facts.get("leaving", 0.1):
                    subscriber.settle(topic, not client.subscriptions()[topic]["on"])
                    print("turned", topic, flush=True)
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
