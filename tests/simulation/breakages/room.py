"""Deliberate breakages: the simulator must find each, or its silence proves too little.

Each takes one rule of the design out of the shipped code, in place, for the length of a run. The breakages of one
folder of the code are in one module, which begins with `breakage = Room()`; `table` joins them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Breakage = Callable[[contextlib.ExitStack], None]


class Room:
    """Registers the breakages of one room, as the decorator of each.

    Args:
        prefix: of their titles.

    Attributes:
        breakages: each breakage by its title; it is undone when its stack is closed.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.breakages: dict[str, Breakage] = {}

    def __call__(self, title: str) -> Callable[[Breakage], Breakage]:
        """Register a breakage under its title."""

        def register(function: Breakage) -> Breakage:
            self.breakages[self.prefix + title] = function
            return function

        return register


def substitute(stack: contextlib.ExitStack, target: Any, name: str, value: Any) -> None:
    """Have a name of a module or class be another thing, until the stack is closed."""
    stack.enter_context(mock.patch.object(target, name, value))
