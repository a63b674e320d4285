"""Define flows: each call is written once, and runs on a thread or on asyncio.

A flow is a generator that does the work of one call and yields a `Wait` when it must wait. It is sent True if the
condition was met before the deadline. `Client` drives the sockets during a wait, and `AsyncClient` awaits a future.
Neither knows anything about puts and gets.

The rule is docs/explanation/client-session.md, D3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(slots=True)
class Wait:
    """A wait until `done()` or `deadline` (monotonic clock). `done` takes no lock and changes nothing."""

    done: Callable[[], bool]
    deadline: float


Flow = Generator[Wait, bool, Result]
