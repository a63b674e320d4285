"""Reliable HTTP requests for blocking programs: the asyncio version on an event loop in a thread of its own.

Python delivers signals to the main thread, which only waits here. Ctrl-C therefore cannot interrupt a commit, and the
caller learns the name of the kept request.
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
"""Wait for a running commit after an interrupt, to report whether the request is kept."""

END_SECONDS: Final = 5.0
"""Wait for calls of other threads after the outbox is closed."""

T = TypeVar("T")


class _Outcome(Generic[T]):
    """The result of a call on the event loop's thread, for another thread that waits.

    It is not a `Future`: a signal's exception in the waiting thread could leave the Future's lock held, and the event
    loop would wait for it permanently. Here there is only one lock, and it is released at the end.

    Attributes:
        done: the call has ended; error: its exception, or None.
    """

    def __init__(self) -> None:
        self._ended = threading.Lock()
        self._ended.acquire()
        self._value: list[T] = []
        self.error: BaseException | None = None
        self.done = False

    def settle(self, value: list[T], error: BaseException | None) -> None:
        self._value, self.error = value, error
        self.done = True
        self._ended.release()

    def wait(self, seconds: float = -1) -> None:
        """Wait until the call ends, at most `seconds`; -1: without a limit."""
        if not self.done:
            self._ended.acquire(timeout=seconds)

    def result(self) -> T:
        """Return the value or raise the exception; only after the end of the call."""
        if self.error is not None:
            raise self.error
        return self._value[0]


class ReliableHttp:
    """Sends HTTP requests that have their effect exactly once (docs/http.md, *Reliable requests*).

    Open requests of an earlier process in the directory continue at once. Any thread may make any call.

    Args: as `AsyncReliableHttp`'s.

    Raises:
        StorageError: the directory cannot be used; StoreInUse if another process has it open.
        ConfigurationError: the server for the local URL of an open job cannot start.
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
        """PUT a body and wait for the response; see `AsyncReliableHttp.put`. After Ctrl-C the request is kept."""
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
        """Return the requests of the directory; see `AsyncReliableHttp.requests`."""
        return self._call(self._inner.requests(open_only=open_only))

    def resume(self, timeout: float | None = None) -> list[Outgoing]:
        """Wait until all requests that are open now are settled; see `AsyncReliableHttp.resume`."""
        return self._call(self._inner.resume(timeout))

    def forget(self, request: str) -> bool:
        """Give up a request; see `AsyncReliableHttp.forget`."""
        return self._call(self._inner.forget(request))

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        if self._inherited is not None or self._loop.is_closed():
            call.close()
            raise self._inherited or CallerError(f"{self.directory} is closed; open it again")
        return self._wait_for(call)

    def _wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        ended = _Outcome[T]()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                ended.settle([await call], None)
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it, with its notes.
                ended.settle([], error)

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        try:
            ended.wait()
        except BaseException as error:
            if not ended.done:  # A signal raised it in this waiting thread.
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                ended.wait(NOTE_SECONDS)
                for note in getattr(ended.error, "__notes__", ()):
                    error.add_note(note)
            raise
        return ended.result()

    def close(self) -> None:
        """Stop sending. Unsettled requests stay in the outbox. A second call does nothing."""
        if self._loop.is_closed() or self._inherited is not None:
            return
        try:
            self._wait_for(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        """Close, and wait for the calls of other threads: they would hang if the loop stopped first."""
        try:
            await self._inner.close()
        finally:
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            if calls:
                await asyncio.wait(calls, timeout=END_SECONDS)

    def forked(self, parent: int) -> None:
        """Make this object unusable in a child of process `parent`."""
        self._inherited = AfterFork(f"{self.directory}", parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
