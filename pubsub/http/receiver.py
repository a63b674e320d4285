"""The receiver: an ASGI application in which a handler has its effects once, even if a request is repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from pubsub.base.addresses import is_loopback
from pubsub.base.patched import refuse_patched
from pubsub.base.paths import expanded
from pubsub.base.sites import Sites, asked
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, ConfigurationError, PubsubError, StorageError
from pubsub.http.asgi import ASGIReceive, ASGISend, Scope, kept_headers, refusal, respond
from pubsub.http.checking import check_draft
from pubsub.http.clock import HttpClock, MachineClock
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.incoming import Decision, Incoming, Standing
from pubsub.http.core.keys import CONFIRM, FINISHED, IDEMPOTENCY_KEY, RESPONSE_URL, read_finished
from pubsub.http.core.limits import READING_BYTES_MAX, URL_LENGTH_MAX
from pubsub.http.core.outgoing import Kind
from pubsub.http.delivery import Access, Delivery
from pubsub.http.handling import Handling
from pubsub.http.receiving import Arrival, Receiving, reply
from pubsub.http.routes import Handler, Routes
from pubsub.http.sending import Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import inbox
from pubsub.http.storage.handling import HandlerTransaction
from pubsub.http.storage.journal import ClientFile, Journal, OwnFile
from pubsub.web.bodies import BodyGone, Held, read_body
from pubsub.web.headers import check_single, value
from pubsub.web.idempotency import read_key
from pubsub.web.problems import Refused
from pubsub.web.pump import StoreThread
from pubsub.web.tokens import Users, bearer, owners

if TYPE_CHECKING:
    from pubsub.client.client import Client

CONFIRMATIONS: Final = "/.reliable/confirmations/"
"""Path of a receiver's confirmation URLs, below its root."""

_log: Final = logging.getLogger("pubsub.http")

H = TypeVar("H", bound=Handler)
P = TypeVar("P", bound=Callable[[Transaction], None])


