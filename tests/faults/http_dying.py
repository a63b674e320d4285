"""Ends the own process by SIGKILL at a named point of reliable HTTP: `HTTP_DIE=settled:2`, at the second time there."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from typing import Any, Final

import pubsub.http.receiver
from pubsub.http.delivery import Delivery
from pubsub.http.receiving import Receiving
from pubsub.http.results import Results
from pubsub.http.sending import Sending

VARIABLE: Final = "HTTP_DIE"

RECEIVER: Final[dict[str, tuple[Any, str, str]]] = {
    "request is read": (Receiving, "arrive", "before"),
    "request is stored": (Receiving, "arrive", "after"),
    "receipt is written": (Receiving, "done", "after"),
    "receipt is committed": (Receiving, "committed", "before"),
    "receipt is counted": (Receiving, "committed", "after"),
    "answer is due": (pubsub.http.receiver, "respond", "before"),
    "answer is out": (pubsub.http.receiver, "respond", "after"),
    "confirmation is read": (Receiving, "confirm", "before"),
    "confirmation is stored": (Receiving, "confirm", "after"),
    "result is due": (Delivery, "_exchange", "before"),
    "result is answered": (Delivery, "_exchange", "after"),
    "result is settled": (Sending, "answered", "after"),
}
SENDER: Final[dict[str, tuple[Any, str, str]]] = {
    "request is asked for": (Sending, "submit", "before"),
    "request is in the outbox": (Sending, "submit", "after"),
    "request is due": (Delivery, "_exchange", "before"),
    "request is answered": (Delivery, "_exchange", "after"),
    "request is settled": (Sending, "answered", "after"),
    "confirmation is due": (Delivery, "_confirm", "before"),
    "confirmation is answered": (Sending, "confirmed", "before"),
    "confirmation is noted": (Sending, "confirmed", "after"),
    "result has come": (Results, "_take", "before"),
    "result is written": (Sending, "result", "after"),
    "result is stored": (Results, "_take", "after"),
}
"""Point -> what is called there, and whether it is before or after that."""


def die_where_told() -> None:
    """Read the variable, and die there."""
    point, _, count = os.environ.get(VARIABLE, "").rpartition(":")
    if not point:
        return
    place, name, when = {**RECEIVER, **SENDER}[point]
    true = getattr(place, name)
    left = [int(count)]

    def die() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(true)
    def plain(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        found = true(*arguments, **named)
        if when == "after":
            die()
        return found

    @functools.wraps(true)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        found = await true(*arguments, **named)
        if when == "after":
            die()
        return found

    setattr(place, name, awaited if inspect.iscoroutinefunction(true) else plain)
