"""Which calls look after what an exception leaves behind, however deep in them it strikes (`pubsub.client.steps`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

_guards: Final[set[CodeType]] = set()
"""The functions that look after what an exception leaves behind."""


def guards(function: Callable[..., Any]) -> None:
    """A function has `Session.recover` called where an exception leaves it."""
    _guards.add(function.__code__)


def within_guard() -> bool:
    """Whether this is a call within a call: of a handler of `process`, or of a signal's."""
    frame = sys._getframe(3)  # The caller of the function that called `recover`.
    while frame is not None:
        if frame.f_code in _guards:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
