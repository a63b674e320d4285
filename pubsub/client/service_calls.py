"""Add calls of services to `Client`: calls that happen once (docs/clients.md, *Calls that happen once*)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pubsub.client.arguments import Headers
from pubsub.client.client_base import ClientBase
from pubsub.client.core.calling import Reply
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.group_serving import GroupServing, check_concurrent_group
from pubsub.client.flows.handlers import check_handler
from pubsub.client.flows.serving import CallHandler, Serving
from pubsub.client.flows.worker_pool import check_concurrency
from pubsub.client.storage.transaction import Transaction


class ServiceCalls(ClientBase, ABC):
    """The calls of `Client` for services."""

    @abstractmethod
    def _run(self, flow: Flow[Result]) -> Result:
        """Run a call's flow on this thread."""

    def call(
        self,
        service: str,
        body: bytes,
        *,
        timeout: float | None = None,
        id: str | None = None,  # noqa: A002
        key: bytes = b"",
        headers: Headers | None = None,
        deadline: float | None = None,
        parts: int = 1,
    ) -> Reply:
        """Call a service once, and wait for its reply (docs/clients.md, *Calls that happen once*).

        Args:
            service: name of the service, 1-64 of A-Z a-z 0-9 . _ -
            body, key, headers: of the request, as for `put`.
            timeout: for the reply, in seconds; None: the client's. The call continues after the time-out.
            id: ID of the call. A repeat under the same ID is the same call, and returns the same reply. None: a random
                ID, which `calls` lists.
            deadline: seconds after which no worker begins the call, by the worker's clock; None: no deadline.
            parts: number of workers that share the service's calls by key.

        Returns:
            The reply; it is kept for `reply` and for calls under the same ID.

        Raises:
            CallKept: no reply came in time; the text names the cause if it is known, such as `no worker`.
            CallFailed: the handler failed as often as allowed.
            CallExpired: the deadline passed.
            CallDiscarded: `discard` gave up the request; a worker may have taken it before.
            CallerError: another call has this ID.
            TooLarge: too many calls are kept.
            PubsubError: otherwise as `put` and `get`.
        """
        named = id, key, headers, deadline, parts
        return self._run(self._calls.calling.call(service, body, timeout, *named))

    def request(
        self,
        service: str,
        body: bytes,
        *,
        timeout: float | None = None,
        id: str | None = None,  # noqa: A002
        key: bytes = b"",
        headers: Headers | None = None,
        deadline: float | None = None,
        parts: int = 1,
        transaction: Transaction | None = None,
    ) -> str:
        """Make a call without waiting: it is on this client's disk when this returns.

        Args:
            service, body, timeout, id, key, headers, deadline, parts: as for `call`.
            transaction: make the call in this transaction's commit; not possible for a client's very first call.

        Returns:
            The call's ID, for `reply`.

        Raises:
            PubsubError: as `call` before it waits.
        """
        named = id, key, headers, deadline, parts, transaction
        return self._run(self._calls.calling.request(service, body, timeout, *named))

    def reply(self, id: str, *, timeout: float | None = None) -> Reply:  # noqa: A002
        """Wait for the reply to a call, however long ago it was made.

        Args:
            id: ID of the call.
            timeout: in seconds; None: the client's.

        Returns:
            The reply.

        Raises:
            NoSuchCall: this client made no call with that ID.
            PubsubError: otherwise as `call`.
        """
        return self._run(self._calls.calling.reply(id, timeout))

    def serve(
        self,
        service: str,
        handler: CallHandler,
        *,
        timeout: float | None = None,
        max: int | None = None,  # noqa: A002
        part: int = 0,
        parts: int = 1,
        group: bool = False,
        concurrency: int = 1,
    ) -> int:
        """Serve a service as its worker: each call's effect, reply and position commit together or not at all.

        `handler(request, transaction)` gets a `Request` and an open transaction of the client's database, and returns
        the reply. If it raises, the transaction rolls back and the call is tried again after a pause. After
        `handler_attempts` tries, including tries that ended the process, the error becomes the reply. Calls are handled
        one at a time, on this thread.

        Args:
            service: name of the service. One client serves it, or each of its parts, from its first `serve` until
                `withdraw`, running or not.
            handler: a plain function; other kinds are rejected or rolled back as by `process`.
            timeout: return after so many seconds without a call; None: never.
            max: return after so many calls; None: no limit.
            part, parts: this worker's share of the calls, if `parts` workers share them by key; part 0 is the first.
            group: True: any number of clients serve the service, as a consumer group: each call goes to one of them.
                With `parts`, the calls of a key are handled one after the other. Callers name no parts.
            concurrency: with `group`, so many handlers run side by side, on threads of their own.

        Returns:
            The number of calls taken, including those answered with an error.

        Raises:
            Unavailable: the service did not confirm this client as the worker; for example, another client is.
            StorageError: the disk or the outbox has no room for a reply; the call is not taken, and comes again.
            PubsubError: otherwise as `get`.
        """
        check_handler(handler, awaits=False)
        check_concurrency(concurrency)
        check_concurrent_group(group, concurrency)
        if group:
            worker = GroupServing(self._calls.group_waits, service, parts, concurrency)
            return self._run(worker.serve(handler, timeout, max))
        serving = Serving(self._session, self._calls.gets, self._calls.subscribing, service, part, parts)
        return self._run(serving.serve(handler, timeout, max))

    def withdraw(self, service: str, *, timeout: float | None = None, part: int = 0, parts: int = 1) -> None:
        """Stop being a service's worker, so that another client may serve it.

        Calls that wait for this worker are given up.

        Args:
            service, part, parts: as for `serve`.
            timeout: in seconds; None: the client's.

        Raises:
            NotSubscribed: this client never served it.
            PubsubError: otherwise as `unsubscribe`.
        """
        self._run(self._calls.subscribing.withdraw(service, part, parts, timeout))
