"""Reliable HTTP requests for asyncio: each is stored before its first byte leaves."""

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
    """Sends HTTP requests, each of which happens once, whatever is killed when (docs/http.md, *Reliable requests*).

    What an earlier process left open in the directory goes on as soon as this one begins: with `async with`, or with
    its first call.

    Args:
        directory: where outbox and inbox are; one process at a time has it open.
        token: bearer token that goes with each request.
        settings: how patient, how much; None: the defaults.
        verify: of TLS: True, or a context of the caller's.
        insecure: the URLs that results of jobs are received at may be reached by others than this host.
        clock: where the time comes from; None: this machine.
        random: where IDs and jitter come from; None: the operating system.

    Attributes:
        results: an ASGI application that receives the results of jobs, for a server of the caller's own.

    Raises:
        StorageError: the directory cannot be used; StoreInUse where another process has it open.
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
        """Go on with what is open. A job that waits for its result has its local URL answered again.

        Raises:
            ConfigurationError: a local URL cannot be answered.
            CallerError: it is closed.
        """
        if self._closed:
            raise CallerError(f"{self.directory} is closed")
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
            url: where.
            body: what; at most `body_bytes_max`.
            key: names the request, so that a program that was killed asks for the same one again and gets its response;
                "": a new request, under an ID of its own.
            headers: further header fields.
            timeout: seconds of patience; None: until it is settled or expires.

        Returns:
            The response, whose status is 200 to 299.

        Raises:
            CallerError, TooLarge: it cannot be asked for; nothing was stored.
            StorageError: the disk refused; nothing was sent.
            RequestKept: nothing settled it within `timeout`; it is kept and goes on.
            RequestRefused: a final answer. RequestExpired: nothing settled it within `expiry_seconds`.
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
        """POST a job and wait for its result, however long it takes; arguments and errors as `put`.

        Args:
            url, body, key, headers, timeout: as `put`'s.
            local_url: where the job's receiver reaches this program: `http://127.0.0.1:8081/results`, say.
            listen: this program is to answer there by itself; False: `results` is mounted in a server that does.

        Returns:
            What the job's handler returned, body and content type.

        Raises:
            JobFailed: its handler failed too often.
            ConfigurationError: the local URL cannot be answered.
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
        """Store it. A caller that is cancelled meanwhile is told whether it is kept: the commit comes to its end."""
        storing = asyncio.ensure_future(self._store(self._sending.submit, draft))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError as error:
            with suppress(PubsubError):  # Nothing was stored, then: whoever cancelled is told no more than that it is.
                self._note(error, await storing)
                self._delivery.wake()
            raise

    def _note(self, error: BaseException, request: Outgoing) -> None:
        """Say to whoever ends the call that the request does not end with it."""
        there = f"--dir {quote(str(self.directory))}"
        error.add_note(
            f"{request.method} {masked(request.url)} is kept as {request.id}, and goes on with the next opening of its"
            f" directory. Finish: pubsub http resume {there}; give up: pubsub http forget {quote(request.id)} {there}"
        )

    # What is open

    async def requests(self, *, open_only: bool = True) -> list[Outgoing]:
        """The requests that the directory holds, without their bodies, oldest first.

        Args:
            open_only: those that are not settled; False: also those that are, until their tombstones go.
        """

        def read() -> list[Outgoing]:
            with self.journal.transaction() as transaction:
                return outbox.every(transaction, open_only=open_only)

        return await self._store(read)

    async def resume(self, timeout: float | None = None) -> list[Outgoing]:
        """Wait until everything that is open now is settled.

        Args:
            timeout: seconds of patience; None: however long it takes.

        Returns:
            What was open, as it stands now: its `state`, `answer` and `problem`.
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
        """Give a request up: it is sent no more, and its tombstone is taken out; whether there was one.

        Whether it happened at the receiver nobody knows then; the same `key` would ask for it anew.
        """
        found = await self._store(self._sending.find, request)
        removed = await self._store(self._sending.forget, request)
        if found is not None and not found.over:
            problem = "it was forgotten, as somebody asked"
            self._delivery.tell(replace(found, state=State.REFUSED, problem=problem))
        return removed

    async def close(self) -> None:
        """End what is under way; what is not settled stays in the outbox."""
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
