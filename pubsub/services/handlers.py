"""What does the work of a request: a handler, a function or coroutine of the application, and what it is given."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pubsub.errors import HandlerMisused
from pubsub.services.calling import Body, frames_of
from pubsub.services.core.interface import Frames


class Request:
    """What a handler is given.

    Attributes:
        frames: the body as it came; nearly always one frame.
        service: the service that was asked for, "" where the pattern names none.
    """

    __slots__ = ("_part", "frames", "service")

    def __init__(self, frames: Frames, service: str, part: Callable[[Frames], None]) -> None:
        self.frames, self.service, self._part = frames, service, part

    @property
    def body(self) -> bytes:
        """The frames as one."""
        return self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)

    def part(self, body: Body) -> None:
        """Send a part of the reply; where the pattern knows whole replies only, parts go out with what is returned.

        Raises:
            CallerError, TooLarge: it is no body.
        """
        self._part(frames_of(body, "a part of a reply"))


Handler = Callable[[Request], Body]
AsyncHandler = Callable[[Request], Awaitable[Body]]


def echo(request: Request) -> Body:
    """The handler of a worker that has none: the request is its reply."""
    return request.frames


def check_handler(handler: Callable[[Request], Any], *, coroutines: bool) -> None:
    """See that a handler can be run at all.

    Raises:
        HandlerMisused: it cannot.
    """
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.iscoroutinefunction(function) and not coroutines:
        raise HandlerMisused("the handler is a coroutine function: run it by await worker.serve()")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerMisused("the handler is a generator function: return the reply, and send parts by request.part()")


def awaited(result: object) -> object:
    """What a handler gave, in a thread.

    Raises:
        HandlerMisused: it is to be awaited.
    """
    if not isinstance(result, (bytes, tuple, list)) and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise HandlerMisused("the handler gave something to be awaited: run it by await worker.serve()")
    return result
