"""The receiving end for results of jobs: an ASGI application at the local URL, and its server.

A Response URL is the local URL followed by the job's ID. The ID contains 128 random bits that only the job's receiver
knows. A sender that knows the URL may therefore deliver the result, and no other sender can find a valid URL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from pubsub.base.addresses import join_place
from pubsub.base.sites import Sites, asked
from pubsub.errors import CallerError, PubsubError, StorageError
from pubsub.http.asgi import ASGIReceive, ASGISend, Scope, refusal, respond
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.keys import IDEMPOTENCY_KEY, OUTCOME
from pubsub.http.core.limits import READING_BYTES_MAX
from pubsub.http.core.outgoing import Outgoing
from pubsub.http.sending import Sending
from pubsub.http.serving import listen, make_server
from pubsub.http.settings import HttpSettings
from pubsub.web.bodies import BodyGone, Held, read_body
from pubsub.web.headers import check_single, value
from pubsub.web.idempotency import read_key
from pubsub.web.problems import Refused
from pubsub.web.pump import StoreThread
from pubsub.web.serving import HttpServer

_log: Final = logging.getLogger("pubsub.http")


class Results:
    """Receives the results of jobs.

    Args:
        sending: the outbox with the jobs.
        settings: limits and times.
        store: the thread that uses the outbox.
        tell: called with each job that a result has settled.
    """

    def __init__(
        self, sending: Sending, settings: HttpSettings, store: StoreThread, tell: Callable[[Outgoing], None]
    ) -> None:
        self._sending, self._settings, self._store, self._tell = sending, settings, store, tell
        self._held = Held(max(READING_BYTES_MAX, settings.response_bytes_max))
        self._servers: dict[str, HttpServer] = {}

    async def listen(self, local_url: str, *, insecure: bool) -> None:
        """Start a server for a local URL, unless there is one.

        Raises:
            ConfigurationError: the address cannot be used, or other hosts could connect.
            CallerError: the URL has TLS, which the caller's own server must provide.
        """
        parts = urlsplit(local_url)
        if parts.scheme != "http":
            raise CallerError(f"{local_url}: mount `results` in a server with TLS, and pass listen=False")
        host = parts.hostname or ""
        place = join_place(host, parts.port or 80)
        if place in self._servers:
            return
        sites = Sites.of((), (), bound=host)

        async def app(scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
            await self._serve(sites, scope, receive, send)

        self._servers[place] = server = make_server(app, listen(place, insecure=insecure))
        try:
            await server.start()
        except BaseException:
            del self._servers[place]
            raise

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            await server.stop()

    async def __call__(self, scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
        """Handle a request by ASGI. The server that this is mounted in checks host names itself."""
        await self._serve(Sites(any_host=True), scope, receive, send)

    async def _serve(self, sites: Sites, scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        with suppress(BodyGone):
            reason = sites.refusal(asked(scope["headers"]), str((scope.get("server") or ("",))[0]))
            await respond(send, problem(403, reason) if reason else await self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: ASGIReceive) -> Answer:
        try:
            if scope["method"] not in {"POST", "PUT"}:
                return problem(405, "a result must be sent by POST")
            check_single(scope["headers"])
            key = read_key(value(scope["headers"], IDEMPOTENCY_KEY))
            name = _name(scope)
            limit, seconds = self._settings.response_bytes_max, self._settings.try_seconds
            body = await read_body(receive, scope["headers"], limit, self._held, seconds=seconds)
            self._held.release(len(body))
            failed = value(scope["headers"], OUTCOME) == "failed"
            kind = value(scope["headers"], "content-type") or "application/octet-stream"
            outcome = {OUTCOME: "failed"} if failed else {}
            answer = Answer(500 if failed else 200, {"content-type": kind, **outcome}, body)
            after = await self._store(self._take, name, answer, failed)
        except Refused as error:
            return refusal(error)
        except StorageError as error:
            _log.warning("the result %s of a job cannot be stored: %s", key, error)
            return problem(503, "the result cannot be stored now", "", 5)
        except PubsubError as error:
            return problem(503, "the result cannot be stored now", str(error), 5)
        if after is None:
            return problem(404, "the job is unknown here")
        self._tell(after)
        return Answer(204)

    def _take(self, name: str, answer: Answer, failed: bool) -> Outgoing | None:
        with self._sending.journal.transaction() as transaction:
            if not self._sending.known_job(transaction, name):
                return None
            before, after = self._sending.result(transaction, name, answer, failed=failed)
        self._sending.settled(before, after)
        return after


def _name(scope: Scope) -> str:
    """Return the job's ID or key: the part after the last slash. A slash of the key itself is written as %2F."""
    raw = scope.get("raw_path")
    if raw is None:  # raw_path is optional in ASGI; path is already unescaped.
        return str(scope["path"]).rpartition("/")[2]
    return unquote(raw.decode("latin-1").rpartition("/")[2])


async def _live(receive: ASGIReceive, send: ASGISend) -> None:
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
