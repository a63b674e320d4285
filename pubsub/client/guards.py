"""Which calls look after what an exception leaves behind, however deep in them it strikes (`pubsub.client.steps`).

The frames of the stack tell whether a call is within another one. No variable could: an exception of a signal's handler
may strike between the instant in which a call begins, or takes a lock, and the line that would note it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Set
from types import CodeType, FrameType
from typing import Any, Final

_guards: Final[set[CodeType]] = set()
"""The functions that look after what an exception leaves behind."""

_runners: Final[set[CodeType]] = set()
"""Further ones that do, and run handlers whose calls look after themselves."""


def guards(function: Callable[..., Any]) -> None:
    """A function has `Session.recover` called where an exception leaves it."""
    _guards.add(function.__code__)


def runs_handlers(function: Callable[..., Any]) -> None:
    """A call runs an application's handlers, and has `Session.recover` called where an exception leaves it."""
    _runners.add(function.__code__)


def within_call() -> bool:
    """Whether the function that asks was called within a call: where that has the lock, it is not to be given back."""
    return _within(sys._getframe(2), _guards | _runners)


def within_guard() -> bool:
    """Whether this is a call within a call: of a handler of `process`, or of a signal's."""
    return _within(sys._getframe(3), _guards)  # The caller of the function that called `recover`.


def _within(frame: FrameType | None, functions: Set[CodeType]) -> bool:
    while frame is not None:
        if frame.f_code in functions:
            return True
        frame = frame.f_back
    return False
