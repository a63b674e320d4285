"""The gateway as an ASGI application: finds user and handler of each request, and turns every error into a response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pubsub.base.sites import Sites
from pubsub.config.settings import ClientSettings
from pubsub.errors import PubsubError
from pubsub.gateway import openapi, sites
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, check_query
from pubsub.gateway.handlers.group_members import GroupMembers
from pubsub.gateway.handlers.groups import Groups
from pubsub.gateway.handlers.look_back import LookingBack, Reads
from pubsub.gateway.handlers.operations import Operating, Operations
from pubsub.gateway.handlers.page import FILES, Page
from pubsub.gateway.handlers.peeking import Peek, Peeking
from pubsub.gateway.handlers.puts import Puts
from pubsub.gateway.handlers.subscribers import Subscribers
from pubsub.gateway.handlers.tables import Tables
from pubsub.gateway.handlers.topic_objects import TopicObjects
from pubsub.gateway.handlers.views import Views
from pubsub.gateway.handlers.webhooks import Webhooks
from pubsub.gateway.limits import BODIES_BYTES_MAX
from pubsub.gateway.metrics import Requests
from pubsub.gateway.problems import Problem, problem_of, response
from pubsub.gateway.readers import Readers
from pubsub.gateway.registry import Registry
from pubsub.gateway.reports import Gather, Reports
from pubsub.gateway.routing import Routes
from pubsub.gateway.sessions import Sessions
from pubsub.gateway.webhooks.dispatcher import Dispatcher
from pubsub.web import connections
from pubsub.web.bodies import Held
from pubsub.web.headers import check_single
from pubsub.web.problems import Refused
from pubsub.web.tokens import User, Users, bearer

SWEEP_SECONDS: Final = 10.0
"""Time between two searches for unused clients."""

Handler = Callable[[Exchange], Awaitable[Response]]
_log: Final = logging.getLogger("pubsub.gateway")

OPEN: Final = frozenset({"/livez", "/readyz", "/openapi.json", *FILES})
"""Paths that need no token."""


class Gateway:
    """The gateway's application.

    Args:
        settings: of its clients.
        directory: its state directory.
        users: users with their tokens and rights.
        gather: asks the cluster for its report.
        operations: carries out requests of operators.
        peek, reads: read messages without a subscription.
        allowed: hosts and origins whose requests are accepted; None: its own only.

    Raises:
        StorageError: its directory cannot be used; StoreInUse: another gateway has it.
    """

    def __init__(
        self,
        settings: ClientSettings,
        directory: Path,
        users: Users,
        gather: Gather,
        operations: Operations,
        peek: Peek,
        reads: Reads,
        allowed: Sites | None = None,
    ) -> None:
        self.sessions, self._sites = Sessions(users), allowed or Sites()
        self._registry = Registry(directory)
        self._clients = Clients(settings, directory)
        self._readers, self._held, self._requests = Readers(), Held(BODIES_BYTES_MAX), Requests()
        self.stopping = asyncio.Event()
        self._dispatcher = Dispatcher(self._registry, self._clients)
        self._puts = Puts(self._clients)
        self._subscribers = Subscribers(self._registry, self._clients, self._readers, self.stopping)
        self._webhooks = Webhooks(self._registry, self._clients, self._dispatcher)
        reports = Reports(gather)
        self._peeking = Peeking(peek)
        self._back = LookingBack(self._registry, self._clients, self._readers, reads)
        self._tables = Tables(reads, self._back.readable, self._back.run)
        self._operating = Operating(operations)
        self._topics = TopicObjects(operations, self._operating)
        self._groups = Groups(operations, self._operating)
        self._members = GroupMembers(self._registry, self._clients, self._readers, self.stopping)
        self._page = Page(reports, self.stopping)
        self._views = Views(reports, self._requests, self._numbers, self.stopping)
        self._document, self._queries = openapi.encoded(), openapi.queries()
        self._always: list[asyncio.Task[None]] = []
        self.routes: Routes[tuple[str, Handler]] = Routes()
        for method, path, handler in self._table():
            self.routes.add(method, path, (path, handler))

    def _table(self) -> list[tuple[str, str, Handler]]:
        views, subscribers, hooks, operating = self._views, self._subscribers, self._webhooks, self._operating
        return [
            ("POST", "/topics/{topic}/messages", self._puts.post),
            ("GET", "/topics/{topic}/messages", self._peeking.get),
            ("GET", "/topics/{topic}/records", self._back.records),
            ("GET", "/topics/{topic}/times", self._back.times),
            ("GET", "/topics/{topic}/table", self._tables.list),
            ("GET", "/topics/{topic}/table/{key}", self._tables.get),
            ("PUT", "/topics/{topic}/subscribers/{subscriber}", subscribers.put),
            ("GET", "/topics/{topic}/subscribers/{subscriber}", subscribers.get),
            ("DELETE", "/topics/{topic}/subscribers/{subscriber}", subscribers.delete),
            ("POST", "/topics/{topic}/subscribers/{subscriber}/seek", self._back.seek),
            ("GET", "/topics/{topic}/subscribers/{subscriber}/messages", subscribers.poll),
            ("DELETE", "/topics/{topic}/subscribers/{subscriber}/batches/{batch}", subscribers.confirm),
            ("GET", "/topics/{topic}/subscribers/{subscriber}/dead-letters", subscribers.dead_letters),
            ("GET", "/topics/{topic}/stream", subscribers.stream),
            *self._group_table(),
            ("GET", "/topics/{topic}/webhooks", hooks.list),
            ("PUT", "/topics/{topic}/webhooks/{webhook}", hooks.put),
            ("GET", "/topics/{topic}/webhooks/{webhook}", hooks.get),
            ("DELETE", "/topics/{topic}/webhooks/{webhook}", hooks.delete),
            ("GET", "/topics/{topic}/webhooks/{webhook}/dead-letters", hooks.dead_letters),
            ("DELETE", "/topics/{topic}/webhooks/{webhook}/dead-letters", hooks.purge),
            ("POST", "/topics/{topic}/webhooks/{webhook}/redrive", hooks.redrive),
            ("POST", "/topics/{topic}/webhooks/{webhook}/retry", hooks.retry),
            ("GET", "/topics", views.topics),
            ("GET", "/topics/{topic}", views.topic),
            ("GET", "/patterns", views.patterns),
            ("GET", "/servers", views.servers),
            ("GET", "/proxies", views.proxies),
            ("POST", "/topics/{topic}/move", operating.move),
            ("PUT", "/topics/{topic}", self._topics.create),
            ("DELETE", "/topics/{topic}", self._topics.delete),
            ("POST", "/topics/{topic}/purge", self._topics.purge),
            ("GET", "/topics/{topic}/settings", operating.settings),
            ("PUT", "/topics/{topic}/settings", operating.configure),
            ("DELETE", "/topics/{topic}/clients/{client}", operating.unsubscribe),
            ("POST", "/topics/{topic}/clients/{client}/seek", self._back.seek_client),
            ("PUT", "/servers/{server}/drain", operating.drain),
            ("DELETE", "/servers/{server}/drain", operating.stop_draining),
            ("GET", "/metrics", views.metrics),
            ("GET", "/livez", views.live),
            ("GET", "/readyz", views.ready),
            ("GET", "/openapi.json", self._openapi),
            ("GET", "/live", self._page.live),
            *[("GET", path, self._page.file) for path in FILES],
        ]

    def _group_table(self) -> list[tuple[str, str, Handler]]:
        groups, members = self._groups, self._members
        group = "/topics/{topic}/groups/{group}"
        member = f"{group}/members/{{member}}"
        return [
            ("GET", "/topics/{topic}/groups", groups.list),
            ("GET", group, groups.get),
            ("PATCH", group, groups.change),
            ("DELETE", group, groups.end),
            ("POST", f"{group}/release", groups.release),
            ("POST", f"{group}/redrive", groups.redrive),
            ("POST", f"{group}/drop", groups.drop),
            ("POST", f"{group}/resume", groups.resume),
            ("PUT", member, members.put),
            ("GET", member, members.get),
            ("DELETE", member, members.delete),
            ("GET", f"{member}/messages", members.poll),
            ("DELETE", f"{member}/batches/{{batch}}", members.confirm),
            ("POST", f"{member}/batches/{{batch}}/later", members.later),
            ("POST", f"{member}/batches/{{batch}}/reject", members.reject),
        ]

    async def start(self) -> None:
        """Open the clients and resume the webhooks."""
        self._dispatcher.start_all()
        await self._clients.start()
        works = self._sweep(), self._page.sample(), self._members.settle()
        self._always = [asyncio.create_task(work) for work in works]

    async def close(self) -> None:
        """Stop everything; unfinished work stays on disk."""
        for task in self._always:
            task.cancel()
        await self._dispatcher.close()
        await self._members.batches.close()
        await self._clients.close()
        self._registry.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._clients.sweep()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started, method, path = monotonic(), scope["method"], "none"
        status = 0

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._requests.answered(method, path, status, monotonic() - started)
            await send(message)

        told: Send = sending
        try:
            check_single(scope["headers"])  # Before any header is used.
            told = sites.telling(self._sites, sites.check(self._sites, scope), sending)
            found = sites.preflight(scope)
            if found is None:
                path, handler = self._found(scope)[0]
                found = await handler(self._exchange(scope, receive, path))
            await found(scope, receive, told)
        except Refused as refused:
            await _answer(refused, scope, receive, told, status)
        except PubsubError as error:
            await _answer(problem_of(error), scope, receive, told, status)
        except Exception:  # noqa: BLE001 - the client gets a response, and the log the error.
            _log.exception("%s %s", method, path)
            await _answer(Problem("internal", "The gateway failed; see its log."), scope, receive, told, status)

    def _found(self, scope: Scope) -> tuple[tuple[str, Handler], dict[str, str]]:
        found = self.routes.find(scope["method"], scope["raw_path"])
        scope["path_params"] = found[1]
        return found

    def _exchange(self, scope: Scope, receive: Receive, path: str) -> Exchange:
        request = Request(scope, receive)
        token = _token(request, path)
        user = self.sessions.users.find(token)
        if user is None:
            if path not in OPEN:
                text = "The request has no valid bearer token; this gateway requires one."
                raise Problem("not-authenticated", text, {"www-authenticate": "Bearer"})
            user = User("-")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if scope["query_string"]:
            check_query(request.query_params, self._queries[method, path])
        return Exchange(request, user, scope["path_params"], self._held, self.sessions, token)

    async def _openapi(self, exchange: Exchange) -> Response:
        return Response(self._document, 200, None, "application/json")

    def _numbers(self) -> tuple[dict[str, tuple[float, str]], dict[str, tuple[float, str]]]:
        hooks = self._dispatcher.totals()
        counters: dict[str, tuple[float, str]] = {
            "pubsub_gateway_messages_put": (self._puts.messages, "Messages put."),
            "pubsub_gateway_messages_polled": (self._subscribers.polled, "Messages delivered by long polls."),
            "pubsub_gateway_group_messages": (self._members.delivered, "Messages delivered to members of groups."),
            "pubsub_gateway_messages_streamed": (self._subscribers.streamed, "Messages of streams that have ended."),
            "pubsub_gateway_bodies_refused": (
                self._held.refused,
                "Requests rejected because of a too large body.",
            ),
            "pubsub_gateway_webhook_delivered": (hooks["delivered"], "Messages delivered to receivers of webhooks."),
            "pubsub_gateway_webhook_failed": (hooks["failed"], "Failed deliveries."),
        }
        for why, count in connections.numbers().items():
            counters[f"pubsub_gateway_connections_closed_{why}"] = (
                count,
                "Connections closed because of their peers' behaviour.",
            )
        gauges: dict[str, tuple[float, str]] = {
            "pubsub_gateway_readers": (self._readers.count, "Waiting long polls and streams."),
            "pubsub_gateway_group_batches": (self._members.batches.count, "Open batches of members of groups."),
            "pubsub_gateway_clients": (self._clients.count, "Open clients."),
            "pubsub_gateway_bodies_bytes": (self._held.bytes, "Bytes of request bodies in memory."),
            "pubsub_gateway_webhooks": (hooks["running"], "Running webhooks."),
            "pubsub_gateway_webhook_waiting": (hooks["waiting"], "Messages waiting for delivery."),
            "pubsub_gateway_webhook_dead_letters": (hooks["dead_letters"], "Dead letters of webhooks."),
        }
        return counters, gauges


def _token(request: Request, path: str) -> str | None:
    """Return the bearer token of a request. A stream may have it in the query, since browsers send no header there."""
    found = bearer(request.headers.get("authorization", ""))
    if found is None and path in {"/topics/{topic}/stream", "/live"}:
        return request.query_params.get("access_token")
    return found


async def _answer(refused: Refused, scope: Scope, receive: Receive, send: Send, begun: int) -> None:
    """Send an error response if no response has begun. Otherwise the connection just ends early."""
    if not begun:
        await response(refused)(scope, receive, send)
