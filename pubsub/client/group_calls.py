"""Add consumer groups to both clients: many processes share a topic, and each message happens once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

from pubsub.client.client_base import ClientBase
from pubsub.client.core.message import Batch, Message
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.group_processing import GroupProcessing, check_claim
from pubsub.client.flows.group_waits import GroupOptions
from pubsub.client.flows.handlers import Handler, check_handler
from pubsub.client.flows.worker_pool import on_threads
from pubsub.client.settling import ended_by_a_member
from pubsub.errors import CallerError, PubsubError

Claim = Literal["auto", "before"]
"""When a record is claimed: as the handler's pace allows, or always before its handler begins."""


def check_only_group(group: object, options: GroupOptions) -> None:
    """Check that values of groups are named with a group only.

    Raises:
        CallerError: they are not.
    """
    named = [name for name, value in options.items() if value is not None]
    if group is None and named:
        raise CallerError(f"{named[0]} belongs to a consumer group: name it, too (group=…)")


class GroupCalls(ClientBase, ABC):
    """The calls of `Client` about groups."""

    @abstractmethod
    def _run(self, flow: Flow[Result]) -> Result:
        """Run a call's flow on this thread."""

    def leave(self, topic: str, *, group: str, timeout: float | None = None) -> None:
        """Leave a consumer group: finish the messages in hand, and give all others back. Nothing stays in doubt.

        `close` leaves all groups. A later call that takes from the group joins again.

        Args:
            topic, group: a group that this client subscribed to.
            timeout: in seconds; None: the client's. A handler that runs longer is rolled back.

        Raises:
            NotSubscribed: this client is no member.
            Unavailable: the service did not confirm in time; all is given back once this client is heard.
            PubsubError: otherwise as `get`.
        """
        self._run(self._calls.group_waits.leave(topic, group, timeout))

    def end_group(self, topic: str, group: str, *, force: bool = False, timeout: float | None = None) -> None:
        """End a consumer group for all its members, and drop its backlog.

        Args:
            topic, group: the group.
            force: end it although members that are not heard hold records, which may be done or not.
            timeout: in seconds; None: the client's.

        Raises:
            GroupInDoubt: such members hold records; nothing was changed.
            PubsubError: otherwise as `unsubscribe`.
        """
        self._run(self._calls.group_waits.end(topic, group, timeout, force=force))

    def _process_group(
        self,
        topic: object,
        group: str,
        handler: Handler,
        timeout: float | None,
        most: int,
        concurrency: int,
        claim: str,
    ) -> int:
        check_handler(handler, awaits=False)
        check_claim(claim)
        until = self._session.until(timeout)
        while True:
            calls = self._calls
            member = calls.group_waits.member_of(topic, group)
            source = GroupProcessing(calls.group_waits, member, most, concurrency, claim)
            left = max(0.0, until - calls.session.now)
            try:
                return self._run(on_threads(calls.session, source, handler, left, most, concurrency))
            except PubsubError as error:
                if not ended_by_a_member(calls.session, error):
                    raise

    def _group_messages(self, topic: str, group: str, timeout: float | None) -> Iterator[Message]:
        while True:
            found: Batch = self._run(self._calls.group_gets.get_on(topic, group, timeout))
            if not found:
                return
            yield found[0]
