"""Calls handlers on threads or on the event loop, and passes their answers to waiting requests."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any, Final

from pubsub.base.handler_errors import located
from pubsub.client.flows.awaiting import Watched
from pubsub.errors import HandlerMisused, StorageError
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.incoming import Incoming, Standing
from pubsub.http.core.outgoing import Outgoing
from pubsub.http.receiving import Name, Receiving
from pubsub.http.routes import Handler, Request, Routes, as_answer, as_request
from pubsub.http.sending import Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage.handling import HandlerTransaction
from pubsub.web.pump import Pump, StoreThread

_log: Final = logging.getLogger("pubsub.http")


class Handling:
    """Connects the inbox with the handlers.

    Args:
        receiving: the inbox; sending: the outbox beside it.
        routes: the handlers.
        settings: limits and times.
        store: the thread that uses inbox and outbox.
        sent: called when the outbox has new requests.
    """

    def __init__(
        self,
        receiving: Receiving,
        sending: Sending,
        routes: Routes,
        settings: HttpSettings,
        store: StoreThread,
        sent: Callable[[], None],
    ) -> None:
        self._receiving, self._sending, self._routes, self._settings = receiving, sending, routes, settings
        self._store, self._sent = store, sent
        self._pump: Pump[Name] = Pump("handlers", store, receiving, self._do)
        self._threads = ThreadPoolExecutor(settings.handlers_at_once, thread_name_prefix="http-handler")
        self._waiters: dict[Name, list[asyncio.Future[Answer]]] = {}

    def start(self) -> None:
        """Start on the running event loop, with the requests that an earlier process left."""
        self._pump.start()

    def wake(self) -> None:
        self._pump.wake()

    def answer(self, name: Name) -> asyncio.Future[Answer]:
        """Return a future of a handler's answer. Call this before the request is stored."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(name, []).append(future)
        return future

    def drop(self, name: Name, future: asyncio.Future[Answer]) -> None:
        waiting = self._waiters.get(name, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._waiters.pop(name, None)

    def _tell(self, name: Name, answer: Answer) -> None:
        for future in self._waiters.pop(name, []):
            if not future.done():
                future.set_result(answer)

    async def _do(self, name: Name) -> None:
        try:
            request = await self._store(self._receiving.find, *name)
            if request is None or request.standing is not Standing.RECEIVED:
                return
            after = await self._attempt(name, request)
        except StorageError:
            self._tell(name, problem(503, "the receiver's disk failed", "", 5))
            raise
        if after is None:
            self._tell(name, problem(410, "this request was forgotten"))
        elif after.standing is Standing.RECEIVED:
            wait = ceil(max(1.0, after.due - await self._store(self._receiving.journal.now)))
            self._tell(name, problem(500, "the handler failed and is called again later", "", wait))
        else:
            assert after.answer is not None
            self._tell(name, after.answer)

    async def _attempt(self, name: Name, request: Incoming) -> Incoming | None:
        """Call the handler, and return the request's new state.

        Raises:
            StorageError: the disk failed, also for storing the handler's failure.
        """
        counts = True
        try:
            queued = await self._call(name, request)
        except StorageError as error:
            failed: BaseException = error
            counts = False
        except Exception as error:  # noqa: BLE001 - any exception is a failure of the handler.
            failed = error
        except (asyncio.CancelledError, SystemExit) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            failed = error  # The handler raised it itself, and that must not end the other handlers.
        else:
            await self._store(self._receiving.committed, request, queued)
            if queued:
                self._sent()
            return await self._store(self._receiving.find, *name)
        text = f"{type(failed).__name__}: {failed}"[:500]
        _log.warning("handler of %s failed on %s, attempt %d: %s", request.path, name[1], request.attempts + 1,
                     located(failed, text))  # fmt: skip
        _log.debug("handler of %s failed on %s", request.path, name[1], exc_info=failed)
        after = await self._store(self._receiving.failed, name, text, counts=counts)
        self._sent()
        return after

    async def _call(self, name: Name, request: Incoming) -> list[Outgoing]:
        found = self._routes.find(request.kind, request.path)
        if found is None:
            raise HandlerMisused(f"there is no handler for a {request.kind} to {request.path} any more; add one")
        route, params = found
        asked = as_request(request, params)
        if inspect.iscoroutinefunction(route.handler):
            return await self._on_loop(name, route.handler, asked)
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, self._on_thread, name, route.handler, asked))

    def _on_thread(self, name: Name, handler: Handler, request: Request) -> list[Outgoing]:
        transaction = HandlerTransaction(self._receiving.journal)
        try:
            returned: Any = handler(request, transaction)
            if inspect.isawaitable(returned):
                raise HandlerMisused("a plain handler returned an awaitable; declare it as `async def`")
            return self._commit(name, transaction, returned)
        except BaseException as error:
            self._undo(transaction, error)
            raise

    async def _on_loop(self, name: Name, handler: Handler, request: Request) -> list[Outgoing]:
        transaction = HandlerTransaction(self._receiving.journal)
        try:
            returned: Any = await Watched(handler(request, transaction), transaction, lambda: None)  # type: ignore[arg-type]
            return self._commit(name, transaction, returned)
        except BaseException as error:
            self._undo(transaction, error)
            raise

    def _commit(self, name: Name, transaction: HandlerTransaction, returned: Any) -> list[Outgoing]:
        answer = as_answer(returned, self._settings.response_bytes_max)

        def finish(open_: Any) -> None:
            result = self._receiving.done(open_, name, answer)
            if result is not None:
                transaction.queued.append(result)

        transaction.commit(finish)
        return transaction.queued

    def _undo(self, transaction: HandlerTransaction, error: BaseException) -> None:
        try:
            if transaction.open:
                transaction.roll_back(error=error)
        finally:
            for one in transaction.queued:
                self._sending.withdrawn(one)

    async def close(self) -> None:
        """Stop calling handlers. A handler running on a thread finishes, and its commit counts."""
        await self._pump.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
