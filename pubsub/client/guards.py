"""List the functions that clean up after an exception from anywhere within them (`pubsub.client.steps`).

The frames of the stack tell if a call is within another one. No variable could tell: an exception of a signal handler
may come between the instant at which a call begins, or takes a lock, and the line that would record it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Set
from types import CodeType, FrameType
from typing import Any, Final

_guards: Final[set[CodeType]] = set()
"""Code of the functions that clean up."""

_runners: Final[set[CodeType]] = set()
"""Code of further such functions, which run handlers with calls that clean up themselves."""


def guards(function: Callable[..., Any]) -> None:
    """Register a function that calls `Session.recover` when an exception leaves it."""
    _guards.add(function.__code__)


def runs_handlers(function: Callable[..., Any]) -> None:
    """Register a call that runs an application's handlers and calls `Session.recover` when an exception leaves it."""
    _runners.add(function.__code__)


def within_call() -> bool:
    """Return True if the calling function runs within a call; the lock of that call must not be released here."""
    return _within(sys._getframe(2), _guards | _runners)


def within_guard() -> bool:
    """Return True within a nested call, made by a handler of `process` or of a signal."""
    return _within(sys._getframe(3), _guards)  # The caller of the function that called `recover`.


def _within(frame: FrameType | None, functions: Set[CodeType]) -> bool:
    while frame is not None:
        if frame.f_code in functions:
            return True
        frame = frame.f_back
    return False
