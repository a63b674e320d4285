"""Sends the requests of the outbox over httpx2, and passes the results to waiting callers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2

from pubsub.base.environment import is_direct, plain, proxy_refused, trusted
from pubsub.base.urls import mask_logged_urls
from pubsub.errors import CallerError, ConfigurationError, StorageError
from pubsub.http.core.answers import Answer
from pubsub.http.core.keys import IDEMPOTENCY_KEY
from pubsub.http.core.limits import HEADERS_BYTES_MAX, HEADERS_MAX
from pubsub.http.core.outgoing import Kind, Outgoing
from pubsub.http.sending import Sending
from pubsub.http.settings import HttpSettings
from pubsub.web.answers import answer_pieces, reason_of
from pubsub.web.pump import Pump, StoreThread

_NOT_KEPT: Final = frozenset({"connection", "keep-alive", "set-cookie", "te", "trailer", "transfer-encoding"})

_log: Final = logging.getLogger("pubsub.http")


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and trust of a sender.

    Attributes:
        token: bearer token for requests of this program; results of jobs are sent without it.
        verify: TLS: True for the certificates of the environment or system, or a context of the caller.
    """

    token: str = ""
    verify: ssl.SSLContext | bool = True


class _TooLong(Exception):
    """The response is larger than its limit."""


class Delivery:
    """Connects the outbox with the network.

    Args:
        sending: the outbox.
        settings: limits and times.
        store: the thread that uses the outbox.
        access: token and TLS.
    """

    def __init__(self, sending: Sending, settings: HttpSettings, store: StoreThread, access: Access) -> None:
        self._sending, self._settings, self._store, self._access = sending, settings, store, access
        self._pump: Pump[str] = Pump("requests", store, sending, self._do)
        self._waiters: dict[str, list[asyncio.Future[Outgoing]]] = {}
        self._clients: dict[tuple[bool, bool], httpx2.AsyncClient] = {}

    def start(self) -> None:
        mask_logged_urls()
        self._pump.start()

    def _client(self, url: str) -> httpx2.AsyncClient:
        """Return the client for a URL: direct for this host, otherwise with the environment's proxy.

        Raises:
            ConfigurationError: a variable of the environment is not valid.
        """
        direct, encrypted = is_direct(url), url.lower().startswith("https:")
        found = self._clients.get((direct, encrypted))
        if found is not None:
            return found
        verify = self._access.verify
        if verify is True:
            verify = trusted() if encrypted else plain()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=self._settings.requests_at_once)
        refusing = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        try:
            made = httpx2.AsyncClient(
                verify=verify, timeout=None, limits=limits, cookies=refusing, follow_redirects=False,
                trust_env=not direct,
            )  # fmt: skip
        except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
            raise proxy_refused(error) from None
        self._clients[direct, encrypted] = made
        return made

    def wake(self) -> None:
        self._pump.wake()

    async def over(self, name: str) -> Outgoing:
        future: asyncio.Future[Outgoing] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(name, []).append(future)
        try:
            found = await self._store(self._sending.find, name)  # It may be settled already.
            if found is not None and found.over:
                return found
            return await future
        finally:
            waiting = self._waiters.get(name, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiters.pop(name, None)

    def tell(self, request: Outgoing | None) -> None:
        """Complete the calls that wait for a request, if it is settled."""
        if request is not None and request.over:
            for future in self._waiters.pop(request.id, []):
                if not future.done():
                    future.set_result(request)

    async def _do(self, name: str) -> None:
        request: Outgoing | None = None
        try:
            request = await self._store(self._sending.load, name)
            if request is None:
                return
            if request.confirm:
                await self._confirm(request)
            elif request.over:
                self.tell(request)
            else:
                self.tell(await self._try(request))
        except StorageError:
            raise  # The result is unknown; `Pump` repeats the try.
        except Exception as error:  # noqa: BLE001 - an internal error counts as any other failed try.
            _log.exception("internal error; the try is repeated")
            if request is not None and request.confirm:
                await self._store(self._sending.confirmed, name, success=False)
            else:
                problem = reason_of(error, "" if request is None else request.url)
                self.tell(await self._store(self._sending.failed, name, problem))

    async def _try(self, request: Outgoing) -> Outgoing | None:
        headers = await self._store(self._sending.headers, request)
        if self._access.token and request.kind is not Kind.RESULT:
            headers.setdefault("authorization", f"Bearer {self._access.token}")
        try:
            answer = await self._exchange(request.method, request.url, headers, request.body)
        except _TooLong:
            limit = f"response_bytes_max = {self._settings.response_bytes_max:,}"
            return await self._store(self._sending.refused, request.id, f"the response is larger than {limit}")
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL) as error:
            return await self._store(self._sending.refused, request.id, reason_of(error, request.url))
        except ConfigurationError as error:  # The environment is wrong; another process may have a different one.
            return await self._store(self._sending.failed, request.id, str(error))
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            return await self._store(self._sending.failed, request.id, reason_of(error, request.url))
        return await self._store(self._sending.answered, request.id, answer)

    async def _confirm(self, request: Outgoing) -> None:
        headers = {}
        if self._access.token and request.kind is not Kind.RESULT:
            headers["authorization"] = f"Bearer {self._access.token}"
        headers.update({name: value for name, value in request.headers.items() if name == "authorization"})
        try:
            answer = await self._exchange("DELETE", request.confirm, headers, b"")
        except (_TooLong, ConfigurationError, httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError):
            await self._store(self._sending.confirmed, request.id, success=False)
            return
        await self._store(self._sending.confirmed, request.id, success=answer.status < 500)

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Make one HTTP request, within `try_seconds` from its first byte to the last byte of its response."""
        parts, size = [], 0
        async with asyncio.timeout(self._settings.try_seconds):
            sent = {"accept-encoding": "identity", **headers}
            async with self._client(url).stream(method, url, headers=sent, content=body) as response:
                async for part in answer_pieces(response):
                    size += len(part)
                    if size > self._settings.response_bytes_max:
                        raise _TooLong
                    parts.append(part)
                return Answer(response.status_code, _kept(response.headers), b"".join(parts))

    async def close(self) -> None:
        """Stop sending. Requests in flight are interrupted and stay in the outbox; waiting calls get an error."""
        try:
            await self._pump.close()
            for client in self._clients.values():
                await client.aclose()
        finally:
            for future in [one for waiting in self._waiters.values() for one in waiting]:
                if not future.done():
                    path = self._sending.journal.path
                    future.set_exception(CallerError(f"{path} was closed during the call; the request is kept"))


def _kept(headers: httpx2.Headers) -> dict[str, str]:
    """Return the header fields of a response that are stored, up to the limits."""
    kept: dict[str, str] = {}
    size = 0
    for name, value in headers.items():
        lower = name.lower()
        size += len(name) + len(value)
        if lower in _NOT_KEPT or lower == IDEMPOTENCY_KEY:
            continue
        if len(kept) == HEADERS_MAX or size > HEADERS_BYTES_MAX:
            break
        kept[lower] = value
    return kept
