"""Calls as flows: written once, driven by a thread or by asyncio.

A flow is a generator that does the work of one call and yields a `Wait` wherever it has to wait; it is sent whether
what it waited for has come about before the deadline. `Client` drives a flow by driving the sockets, `AsyncClient` by
awaiting a future, and neither knows what a put or a get is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(slots=True)
class Wait:
    """Wait until `done()`, which takes no lock and changes nothing, or until `deadline`, on the monotonic clock."""

    done: Callable[[], bool]
    deadline: float


Flow = Generator[Wait, bool, Result]
