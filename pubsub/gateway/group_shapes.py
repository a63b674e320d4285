"""The shapes of requests and responses about consumer groups."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from pubsub.client.core.outcomes import LATER_SECONDS_MAX
from pubsub.gateway.shapes import Count, Flag, Shape, Text, ref


class Group(Shape, kw_only=True):
    topic: str
    name: str
    number: Annotated[str, Meta(description="Its number; a group that is made anew has a higher one.")]
    mode: Annotated[str, Meta(description="shared or keyed.")]
    parts: Annotated[int, Meta(ge=0, description="Parts of a keyed group; 0: it is shared.")]
    on_lost: Annotated[str, Meta(description="wait or redeliver.")]
    lost_seconds: float
    attempts: Count
    made: Annotated[int, Meta(ge=0, description="Microseconds since 1970.")]
    suspended: bool
    full: bool
    waiting: Count
    offered: Count
    claimed: Count
    in_doubt: Count
    in_doubt_members: Count
    in_doubt_seconds: float | None
    delayed: Count
    dead_letters: Count
    dead_letter_bytes: Count
    members: Count
    members_heard: Count
    hungry: Annotated[int, Meta(ge=0, description="Members that wait for work.")]


class GroupMemberFacts(Shape):
    client: str
    store: Annotated[str, Meta(description="ID of its state directory.")]
    number: Annotated[str, Meta(description="Of its last message.")]
    heard: bool
    heard_seconds: float | None
    left: bool
    claimed: Count
    offered: Count
    in_doubt: Count
    ranges: list[str]
    held_seconds: float | None


class GroupLetter(Shape):
    id: str
    publisher: str
    counter: Annotated[str, Meta(description="The publisher's counter, as text.")]
    stamp: Annotated[int, Meta(ge=0, description="Timestamp of the server, microseconds since 1970.")]
    reason: str
    attempts: Count
    bytes: Count
    kind: Annotated[str, Meta(description="dead, doubt or waiting.")]


class GroupDetails(Group, kw_only=True):
    member_facts: Annotated[list[GroupMemberFacts], Meta(description="The members.")]
    letters: Annotated[list[GroupLetter], Meta(description="The first dead letters.")]


class Groups(Shape):
    topic: str
    groups: list[Group]


class GroupActed(Shape):
    topic: str
    group: str
    messages: Annotated[int | UnsetType, Meta(description="Number of messages.")] = UNSET
    values: Annotated[str | UnsetType, Meta(description="The values in force, in words.")] = UNSET


class ReleaseWanted(Shape):
    member: Annotated[str, Meta(description="Client ID of the member.")]
    store: Text = UNSET
    lost_disk: Flag = UNSET
    force: Flag = UNSET


class LettersWanted(Shape):
    ids: Annotated[list[str] | UnsetType, Meta(description="IDs of letters; missing: all.")] = UNSET


class ResumeWanted(Shape):
    skip: bool


class GroupWanted(Shape):
    on_lost: Text = UNSET
    lost_seconds: float | UnsetType = UNSET
    attempts: Count | UnsetType = UNSET
    mode: Text = UNSET
    parts: Count | UnsetType = UNSET


class GroupMember(Shape):
    topic: str
    group: str
    member: str
    client: Annotated[str, Meta(description="Client ID of the member.")]
    mode: Annotated[str, Meta(description="shared or keyed.")]
    parts: Annotated[int, Meta(ge=0, description="Parts of a keyed group; 0: it is shared.")]
    on_lost: Annotated[str, Meta(description="wait or redeliver.")]
    lost_seconds: float
    attempts: Count


class OpenGroupMember(Shape):
    topic: str
    group: str
    member: str
    client: str
    open_batch: Annotated[str | None, Meta(description="Path that confirms the open batch.")]


_IDS = Annotated[list[str] | UnsetType, Meta(description="The id of some messages of the batch; missing: all.")]


class LaterWanted(Shape):
    seconds: Annotated[float, Meta(ge=0, le=LATER_SECONDS_MAX, description="Time until the messages come again.")]
    ids: _IDS = UNSET


class RejectWanted(Shape):
    reason: Annotated[str, Meta(description="Text for the dead letters.")]
    ids: _IDS = UNSET


class GroupDecided(Shape):
    topic: str
    group: str
    member: str
    messages: Annotated[int, Meta(ge=0, description="Messages that this request put off or rejected.")]
    left: Annotated[int, Meta(ge=0, description="Messages of the batch that wait for the confirmation.")]


class GroupBatch(Shape):
    topic: str
    group: str
    member: str
    confirm: Annotated[str, Meta(description="Path that confirms the batch by DELETE.")]
    confirm_seconds: Annotated[float, Meta(description="Time limit of the confirmation, from the first answer on.")]
    messages: Annotated[list[Any], Meta(extra_json_schema={"items": ref("Message")})]
