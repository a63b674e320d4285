"""Reliable HTTP requests for programs that block: the same as for asyncio, on an event loop of its own thread.

A signal strikes the main thread, which here does nothing but wait; so Ctrl-C can cut off no commit, and the caller is
told under which name the request is kept.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

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
        ended: Future[T] = Future()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                ended.set_result(await call)
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it, a cancellation with its notes too.
                ended.set_exception(error)

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        try:
            return ended.result()
        except BaseException as error:
            if not ended.done():  # A signal's, which struck this thread while it waited.
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                wait([ended], NOTE_SECONDS)
                for note in getattr(ended.exception(), "__notes__", ()) if ended.done() else ():
                    error.add_note(note)
            raise

    def close(self) -> None:
        """End what is under way; what is not settled stays in the outbox. A second call does nothing."""
        if self._loop.is_closed() or self._inherited is not None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
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
