"""Long polls: the next batch of a subscriber, and its confirmation (docs/http.md, *Receive*).

The next poll repeats an unconfirmed batch, with the same messages under the same IDs. This holds even if the response
was lost or the gateway restarted in between.

The rule is docs/explanation/gateway.md, H6.
"""

from __future__ import annotations

import asyncio
from itertools import takewhile
from time import monotonic
from typing import Final
from urllib.parse import quote

from pubsub.client import Transaction
from pubsub.errors import Unavailable
from pubsub.gateway.limits import POLL_RECORDS_MAX
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.problems import Problem

LEAST_SECONDS: Final = 0.25
"""Least wait of a poll, so that the service is asked once."""

ANSWER_SECONDS: Final = 5.0
"""Time for an answer of the service, even if a poll waits less: a slow service differs from an unreachable one."""


async def next_batch(mailbox: Mailbox, most: int, seconds: float) -> list[Mail]:
    """Return the unconfirmed batch, or a new one, empty if no message arrived.

    Args:
        mailbox: of the subscriber.
        most: limit of messages in a new batch.
        seconds: longest wait.

    Raises:
        As `Mailbox.take`.
    """
    place = mailbox.place()
    if place.opened > place.confirmed:
        return mailbox.after(place.confirmed, POLL_RECORDS_MAX, place.opened)
    kept = mailbox.after(place.confirmed, most)  # A stream has taken them without a confirmation.
    if kept:
        kept = list(takewhile(lambda mail: mail.source == kept[0].source, kept))
        _open(mailbox, kept[-1].number)
        return kept
    started = monotonic()
    deadline = started + max(seconds, LEAST_SECONDS)
    while True:
        try:
            taken = await mailbox.take(most, max(0.0, deadline - monotonic()), opened=True)
        except Unavailable:
            if monotonic() >= started + ANSWER_SECONDS:
                raise
            deadline = monotonic() + LEAST_SECONDS
            continue
        return mailbox.after(place.last, most) if taken else []


def _open(mailbox: Mailbox, number: int) -> None:
    def write(transaction: Transaction) -> None:
        transaction.execute("UPDATE gateway_place SET opened = ? WHERE topic = ?", (number, mailbox.topic))

    mailbox.client.write(write)


async def confirm(mailbox: Mailbox, number: int) -> None:
    """Confirm a batch and all before it; may be repeated.

    Raises:
        Problem: there was no such batch.
    """
    place = mailbox.place()
    if number > place.last or number < 1:
        raise Problem("not-found", "This subscriber never had that batch; use confirm of a batch.")
    if number > place.confirmed:
        await mailbox.confirm(number)


def confirmation(topic: str, name: str, number: int) -> str:
    """Return the path that confirms a batch by DELETE."""
    return f"/topics/{quote(topic, safe='')}/subscribers/{quote(name, safe='')}/batches/{number}"


async def first_of(*waits: asyncio.Future[object]) -> None:
    """Wait until one of the futures is done, and cancel the others."""
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            if not wait.done():
                wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
