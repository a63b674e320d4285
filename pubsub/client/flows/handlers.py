"""Check that a handler is of a kind that can run, before a call and after it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from pubsub.client.core.message import Message
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused

Handler = Callable[[Message, Transaction], None]
"""Type of the handlers of `Client.process`: a plain function. Its result is ignored."""

AsyncHandler = Callable[[Message, Transaction], Awaitable[None] | None]
"""Type of the handlers of `AsyncClient.process`: an `async def` function, or a plain one."""

ManyHandler = Callable[[list[Message], Transaction], None]
"""Type of the handlers of `Client.process_many`: a plain function. Its result is ignored."""

AsyncManyHandler = Callable[[list[Message], Transaction], Awaitable[None] | None]
"""Type of the handlers of `AsyncClient.process_many`: an `async def` function, or a plain one."""

ONE: Final = "(message, transaction)"
MANY: Final = "(messages, transaction)"
"""Parameters of a handler."""


def check_handler(handler: object, *, awaits: bool, takes: str = ONE) -> None:
    """Check, before a call, that calling a handler would run it.

    Args:
        handler: a function, a partial, or an object with `__call__`.
        awaits: True if its result is awaited.
        takes: its parameters, for the error.

    Raises:
        CallerError: it cannot be called.
        HandlerMisused: a call would run none of its code.
    """
    if not callable(handler):
        raise CallerError(f"handler is a function of {takes}, not {type(handler).__name__}")
    called = getattr(type(handler), "__call__", None)  # noqa: B004 - the kind of function matters, not its presence.
    if inspect.isgeneratorfunction(handler) or inspect.isgeneratorfunction(called):
        raise HandlerMisused("handler is a generator function (it has a yield), so a call runs nothing of it")
    if inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(called):
        raise HandlerMisused("handler is an async generator function (it has a yield), so a call runs nothing of it")
    if not awaits and (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)):
        raise HandlerMisused("handler is an async def function, which Client cannot await; AsyncClient.process does")


def check_result(result: object, *, awaits: bool) -> None:
    """Check, after a call, that the handler ran; close a coroutine that did not.

    Raises:
        HandlerMisused: the handler returned an object that has yet to run.
    """
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HandlerMisused("the handler returned a generator, so nothing of it has run; it was rolled back")
    if not awaits and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise HandlerMisused(
            "the handler returned an awaitable, which Client cannot await, so it was rolled back; "
            "AsyncClient.process awaits it"
        )
