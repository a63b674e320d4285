"""Reliable HTTP requests for asyncio: each request is stored before its first byte is sent."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom
from shlex import quote
from types import TracebackType
from typing import Final, Self

from pubsub.base.patched import refuse_patched
from pubsub.base.paths import expanded
from pubsub.base.urls import masked
from pubsub.errors import CallerError, PubsubError
from pubsub.http.checking import check_draft, outcome
from pubsub.http.clock import HttpClock, MachineClock
from pubsub.http.core.answers import Answer
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.delivery import Access, Delivery
from pubsub.http.errors import RequestKept
from pubsub.http.results import Results
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import outbox
from pubsub.http.storage.journal import Journal, OwnFile
from pubsub.web.pump import StoreThread

_log: Final = logging.getLogger("pubsub.http")


class AsyncReliableHttp:
    """Sends HTTP requests that have their effect exactly once (docs/http.md, *Reliable requests*).

    Open requests of an earlier process in the directory continue when this object starts: with `async with`, or with
    its first call.

    Args:
        directory: of outbox and inbox; one process at a time has it open.
        token: bearer token of each request.
        settings: limits and times; None: the defaults.
        verify: TLS: True, or a context of the caller.
        insecure: allow other hosts to connect to the local URLs of jobs.
        clock: source of time; None: this machine.
        random: source of IDs and jitter; None: the operating system.

    Attributes:
        results: an ASGI application that receives the results of jobs, for a server of the caller.

    Raises:
        StorageError: the directory cannot be used; StoreInUse if another process has it open.
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
        refuse_patched("a sender")
        self.directory = expanded(directory)
        self._settings, self._insecure = settings or HttpSettings(), insecure
        clock = clock or MachineClock()
        self.journal = Journal(OwnFile(self.directory, clock.boot()), clock)
        try:
            self._sending = Sending(self.journal, self._settings, random or SystemRandom())
        except BaseException:
            self.journal.close()
            raise
        self._store = StoreThread()
        self._delivery = Delivery(self._sending, self._settings, self._store, Access(token, verify))
        self.results = Results(self._sending, self._settings, self._store, self._delivery.tell)
        self._started = self._closed = False

    async def start(self) -> None:
        """Continue open requests. A job that waits for its result has a server at its local URL again.

        Raises:
            ConfigurationError: the server for a local URL cannot start.
            CallerError: this object is closed.
        """
        if self._closed:
            raise CallerError(f"{self.directory} is closed; open it again")
        if self._started:
            return
        self._started = True
        self._delivery.start()
        for request in await self.requests(open_only=True):
            if request.listen and not request.listen.startswith("https:"):
                await self.results.listen(request.listen, insecure=self._insecure)

    async def put(
        self,
        url: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """PUT a body and wait for the response, which is on this disk when this returns.

        Args:
            url: of the resource.
            body: at most `body_bytes_max` bytes.
            key: names the request. A program that was killed repeats the call with the same key and gets the response
                of the same request. "": a new request with an ID of its own.
            headers: further header fields.
            timeout: longest wait in seconds; None: until the request is settled or expires.

        Returns:
            The response, with a status of 200 to 299.

        Raises:
            CallerError, TooLarge: the arguments are not valid; nothing was stored.
            StorageError: the disk failed; nothing was sent.
            RequestKept: no final response within `timeout`; the request is kept and continues.
            RequestRefused: a final response. RequestExpired: no final response within `expiry_seconds`.
        """
        return outcome(await self._perform(check_draft(Kind.PUT, url, body, key, headers), timeout))

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """POST a message and wait until the receiver has stored it; arguments and errors as `put`."""
        outcome(await self._perform(check_draft(Kind.SEND, url, body, key, headers), timeout))

    async def perform_job(
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
        """POST a job and wait for its result; arguments and errors as `put`.

        Args:
            url, body, key, headers, timeout: as `put`'s.
            local_url: URL at which the job's receiver reaches this program, such as `http://127.0.0.1:8081/results`.
            listen: this object starts a server there; False: `results` is mounted in another server.

        Returns:
            The return value of the job's handler, as body and content type.

        Raises:
            JobFailed: the handler failed too often.
            ConfigurationError: the server for the local URL cannot start.
        """
        draft = check_draft(Kind.JOB, url, body, key, headers, local_url, listens=listen)
        await self.start()
        if listen:
            await self.results.listen(local_url, insecure=self._insecure)
        return outcome(await self._perform(draft, timeout))

    async def _perform(self, draft: Draft, timeout: float | None) -> Outgoing:
        await self.start()
        request = await self._submit(draft)
        self._delivery.wake()
        try:
            async with asyncio.timeout(timeout):
                return await self._delivery.over(request.id)
        except TimeoutError:
            found = await self._store(self._sending.find, request.id)
            if found is not None and found.over:
                return found
            reason = found.problem if found is not None else ""
            raise RequestKept(request.id, request.url, timeout or 0.0, reason, str(self.directory)) from None
        except BaseException as error:
            self._note(error, request)
            raise

    async def _submit(self, draft: Draft) -> Outgoing:
        """Store a request. The commit always finishes, so a cancelled caller learns whether the request is kept."""
        storing = asyncio.ensure_future(self._store(self._sending.submit, draft))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError as error:
            with suppress(PubsubError):  # Nothing was stored; the cancellation is all that the caller needs to know.
                self._note(error, await storing)
                self._delivery.wake()
            raise

    def _note(self, error: BaseException, request: Outgoing) -> None:
        """Add a note to the error that ends a call: the request itself continues."""
        there = f"--dir {quote(str(self.directory))}"
        error.add_note(
            f"{request.method} {masked(request.url)} is kept as {request.id} and continues when its directory is opened"
            f" again. Finish: pubsub http resume {there}; give up: pubsub http forget {quote(request.id)} {there}"
        )

    # Open requests

    async def requests(self, *, open_only: bool = True) -> list[Outgoing]:
        """Return the requests of the directory, without their bodies, oldest first.

        Args:
            open_only: only unsettled ones; False: also settled ones, until their tombstones expire.
        """

        def read() -> list[Outgoing]:
            with self.journal.transaction() as transaction:
                return outbox.every(transaction, open_only=open_only)

        return await self._store(read)

    async def resume(self, timeout: float | None = None) -> list[Outgoing]:
        """Wait until all requests that are open now are settled.

        Args:
            timeout: longest wait in seconds; None: no limit.

        Returns:
            These requests in their present state: `state`, `answer` and `problem`.
        """
        await self.start()
        waited = [request.id for request in await self.requests(open_only=True)]
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*[self._delivery.over(name) for name in waited])
        except TimeoutError:
            pass
        found = [await self._store(self._sending.find, name) for name in waited]
        return [request for request in found if request is not None]

    async def forget(self, request: str) -> bool:
        """Give up a request: it is not sent again, and its tombstone is removed. Return whether there was one.

        It may have happened at the receiver. The same `key` would then begin a new request.
        """
        found = await self._store(self._sending.find, request)
        removed = await self._store(self._sending.forget, request)
        if found is not None and not found.over:
            problem = "the request was forgotten by a call of forget"
            self._delivery.tell(replace(found, state=State.REFUSED, problem=problem))
        return removed

    async def close(self) -> None:
        """Stop sending; unsettled requests stay in the outbox."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.results.close()
        finally:
            try:
                await self._delivery.close()
            finally:
                self._store.close()
                self.journal.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
