"""Long polls: the next batch of a subscriber, and its confirmation (docs/http.md, *Receive*).

A batch that is not confirmed is what the next poll gets, with the same messages under the same IDs, whatever became of
the answer or of the gateway in between.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final
from urllib.parse import quote

from pubsub.client import Transaction
from pubsub.errors import Unavailable
from pubsub.gateway.limits import POLL_RECORDS_MAX
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.problems import Problem

LEAST_SECONDS: Final = 0.25
"""Patience of a poll that does not wait: the service must be asked once."""

ANSWER_SECONDS: Final = 5.0
"""The service may take so long for an answer however short a poll waits: a busy one is not an unreachable one."""


async def next_batch(mailbox: Mailbox, most: int, seconds: float) -> list[Mail]:
    """The batch that is handed out: the one that is not confirmed, else a new one; empty where nothing came.

    Args:
        mailbox: the subscriber's.
        most: messages of a new batch.
        seconds: patience.

    Raises:
        As `Mailbox.take`.
    """
    place = mailbox.place()
    if place.opened > place.confirmed:
        return mailbox.after(place.confirmed, POLL_RECORDS_MAX, place.opened)
    kept = mailbox.after(place.confirmed, most)  # A stream has taken them, and nobody confirmed them.
    if kept:
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
    """Take a batch, and what came before it; once more is fine.

    Raises:
        Problem: there was no such batch.
    """
    place = mailbox.place()
    if number > place.last or number < 1:
        raise Problem("not-found", "There was no such batch of this subscriber.")
    if number > place.confirmed:
        await mailbox.confirm(number)


def confirmation(topic: str, name: str, number: int) -> str:
    """The path whose DELETE confirms a batch."""
    return f"/topics/{quote(topic, safe='')}/subscribers/{quote(name, safe='')}/batches/{number}"


async def first_of(*waits: asyncio.Future[object]) -> None:
    """Wait until one of these is done, and cancel the others."""
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            if not wait.done():
                wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
