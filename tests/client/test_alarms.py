"""Alarms as time-outs of puts: nothing acknowledged is lost or doubled, and the client goes on after each."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from pubsub.client import Client
from pubsub.embedded import Embedded
from tests.client.opened import PATIENCE
from tests.client.struck import END, until_end

PUTS: Final = 400
ALARM_PUTS: Final = (0.1, 18.0)
"""When an alarm rings, in times of a put. Most puts succeed before: about one in ten is struck."""
MEASURED: Final = 10
"""Puts whose median is the time of one, measured again after as many under alarms."""


class Alarm(Exception):
    """What the handler raises."""


class Alarms:
    """Calls that an alarm cuts off."""

    armed = False

    def ring(self, *_: object) -> None:
        """The signal's handler. It raises within the call alone: an alarm may ring as that returns."""
        if self.armed:
            self.armed = False
            raise Alarm

    def put(self, client: Client, topic: str, body: bytes, seconds: float) -> bool:
        """Put, cut off after so long; whether it was acknowledged."""
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            client.put(topic, body, timeout=PATIENCE)
            self.armed = False
        except Alarm:
            return False
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return True


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    made = Alarms()
    before = signal.signal(signal.SIGALRM, made.ring)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def seconds_of_a_put(client: Client, topic: str) -> float:
    """The median of a few that no alarm cuts off, beside whatever else the machine does."""
    took = []
    for _ in range(MEASURED):
        before = time.perf_counter()
        client.put(topic, b"measured", timeout=PATIENCE)
        took.append(time.perf_counter() - before)
    return statistics.median(took)


def test_puts_under_alarms_lose_and_double_nothing_that_was_acknowledged(cluster: Embedded, alarms: Alarms) -> None:
    chance, topic = random.Random(22), "alarms"
    reader, client = cluster.client("alarms-reader"), cluster.client("alarms-writer")
    reader.subscribe(topic)
    sure: set[str] = set()
    struck = 0
    seconds = seconds_of_a_put(client, "others")

    for number in range(PUTS):
        if not number % MEASURED:
            seconds = seconds_of_a_put(client, "others")
        if alarms.put(client, topic, f"{number}".encode(), seconds * chance.uniform(*ALARM_PUTS)):
            sure.add(f"{number}")
        else:
            struck += 1
    client.put(topic, END.encode(), timeout=PATIENCE)
    got = Counter(until_end(reader, topic, END))
    client.close()
    reader.close()
    assert not {body for body, times in got.items() if times > 1}, "twice"
    assert not sure - got.keys(), "lost"
    assert struck >= PUTS // 40
