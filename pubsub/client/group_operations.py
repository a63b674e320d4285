"""The calls of `Client` that look at consumer groups and act on them, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub.client.client_base import ClientBase

if TYPE_CHECKING:
    from pubsub.client.group_facts import GroupFacts, GroupLetter, MemberFacts
    from pubsub.client.group_operator_calls import GroupCalls


class GroupOperationCalls(ClientBase):
    @property
    def _groups(self) -> GroupCalls:
        from pubsub.client.group_operator_calls import GroupCalls  # noqa: PLC0415 - few clients need it.

        session = self._session
        with session.entered():  # A closed client refuses.
            return GroupCalls(session)


class GroupOperations(GroupOperationCalls):
    """Calls of `Client` about consumer groups, for operators (docs/how-to/share-work.md)."""

    def groups(self, topic: str | None = None) -> list[GroupFacts]:
        """Return the consumer groups of a topic, or of all topics, as `pubsub group list` shows them.

        Args:
            topic: needs the right to get from it, or to operate. None: all topics, with the right to see the status.

        Raises:
            NotKnown: there is no such topic.
            InvalidName, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.groups(topic)

    def group_members(self, topic: str, group: str) -> list[MemberFacts]:
        """Return the members of a consumer group, with the number of messages that each holds.

        Raises:
            NotKnown: there is no such topic or group.
            InvalidName, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.members(topic, group)

    def group_dead_letters(self, topic: str, group: str) -> list[GroupLetter]:
        """Return the dead letters of a consumer group, without their contents.

        Raises:
            NotKnown: there is no such topic or group.
            InvalidName, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.letters(topic, group)

    def release_member(
        self, topic: str, group: str, client: str, *, store: str = "", lost_disk: bool = False, force: bool = False
    ) -> int:
        """Give up all that a silent member holds: other members receive it, with `Message.doubtful`.

        Its effects may have happened, and are in its state directory. If it comes back, it learns what was released.

        Args:
            client: the member's client ID.
            store: the ID of its state directory, if several have this client ID.
            lost_disk: its state directory is lost for good, so the group forgets the member.
            force: also while the member is heard. What it is doing may then happen twice.

        Returns:
            The number of messages that go to other members.

        Raises:
            NotNow: the member is heard, or went on meanwhile.
            NotKnown: there is no such topic, group or member.
            InvalidName, CallerError, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.release(topic, group, client, store, lost_disk=lost_disk, force=force)

    def redrive_group(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Hand dead letters of a group out again with no attempts counted, and return their number.

        Args:
            ids: of the letters (`GroupLetter.id`); None: all.

        Raises:
            NotKnown: there is no such topic, group or letter.
            InvalidName, CallerError, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.redrive(topic, group, ids, drop=False)

    def drop_group_letters(self, topic: str, group: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters of a group, and return their number; arguments and errors as `redrive_group`."""
        return self._groups.redrive(topic, group, ids, drop=True)

    def resume_group(self, topic: str, group: str, *, skip: bool) -> int:
        """Resume a group that was suspended, because its server's store was restored from a copy.

        Args:
            skip: pass over all messages that the copy had. False: hand them out with `Message.doubtful`.

        Returns:
            The number of messages handed out, or passed over; 0 if the group is not suspended.

        Raises:
            NotKnown: there is no such topic or group.
            InvalidName, CallerError, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.resume(topic, group, skip=skip)

    def change_group(
        self,
        topic: str,
        group: str,
        *,
        on_lost: str | None = None,
        lost_seconds: float | None = None,
        attempts: int | None = None,
        mode: str | None = None,
        parts: int | None = None,
    ) -> GroupFacts:
        """Change values of a group, and return its facts.

        Args:
            on_lost, lost_seconds, attempts: as for `subscribe`; None: unchanged.
            mode: "keyed" makes a shared group keyed, while nothing of it is claimed, delayed or a dead letter.
            parts: of the keyed group.

        Raises:
            NotNow: the mode cannot change now.
            NotKnown: there is no such topic or group.
            InvalidName, CallerError, NotAllowed, KeyRefused, Unavailable, Refused: as `configure`.
        """
        return self._groups.change(topic, group, on_lost, lost_seconds, attempts, mode, parts)
