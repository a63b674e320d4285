"""Services as `Client` calls and serves them: calls that happen once (docs/clients.md, *Calls that happen once*)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pubsub.client.arguments import Headers
from pubsub.client.core.calling import Reply
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.processing import check_handler
from pubsub.client.flows.serving import CallHandler, Serving
from pubsub.client.shared import ClientBase
from pubsub.client.storage.transaction import Transaction


class ServiceCalls(ClientBase, ABC):
    """The calls of `Client` that have to do with services."""

    @abstractmethod
    def _run(self, flow: Flow[Result]) -> Result:
        """Drive a call on this thread."""

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
        """Have a service do something once, and wait for its reply (docs/clients.md, *Calls that happen once*).

        Args:
            service: its name, 1-64 of A-Z a-z 0-9 . _ -
            body, key, headers: of the request, as of `put`.
            timeout: for the reply, in seconds; None: the client's. The call goes on behind it.
            id: the call's, for whoever is to ask again; a call that is made again under its ID is the same one, and
                has the same reply. None: a random one, which `calls` lists.
            deadline: seconds after which no worker begins it, by the worker's clock; None: it is never too late.
            parts: how many workers share the service's calls by their keys.

        Returns:
            The reply; it is kept for `reply` and for calls under the same ID.

        Raises:
            CallKept: none came in time; why, as far as that is known: nobody serves, say.
            CallFailed: the handler failed as often as it may; CallExpired: the deadline had passed.
            CallDiscarded: `discard` gave its request up, and it may have been taken before.
            CallerError: there is another call under this ID. TooLarge: too many calls are kept.
            Otherwise as `put` and `get`.
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
        """Make a call and wait for nothing: it is on this client's disk when this returns. Arguments as of `call`.

        Args:
            transaction: it happens in this transaction's commit; not possible for a client's very first call.

        Returns:
            The call's ID, for `reply`.
        """
        named = id, key, headers, deadline, parts, transaction
        return self._run(self._calls.calling.request(service, body, timeout, *named))

    def reply(self, id: str, *, timeout: float | None = None) -> Reply:  # noqa: A002
        """Wait for the reply to a call, however long ago it was made. Raises as `call`; NoSuchCall: none of that ID."""
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
    ) -> int:
        """Be the worker of a service: each call's effect, reply and position commit together or not at all.

        `handler(request, transaction)` gets a `Request` and an open transaction of the client's database, and returns
        the reply. One that raises is rolled back and tried again after a pause; after `handler_attempts` tries, those
        that ended the process too, the error is the reply. Calls are handled one after another, on this thread.

        Args:
            service: its name; one client at a time serves it, or each of its parts, from its first `serve` until
                `withdraw`, running or not.
            handler: a plain function; what is not is refused, or rolled back, as by `process`.
            timeout: it returns when no call came for so many seconds; None: never.
            max: it returns after so many calls; None: never.
            part, parts: which of the calls are this worker's where several share them by their keys.

        Returns:
            How many calls were taken, those that were answered with an error included.

        Raises:
            Unavailable: it is not confirmed that this client serves; another one does, say.
            StorageError: the disk, or the outbox, has no room for a reply; the call is not taken, and comes again.
            Otherwise as `get`.
        """
        check_handler(handler, awaits=False)
        serving = Serving(self._session, self._calls.gets, self._calls.subscribing, service, part, parts)
        return self._run(serving.serve(handler, timeout, max))

    def withdraw(self, service: str, *, timeout: float | None = None, part: int = 0, parts: int = 1) -> None:
        """Be a service's worker no more, so that another client may. Calls that wait for this one are given up.

        Raises:
            NotSubscribed: this client never served it. Otherwise as `unsubscribe`.
        """
        self._run(self._calls.subscribing.withdraw(service, part, parts, timeout))
