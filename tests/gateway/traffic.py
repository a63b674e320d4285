"""Traffic through a gateway under kills: clients repeat unanswered requests, and their records are judged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

import httpx2

from tests.gateway.serving import CLIENT, Gateway, parsed

PAUSE_SECONDS = 0.02


class Part(threading.Thread):
    """Something that goes on until it is told to end.

    Attributes:
        error: what it ended by, where it should not have.
    """

    def __init__(self, gateway: Gateway, topic: str) -> None:
        super().__init__(daemon=True)
        self.gateway, self.topic = gateway, topic
        self.ending = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - told by whoever joins it.
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def again(self, method: str, path: str, body: bytes | None = None, **headers: str) -> httpx2.Response:
        """Sends a request until it is answered by something else than a failure that may pass."""
        while True:
            try:
                answer = self.gateway.ask(method, path, body, **headers)
                if answer.status_code not in {409, 502, 503, 507}:
                    return answer
            except httpx2.HTTPError:
                pass
            time.sleep(PAUSE_SECONDS)


class Writer(Part):
    """Puts one message after another, each with a key of its own, and each until it is answered 201.

    Attributes:
        put: body -> the ID that the answer gave, in order.
    """

    def __init__(self, gateway: Gateway, topic: str, name: str) -> None:
        super().__init__(gateway, topic)
        self.label = name
        self.put: dict[str, str] = {}

    def work(self) -> None:
        while not self.ending.is_set():
            body = f"{self.label}-{len(self.put)}"
            answer = self.again("POST", f"/topics/{self.topic}/messages", body.encode(), idempotency_key=f"key-{body}")
            assert answer.status_code == 201, answer.text
            self.put[body] = answer.json()["id"]


class Taker(Part):
    """Receives; `seen` has every message's body and ID, in the order in which it took them."""

    def __init__(self, gateway: Gateway, topic: str, name: str) -> None:
        super().__init__(gateway, topic)
        self.label = name
        self.seen: list[tuple[str, str]] = []

    def took(self, message: dict[str, Any]) -> None:
        self.seen.append((message["body"], message["id"]))


class Poller(Taker):
    """Polls, and takes what it has confirmed."""

    def work(self) -> None:
        base = f"/topics/{self.topic}/subscribers/{self.label}"
        while not self.ending.is_set():
            answer = self.again("GET", f"{base}/messages?wait=1&max=7")
            assert answer.status_code in {200, 204}, answer.text
            if answer.status_code == 204:
                continue
            batch = answer.json()
            confirmed = self.again("DELETE", batch["confirm"])
            assert confirmed.status_code == 204, confirmed.text
            for message in batch["messages"]:
                self.took(message)


class Streamer(Taker):
    """Reads a stream, and comes back with the last event that it saw."""

    def work(self) -> None:
        last = "0"
        while not self.ending.is_set():
            url = f"{self.gateway.url}/topics/{self.topic}/stream?subscriber={self.label}"
            try:
                with CLIENT.stream("GET", url, headers={"last-event-id": last}) as answer:
                    if answer.status_code == 200:
                        for event in parsed(answer.iter_lines()):
                            if event.get("event") == "problem":
                                break
                            self.took(json.loads(event["data"]))
                            last = event["id"]
                            if self.ending.is_set():
                                return
            except httpx2.HTTPError:
                pass
            time.sleep(PAUSE_SECONDS)


def objections(put: dict[str, str], seen: list[tuple[str, str]], who: str) -> list[str]:
    """What one taker has against it: every message once, in its writer's order, under the ID of its answer."""
    found = []
    counts = Counter(body for body, _ in seen)
    found += [f"{who}: {body} was lost" for body in put if not counts[body]]
    found += [f"{who}: {body} came {count} times" for body, count in counts.items() if count > 1]
    found += [f"{who}: {body} was never put" for body in counts if body not in put]
    found += [f"{who}: {body} has another ID" for body, id_ in seen if put.get(body, id_) != id_]
    latest: dict[str, int] = {}
    for body, _ in seen:
        writer, _, number = body.rpartition("-")
        if int(number) < latest.get(writer, -1):
            found.append(f"{who}: {body} came late")
        latest[writer] = max(latest.get(writer, -1), int(number))
    return found
