"""Alarms as time-outs of puts: nothing acknowledged is lost or doubled, and the client continues after each."""

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
from tests.client.interrupted_steps import END, until_end
from tests.client.opened import PATIENCE

PUTS: Final = 400
ALARM_PUTS: Final = (0.1, 18.0)
"""Times until an alarm, as multiples of a put's time. Most puts succeed before: about one in ten is interrupted."""
MEASURED: Final = 10
"""Number of puts for the median time of one, measured again after as many under alarms."""


class Alarm(Exception):
    """The exception of the signal handler."""


class Alarms:
    """Calls that an alarm interrupts."""

    armed = False

    def ring(self, *_: object) -> None:
        """The signal handler. It raises only within the call, since an alarm may come as the call returns."""
        if self.armed:
            self.armed = False
            raise Alarm

    def put(self, client: Client, topic: str, body: bytes, seconds: float) -> bool:
        """Put with an alarm after so long; return True if the put was acknowledged."""
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
    """Return the median time of a few puts without alarms, on a machine that may be busy."""
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
    was_interrupted = 0
    seconds = seconds_of_a_put(client, "others")

    for number in range(PUTS):
        if not number % MEASURED:
            seconds = seconds_of_a_put(client, "others")
        if alarms.put(client, topic, f"{number}".encode(), seconds * chance.uniform(*ALARM_PUTS)):
            sure.add(f"{number}")
        else:
            was_interrupted += 1
    client.put(topic, END.encode(), timeout=PATIENCE)
    got = Counter(until_end(reader, topic, END))
    client.close()
    reader.close()
    assert not {body for body, times in got.items() if times > 1}, "twice"
    assert not sure - got.keys(), "lost"
    assert was_interrupted >= PUTS // 40
