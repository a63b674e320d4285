"""Handlers: functions or coroutines of the application that answer requests, and the request that they receive."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pubsub.errors import HandlerMisused
from pubsub.services.calling import Body, frames_of
from pubsub.services.core.interface import Frames


class Request:
    """A request as a handler receives it.

    Attributes:
        frames: the frames of the body, nearly always one.
        service: name of the called service, "" if the pattern names none.
    """

    __slots__ = ("_part", "frames", "service")

    def __init__(self, frames: Frames, service: str, part: Callable[[Frames], None]) -> None:
        self.frames, self.service, self._part = frames, service, part

    @property
    def body(self) -> bytes:
        """The frames, joined."""
        return self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)

    def part(self, body: Body) -> None:
        """Send a part of the reply. Patterns without parts send the parts together with the returned body.

        Raises:
            CallerError, TooLarge: the part is not a valid body.
        """
        self._part(frames_of(body, "a part of a reply"))


Handler = Callable[[Request], Body]
AsyncHandler = Callable[[Request], Awaitable[Body]]


def echo(request: Request) -> Body:
    """The handler of a worker without one: the reply is the request."""
    return request.frames


def check_handler(handler: Callable[[Request], Any], *, coroutines: bool) -> None:
    """Check before the first request that a handler can run.

    Raises:
        HandlerMisused: the handler is a generator function, or a coroutine function without `coroutines`.
    """
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.iscoroutinefunction(function) and not coroutines:
        raise HandlerMisused("the handler is a coroutine function: run the worker with await worker.serve()")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerMisused(
            "the handler is a generator function: return the reply, and send parts with request.part()"
        )


def awaited(result: object) -> object:
    """Return the result of a plain handler.

    Raises:
        HandlerMisused: the result is awaitable.
    """
    if not isinstance(result, (bytes, tuple, list)) and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise HandlerMisused("the handler returned an awaitable: run the worker with await worker.serve()")
    return result
