"""Raise an exception in the client's code at a chosen instruction, as a signal handler may between any two."""

from __future__ import annotations

import dis
import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

import pubsub.client
import pubsub.messenger

FOLDERS = tuple(str(Path(package.__file__ or "").parent) for package in (pubsub.client, pubsub.messenger))


# Python 3.12 tells of instructions only where a frame had asked for them before `settrace`.
sys._getframe().f_trace_opcodes = True

LINES = sys.version_info >= (3, 13)
"""Count the beginnings of lines too: Python 3.13 does not report all instructions of a function, least of all at its
first call.
"""


SOME = 8
"""Interrupted instructions of one function by day; by night all of them are."""

by_day_some = pytest.mark.parametrize(
    "sample", [pytest.param(SOME, id=""), pytest.param(None, id="all", marks=pytest.mark.nightly)]
)
"""For a test that interrupts at `places(count, sample, seed)`."""


def places(count: int, sample: int | None, seed: int) -> list[int]:
    """Return numbers of instructions from 1 to a count, in order: so many of them, or all."""
    if sample is None:
        return list(range(1, count + 1))
    return sorted(random.Random(seed).sample(range(1, count + 1), min(count, sample)))


class Strike(BaseException):
    """The exception of the signal handler."""


@cache
def _checked(code: CodeType) -> frozenset[int]:
    """Return the instructions at which the interpreter may check for signals: after calls, at starts and jumps back."""
    found, before = set(), ""
    for instruction in dis.get_instructions(code):
        if before.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "PRECALL")):
            found.add(instruction.offset)
        if instruction.opname != "CACHE":
            before = instruction.opname
    return frozenset(found)


class Striker:
    """Counts the instructions of the client's code on this thread, and raises at the chosen one.

    Args:
        at: number of the instruction, from 1; 0: none.
        everywhere: count all instructions; otherwise only those at which the interpreter checks for signals.
        kind: the exception to raise.
        within: count only the instructions of this function; None: of all the client's code.
    """

    def __init__(
        self,
        at: int,
        *,
        everywhere: bool = False,
        kind: type[BaseException] = Strike,
        within: FunctionType | None = None,
    ) -> None:
        self.at, self.count, self.place = at, 0, ""
        self._everywhere, self._kind = everywhere, kind
        self._code = None if within is None else within.__code__

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call under the striker."""
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            return call()
        finally:
            sys.settrace(before)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The callback of `sys.settrace`."""
        if not frame.f_code.co_filename.startswith(FOLDERS) or self._code not in {None, frame.f_code}:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, LINES and self._code is not None
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        looks = event == "opcode" and (self._everywhere or frame.f_lasti in _checked(frame.f_code))
        if looks or event == "line":
            self.count += 1
            if self.count == self.at:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_qualname}"
                sys.settrace(None)
                raise self._kind
        return self._step
