"""Fill an outbox for tests, and build answers to its messages."""

from __future__ import annotations

from random import Random

from pubsub.client.core.chain import Chain, Row
from pubsub.client.core.numbers import EPOCH_SECONDS, Numbers
from pubsub.client.core.outbox import Draft, Outbox
from pubsub.client.core.retries import Retries
from pubsub.protocol import Outcome, Status

LOG, OTHER = "00000000000000aa", "00000000000000bb"


def make(cuts: int = 0, window: int = 4, proxies: int = 2, bytes_max: int = 1 << 30, stored: int = 0) -> Outbox:
    numbers = Numbers(stored, lambda: EPOCH_SECONDS + 1.0, Random(1), lambda milliseconds: None)
    return Outbox(numbers, cuts, lambda: Retries(proxies, 3, 0.1), window, bytes_max)


def put(outbox: Outbox, *counts: int, topic: str = "t") -> list[Row]:
    draft = Draft(outbox)
    for count in counts:
        draft.add(topic, [b"x"] * count)
    outbox.accept(draft)
    return draft.rows


def status(outcome: Outcome, last: int = -1, log: str = LOG) -> Status:
    return Status("s1", outcome, last=last, log=log)


def flying(outbox: Outbox, *counts: int, until: float = 30.0) -> tuple[Chain, list[Row]]:
    rows = put(outbox, *counts)
    chain = outbox.wake("t", until, 0)
    assert sent(chain, 0.0) == rows[:4]
    return chain, rows


def sent(chain: Chain, now: float) -> list[Row]:
    """Return the rows sent now, from all messages."""
    return [row for message in chain.sendable(now) for row in message]
