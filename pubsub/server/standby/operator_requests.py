"""Operator requests to a primary: switch to the standby, remove a member, or give a proxy its vote back."""

from __future__ import annotations

from collections.abc import Callable

from pubsub.protocol.messages import Operate, Outcome
from pubsub.server.requests.operations import Action
from pubsub.server.standby.member import Member
from pubsub.server.state.replies import Origin, Replies


class OperatorRequests:
    """The actions of one primary.

    Args:
        member: the primary.
        replies: for answers.
        wall_ms: returns the wall clock, in milliseconds since 1970.
    """

    def __init__(self, member: Member, replies: Replies, wall_ms: Callable[[], int]) -> None:
        self._member, self._replies, self._wall_ms = member, replies, wall_ms

    def actions(self) -> dict[str, Action]:
        """Return the actions by their names in OPERATE."""
        return {"switch": Action(self._switch), "remove": Action(self._remove), "reset": Action(self._reset)}

    def _switch(self, origin: Origin, asked: Operate, now: float) -> None:
        leading = self._member.leading
        if leading is not None and leading.switch(now):
            self._replies.answer(origin, Outcome.SUCCESS)
        else:
            self._replies.answer(origin, Outcome.REFUSED, reason="no_standby_in_sync")

    def _remove(self, origin: Origin, asked: Operate, now: float) -> None:
        view = self._member.proposer.view
        if view is not None and asked.member not in view.members:
            self._replies.answer(origin, Outcome.SUCCESS, reason="it_is_none")
        elif self._member.remove(asked.member, now):
            self._replies.answer(origin, Outcome.BUSY, reason="it_is_being_removed")
        else:
            self._replies.answer(origin, Outcome.REFUSED, reason="not_another_member")

    def _reset(self, origin: Origin, asked: Operate, now: float) -> None:
        reason = self._member.acceptor_recovery.reset(self._wall_ms())
        later = Outcome.BUSY if len(self._member.proposer.proxies) == 1 else Outcome.REFUSED
        self._replies.answer(origin, later if reason else Outcome.SUCCESS, reason=reason)
