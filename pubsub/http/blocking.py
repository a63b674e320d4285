"""Reliable HTTP requests for programs that block: the same as for asyncio, on an event loop of its own thread.

A signal strikes the main thread, which here does nothing but wait; so Ctrl-C can cut off no commit, and the caller is
told under which name the request is kept.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from pubsub.base import forks
from pubsub.errors import AfterFork, CallerError
from pubsub.http.clock import HttpClock
from pubsub.http.core.answers import Answer
from pubsub.http.core.outgoing import Outgoing
from pubsub.http.sender import AsyncReliableHttp
from pubsub.http.settings import HttpSettings

NOTE_SECONDS: Final = 0.5
"""After an interrupt, so long is waited for the commit under way, to say whether the request is kept."""

END_SECONDS: Final = 5.0
"""After the outbox is closed, so long is waited for calls of other threads, which end with that."""

T = TypeVar("T")


class _Outcome(Generic[T]):
    """What a call comes to that runs on the event loop's thread, for another thread that waits.

    It is no `Future`: a signal's exception can leave the lock within one taken by who waits, and then the event loop
    would wait for that lock for ever. Here there is but one lock, which is opened at the end.

    Attributes:
        done: whether it has ended; error: by which exception, or None.
    """

    def __init__(self) -> None:
        self._ended = threading.Lock()
        self._ended.acquire()
        self._value: list[T] = []
        self.error: BaseException | None = None
        self.done = False

    def settle(self, value: list[T], error: BaseException | None) -> None:
        """It has ended: by one value, or by an exception."""
        self._value, self.error = value, error
        self.done = True
        self._ended.release()

    def wait(self, seconds: float = -1) -> None:
        """Wait until it has ended, for so long at most; -1: however long that takes."""
        if not self.done:
            self._ended.acquire(timeout=seconds)

    def result(self) -> T:
        """Its value, or its exception raised; it has ended."""
        if self.error is not None:
            raise self.error
        return self._value[0]


class ReliableHttp:
    """Sends HTTP requests, each of which happens once, whatever is killed when (docs/http.md, *Reliable requests*).

    What an earlier process left open in the directory goes on at once. Every call may be made from any thread.

    Args: as `AsyncReliableHttp`'s.

    Raises:
        StorageError: the directory cannot be used; StoreInUse where another process has it open.
        ConfigurationError: the local URL of a job that is open cannot be answered.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        token: str = "",
        settings: HttpSettings | None = None,
        verify: ssl.SSLContext | bool = True,
        insecure: bool = False,
        clock: HttpClock | None = None,
        random: Random | None = None,
    ) -> None:
        self._inner = AsyncReliableHttp(
            directory, token=token, settings=settings, verify=verify, insecure=insecure, clock=clock, random=random
        )
        self.directory = self._inner.directory
        self._inherited: AfterFork | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="reliable-http", daemon=True)
        self._thread.start()
        forks.watch(self)
        try:
            self._call(self._inner.start())
        except BaseException:
            self.close()
            raise

    def put(
        self,
        url: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """PUT a body and wait for the response; see `AsyncReliableHttp.put`. Ctrl-C leaves the request kept."""
        return self._call(self._inner.put(url, body, key=key, headers=headers, timeout=timeout))

    def send(
        self,
        url: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """POST a message and wait until the receiver has stored it; see `AsyncReliableHttp.send`."""
        self._call(self._inner.send(url, body, key=key, headers=headers, timeout=timeout))

    def perform_job(
        self,
        url: str,
        local_url: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        listen: bool = True,
    ) -> Answer:
        """POST a job and wait for its result; see `AsyncReliableHttp.perform_job`."""
        job = self._inner.perform_job(url, local_url, body, key=key, headers=headers, timeout=timeout, listen=listen)
        return self._call(job)

    def requests(self, *, open_only: bool = True) -> list[Outgoing]:
        """The requests that the directory holds; see `AsyncReliableHttp.requests`."""
        return self._call(self._inner.requests(open_only=open_only))

    def resume(self, timeout: float | None = None) -> list[Outgoing]:
        """Wait until everything that is open now is settled; see `AsyncReliableHttp.resume`."""
        return self._call(self._inner.resume(timeout))

    def forget(self, request: str) -> bool:
        """Give a request up; see `AsyncReliableHttp.forget`."""
        return self._call(self._inner.forget(request))

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        if self._inherited is not None or self._loop.is_closed():
            call.close()
            raise self._inherited or CallerError(f"{self.directory} is closed")
        return self._wait_for(call)

    def _wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        ended = _Outcome[T]()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                ended.settle([await call], None)
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it, a cancellation with its notes too.
                ended.settle([], error)

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        try:
            ended.wait()
        except BaseException as error:
            if not ended.done:  # A signal's, which struck this thread while it waited.
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                ended.wait(NOTE_SECONDS)
                for note in getattr(ended.error, "__notes__", ()):
                    error.add_note(note)
            raise
        return ended.result()

    def close(self) -> None:
        """End what is under way; what is not settled stays in the outbox. A second call does nothing."""
        if self._loop.is_closed() or self._inherited is not None:
            return
        try:
            self._wait_for(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        """Close, and let the calls of other threads end with that; if the loop stopped before, they would hang."""
        try:
            await self._inner.close()
        finally:
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            if calls:
                await asyncio.wait(calls, timeout=END_SECONDS)

    def forked(self, parent: int) -> None:
        """This is a child of process `parent`: of no use here."""
        self._inherited = AfterFork(f"{self.directory}", parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
