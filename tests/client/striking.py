"""Raises an exception in the client's code at a chosen instruction, as a signal's handler does between any two."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pubsub.client
import pubsub.messenger

FOLDERS = tuple(str(Path(package.__file__ or "").parent) for package in (pubsub.client, pubsub.messenger))


# Python 3.12 tells of instructions only where a frame had asked for them before `settrace`.
sys._getframe().f_trace_opcodes = True

LINES = sys.version_info >= (3, 13)
"""Python 3.13 does not tell of all instructions of a function by itself, least when it is called for the first time. So
there the beginnings of its lines count, too."""


class Strike(BaseException):
    """What the handler of a signal raises."""


@cache
def _checked(code: CodeType) -> frozenset[int]:
    """The instructions before which the interpreter may look for signals: behind a call, a beginning, a jump back."""
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
        at: which, from 1; 0: none.
        everywhere: at all instructions, where else at those only where the interpreter looks for signals.
        kind: what is raised.
        within: the only function whose own instructions count; None: all of the client's.
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
        """Make a call under it."""
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            return call()
        finally:
            sys.settrace(before)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """What `sys.settrace` takes."""
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
