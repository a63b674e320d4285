"""Run the steps of a call where the session wants them: here, or on a thread of their own (see `step_thread`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from pubsub.client.flows.flow import Flow, Result, Wait
from pubsub.client.session import Session

Returned = TypeVar("Returned")


class Waits(Protocol):
    """Lets coroutines wait, as `Awaited` does."""

    async def wait(self, wait: Wait) -> bool:
        """Wait; return True if the condition was met in time."""


async def apart(session: Session, work: Callable[[], Returned]) -> Returned:
    """Run a step, and return its result. Within an open transaction of this thread it runs here."""
    thread = session.thread
    return work() if thread is None or session.held_here else await thread.run(work)


async def run_apart(session: Session, awaited: Waits, flow: Flow[Result]) -> Result:
    """Run a call's flow, each of its steps apart."""
    done: bool | None = None
    try:
        while True:
            wait, result = await apart(session, partial(_advance, flow, done))
            if wait is None:
                return result  # type: ignore[no-any-return]
            done = await awaited.wait(wait)
    except GeneratorExit:
        flow.close()
        raise
    except BaseException:
        await apart(session, flow.close)
        raise


def _advance(flow: Flow[Any], done: bool | None) -> tuple[Wait | None, Any]:
    """Return the next wait of a flow, or None and its result."""
    try:
        return (next(flow) if done is None else flow.send(done)), None
    except StopIteration as stop:
        return None, stop.value