class Receiver:
    """An ASGI application that handles each request once (docs/http.md, *Reliable requests*).

    Mounted in another application it needs that application's lifespan: `Starlette(lifespan=receiver.lifespan)`.
    Without the lifespan it starts with its first request, and unhandled requests of an earlier process wait until then.

    Args:
        place: its directory, for one process at a time; or an open `Client`. With a client it uses the client's state
            file, so that a handler's puts to topics are in the same commit.
        tokens: name -> bearer token of each allowed sender; None: every sender on this machine is allowed.
        insecure: without tokens, allow senders on other machines too.
        allow_hosts: host names that are accepted without tokens, besides loopback names. (): with `insecure` any name,
            since the receiver cannot know its own.
        response_urls: allowed prefixes of a job's Response URL; None: any URL.
        settings: limits and times; None: the defaults.
        access: TLS trust for outgoing requests.
        clock: source of time; None: this machine.
        random: source of IDs and jitter; None: the operating system.

    Raises:
        ConfigurationError: a name of `allow_hosts` is malformed.
    """

    def __init__(
        self,
        place: Path | str | Client,
        *,
        tokens: Mapping[str, str] | Users | None = None,
        insecure: bool = False,
        allow_hosts: tuple[str, ...] = (),
        response_urls: tuple[str, ...] | None = None,
        settings: HttpSettings | None = None,
        access: Access | None = None,
        clock: HttpClock | None = None,
        random: Random | None = None,
    ) -> None:
        refuse_patched("a receiver")
        self._place, self._clock, self._random = place, clock or MachineClock(), random or SystemRandom()
        self._users = owners(tokens) if isinstance(tokens, Mapping) else tokens
        self._insecure, self._response_urls = insecure, response_urls
        self._settings, self._access = settings or HttpSettings(), access or Access()
        try:
            self._sites = Sites.of(allow_hosts, (), any_host=insecure and not allow_hosts)
        except ValueError as error:
            raise ConfigurationError(f"allow_hosts: {error}") from None
        self._routes = Routes()
        self._prepared: list[Callable[[Transaction], None]] = []
        self._held = Held(max(READING_BYTES_MAX, self._settings.body_bytes_max))
        self._starting = asyncio.Lock()
        self._started = False

    # Handlers

    def put(self, path: str) -> Callable[[H], H]:
        """Decorate the handler of PUTs to a path. Its return value is the response, which is stored and repeated.

        Args:
            path: in Starlette's form, `/orders/{number:int}`, relative to the mount point.
        """
        return self._route(Kind.PUT, path)

    def message(self, path: str) -> Callable[[H], H]:
        """Decorate the handler of messages POSTed to a path; each message is acknowledged with 204 before the call."""
        return self._route(Kind.SEND, path)

    def job(self, path: str) -> Callable[[H], H]:
        """Decorate the handler of jobs POSTed to a path, acknowledged with 202; its return value goes to the sender."""
        return self._route(Kind.JOB, path)

    def prepare(self, function: P) -> P:
        """Decorate a function that runs in a transaction at each start, before any handler; it can create tables."""
        self._prepared.append(function)
        return function

    def _route(self, kind: Kind, path: str) -> Callable[[H], H]:
        def decorate(handler: H) -> H:
            self._routes.add(kind, path, handler)
            return handler

        return decorate

    def send(self, transaction: Transaction, url: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> str:
        """Send a message reliably from a handler: it is in the outbox if the transaction commits, and not otherwise.

        Args:
            transaction: of the handler; url, body, headers: as `AsyncReliableHttp.send`.

        Returns:
            The message's ID.

        Raises:
            CallerError, TooLarge: the arguments are not valid; nothing was stored.
        """
        if not isinstance(transaction, HandlerTransaction):
            raise CallerError("send needs the transaction that the handler was called with")
        request = self._sending.add(transaction, check_draft(Kind.SEND, url, body, "", headers))
        transaction.queued.append(request)
        return request.id

    async def failed(self) -> list[Incoming]:
        """Return the requests with abandoned handlers, without their bodies: `key`, `owner`, `path`, `problem`."""
        await self.start()

        def read() -> list[Incoming]:
            with self._journal.transaction() as transaction:
                found = inbox.every(transaction, open_only=True)
            return [one for one in found if one.standing is Standing.FAILED]

        return await self._store(read)

    async def retry(self, key: str, client: str = "") -> bool:
        """Call the handler of a failed put or message again, with all its attempts.

        Args:
            key: its Idempotency-Key; client: the name of its token.

        Returns:
            Whether there is such a request. A job does not count: its sender was informed of the failure.
        """
        await self.start()
        found = await self._store(self._receiving.again, (client, key))
        self._handling.wake()
        return found

    # Life

    async def start(self) -> None:
        """Open the directory, and continue with unhandled and unsent requests of an earlier process.

        Raises:
            StorageError: the directory cannot be used; StoreInUse if another process has it open.
        """
        async with self._starting:
            if self._started:
                return
            place = self._place
            file = OwnFile(expanded(place), self._clock.boot()) if isinstance(place, Path | str) else ClientFile(place)
            self._journal = Journal(file, self._clock, counts_boots=False)
            self._store = StoreThread()
            settings = self._settings
            try:
                for function in self._prepared:
                    with self._journal.transaction() as transaction:
                        function(transaction)
                self._sending = Sending(self._journal, settings, self._random)
                self._receiving = Receiving(self._journal, settings, self._random, self._sending)
                self._delivery = Delivery(self._sending, settings, self._store, self._access)
                self._handling = Handling(
                    self._receiving, self._sending, self._routes, settings, self._store, self._delivery.wake
                )
                self._delivery.start()
                self._handling.start()
            except BaseException:
                self._journal.close()
                raise
            self._started = True

    async def close(self) -> None:
        """Stop cleanly; unhandled and unsent requests continue with the next start."""
        if not self._started:
            return
        self._started = False
        try:
            await self._handling.close()
        finally:
            try:
                await self._delivery.close()
            finally:
                self._store.close()
                self._journal.close()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Open the receiver during the lifespan of the application that it is mounted in."""
        await self.start()
        try:
            yield
        finally:
            await self.close()

    async def __call__(self, scope: Scope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            with suppress(BodyGone):
                await respond(send, await self._answer(scope, receive))

    async def _live(self, receive: ASGIReceive, send: ASGISend) -> None:
        await receive()
        try:
            await self.start()
        except PubsubError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    # A request

    async def _answer(self, scope: Scope, receive: ASGIReceive) -> Answer:
        try:
            check_single(scope["headers"])
            owner = self._owner(scope)
            await self.start()
            path = _path(scope)
            if path.startswith(CONFIRMATIONS):
                return await self._confirm(scope, owner, path)
            return await self._take(scope, receive, owner, path)
        except Refused as error:
            return refusal(error)
        except StorageError as error:
            _log.warning("%s", error)
            return problem(503, "the receiver's disk failed", "", 5)

    def _owner(self, scope: Scope) -> str:
        """Return the name of the sender's token, "" without tokens.

        Raises:
            Refused: the sender is not allowed.
        """
        if self._users is not None:
            user = self._users.find(bearer(value(scope["headers"], "authorization")))
            if user is None:
                text = "The request has no valid bearer token; this receiver requires one."
                raise Refused(401, text, {"www-authenticate": "Bearer"})
            return user.name
        client = scope.get("client")
        if not self._insecure and client is not None and not is_loopback(client[0]):
            raise Refused(403, "Without tokens only this machine may send requests; insecure=True allows others.")
        server = scope.get("server")
        reason = self._sites.refusal(asked(scope["headers"]), str(server[0]) if server else "")
        if reason:
            raise Refused(403, f"{reason}; allow_hosts (--allow-host) allows further names.")
        return ""

    async def _confirm(self, scope: Scope, owner: str, path: str) -> Answer:
        if scope["method"] != "DELETE":
            raise Refused(405, "A confirmation URL accepts only DELETE.", {"allow": "DELETE"})
        known = await self._store(self._receiving.confirm, owner, path.removeprefix(CONFIRMATIONS))
        return Answer(204) if known else problem(404, "the request is unknown")

    async def _take(self, scope: Scope, receive: ASGIReceive, owner: str, path: str) -> Answer:
        arrival = await self._read(scope, receive, owner, path)
        name = owner, arrival.key
        waiting = self._handling.answer(name) if arrival.kind is Kind.PUT else None
        try:
            decision, found = await self._store(self._receiving.arrive, arrival)
            answer = reply(decision, found)
            if decision in {Decision.STORE, Decision.HANDLE}:
                self._handling.wake()
            if answer is None:
                assert waiting is not None
                answer = await waiting
                decision = Decision.REPEAT
        finally:
            if waiting is not None:
                self._handling.drop(name, waiting)
        return self._with_confirmation(scope, decision, found, answer)

    def _with_confirmation(self, scope: Scope, decision: Decision, found: Incoming | None, answer: Answer) -> Answer:
        """Add the URL whose DELETE lets the receiver drop a put's stored success."""
        if decision is not Decision.REPEAT or found is None or found.kind is not Kind.PUT or answer.status >= 300:
            return answer
        url = f"{scope.get('root_path', '')}{CONFIRMATIONS}{quote(found.key, safe='')}"
        return Answer(answer.status, {**answer.headers, CONFIRM: url}, answer.body)

    async def _read(self, scope: Scope, receive: ASGIReceive, owner: str, path: str) -> Arrival:
        """Read the complete request.

        Raises:
            Refused: it cannot be handled here.
        """
        query = scope.get("query_string", b"").decode("latin-1")
        if len(path) + len(query) > URL_LENGTH_MAX:
            raise Refused(414, f"The URL is too long; the limit is {URL_LENGTH_MAX:,} characters.")
        response_url = value(scope["headers"], RESPONSE_URL)
        kind = self._routes.classify(scope["method"], path, wants_result=bool(response_url))
        if kind is None:
            raise self._nobody(scope["method"], path)
        if kind is Kind.JOB:
            self._check_response_url(response_url)
        key = read_key(value(scope["headers"], IDEMPOTENCY_KEY))
        headers = kept_headers(scope)
        settings = self._settings
        fields, limit, seconds = scope["headers"], settings.body_bytes_max, settings.try_seconds
        body = await read_body(receive, fields, limit, self._held, seconds=seconds)
        self._held.release(len(body))
        finished = read_finished(value(scope["headers"], FINISHED))
        asked = response_url if kind is Kind.JOB else ""
        return Arrival(owner, key, kind, scope["method"], path, query, headers, body, asked, finished)

    def _nobody(self, method: str, path: str) -> Refused:
        methods = self._routes.methods(path)
        if not methods:
            return Refused(404, "This path has no handler.")
        if method in methods:
            return Refused(400, f"The job has no Response URL; send it in the header {RESPONSE_URL}.")
        return Refused(405, f"This path has no handler for {method[:20]}.", {"allow": ", ".join(methods)})

    def _check_response_url(self, url: str) -> None:
        try:
            check_draft(Kind.RESULT, url, b"", "", None)
        except CallerError as error:
            raise Refused(400, f"The Response URL cannot be used: {error}.") from None
        if self._response_urls is not None and not url.startswith(self._response_urls):
            raise Refused(403, "The Response URL is not allowed by response_urls of this receiver.")


def _path(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] or "/" if root and (path == root or path.startswith(root + "/")) else path
