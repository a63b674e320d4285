"""The shapes of requests and responses, and the JSON Schema (draft 2020-12) that is derived from them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from pubsub.client.starts import FORM
from pubsub.gateway import group_shapes
from pubsub.gateway.limits import WEBHOOK_SECRETS_MAX, WEBHOOK_URL_LENGTH_MAX
from pubsub.gateway.problems import PREFIX, TITLES
from pubsub.gateway.shapes import (
    REF,
    Anything,
    Base64,
    Count,
    Cut,
    Figure,
    Flag,
    Letters,
    Moment,
    Next,
    Number,
    Oldest,
    Schema,
    Seconds,
    Secret,
    Shape,
    Source,
    Text,
    Texts,
    Tries,
    Why,
    Yes,
)
from pubsub.protocol.topic_settings import BYTES_FORM, DROP_FORM, EXPIRE_FORM, KEEP_FORM, RATE_FORM, TOMBSTONES_FORM

Kind = Annotated[str, Meta(extra_json_schema={"enum": [PREFIX + name for name in TITLES]})]


class Problem(Shape):
    type: Kind
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str


class Run(Shape):
    first: str
    last: str
    count: Count


class Put(Shape, kw_only=True):
    topic: str
    count: Count
    id: Annotated[str, Meta(description="Of a single message.")] | UnsetType = UNSET
    publisher: str
    ids: list[Run]


class Held(Shape):
    """A message, with the fields that all responses have."""

    id: Annotated[str, Meta(description="STORE-COUNTER, the same wherever the message appears.")]
    position: Annotated[str, Meta(description="Its position in the topic, log.offset.")]
    publisher: str
    counter: Annotated[str, Meta(description="The publisher's counter, as text: it may exceed 2^53.")]
    stamp: Annotated[int, Meta(ge=0, description="Timestamp of the server, microseconds since 1970.")]
    key: Text = UNSET
    key_base64: Base64 = UNSET
    headers: Annotated[Texts, Meta(description="The headers with UTF-8 values.")] = UNSET
    headers_base64: Annotated[Texts, Meta(description="The headers with other values.")] = UNSET
    body: Annotated[Text, Meta(description="The body, if it is UTF-8.")] = UNSET
    body_base64: Annotated[Base64, Meta(description="The body, if it is not UTF-8.")] = UNSET


class Beginning(Held, kw_only=True):
    """A stored message; a large key or body is cut."""

    bytes: Annotated[int, Meta(ge=0, description="Size of the complete body.")]
    cut: Cut


class Peeked(Shape):
    topic: str
    held: Annotated[int, Meta(ge=0, description="Number of messages in the topic.")]
    messages: list[Beginning]
    searched: Annotated[int, Meta(ge=0, description="Number of messages that were looked at.")]
    next: Next


class Message(Held):
    doubtful: Annotated[
        Flag, Meta(description="True: another reader, or a lost state directory, may have processed it.")
    ] = UNSET
    replay: Annotated[Count | UnsetType, Meta(description="Number of the seek that brought it, from 1.")] = UNSET
    bytes: Annotated[Count | UnsetType, Meta(description="Size of the complete body, with `beginnings`.")] = UNSET
    cut: Cut | UnsetType = UNSET
    number: Number = UNSET
    attempts: Tries = UNSET
    error: Why = UNSET
    failed_at: Moment = UNSET
    part: Annotated[Count | UnsetType, Meta(description="Of a keyed group: the part of its key.")] = UNSET
    topic: Source = UNSET


class Lost(Shape):
    id: str
    lost: Annotated[str, Meta(description="Reason why the messages at these positions are lost.")]
    position: Annotated[
        str | UnsetType, Meta(description="Absent: an operator deleted the topic, and no range is known.")
    ] = UNSET
    number: Number = UNSET
    attempts: Tries = UNSET
    error: Why = UNSET
    failed_at: Moment = UNSET
    topic: Source = UNSET


class MessageWanted(Shape):
    body: Text = UNSET
    body_base64: Base64 = UNSET
    key: Text = UNSET
    key_base64: Base64 = UNSET
    headers: Texts = UNSET
    headers_base64: Texts = UNSET


class Batch(Shape):
    topic: str
    subscriber: str
    confirm: Annotated[str, Meta(description="Path that confirms the batch by DELETE.")]
    messages: Letters


class Records(Shape):
    topic: str
    messages: Letters
    next: Next


Time = Annotated[str | None, Meta(description="ISO 8601, UTC; null if there is no message.")]


class Times(Shape):
    topic: str
    oldest: Time
    newest: Time
    records: Count
    bytes: Count
    exact: Annotated[bool, Meta(description="False: the two numbers are upper bounds.")]
    first: Annotated[str | None, Meta(description="Position of the first message.")]
    end: Annotated[str | None, Meta(description="Position after the last message.")]


class Value(Shape):
    stamp: Annotated[int, Meta(ge=0, description="Timestamp of the server, microseconds since 1970.")]
    key: Annotated[Text, Meta(description="The key, if it is UTF-8.")] = UNSET
    key_base64: Base64 = UNSET
    body: Annotated[Text, Meta(description="The last message of the key, if it is UTF-8.")] = UNSET
    body_base64: Base64 = UNSET


class Table(Shape):
    topic: str
    keys: Annotated[int, Meta(ge=0, description="Number of all keys with a value.")]
    values: list[Value]
    next: Next


class SeekWanted(Shape):
    start: Annotated[str, Meta(description=f"{FORM[0].upper()}{FORM[1:]}.")]


class Sought(Shape):
    topic: str
    client: str
    start: str
    replay: Annotated[int, Meta(ge=0, description="Number of this replay; each of its messages has it.")]


class Subscribed(Shape):
    topic: str
    subscriber: str
    client: str


class Subscriber(Subscribed):
    taken: Count
    confirmed: Count
    open_batch: Annotated[str | None, Meta(description="Path that confirms the open batch.")]
    dead_letters: Annotated[int, Meta(ge=0, description="Ranges of lost messages that it never received.")]


class Failure(Shape):
    id: Annotated[str, Meta(description="ID of the message.")]
    error: Annotated[str, Meta(description="Status of the receiver, or the reason why there was none.")]
    attempts: Annotated[int, Meta(ge=0, description="Number of tries.")]
    failed_at: Moment = UNSET


class Webhook(Shape):
    topic: str
    name: str
    url: Annotated[str, Meta(description="Receiver; user, password and query are shown as ***.")]
    secrets: Annotated[int, Meta(ge=0, description="Number of secrets that sign.")]
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "ended"]})]
    reason: Annotated[str, Meta(description="Reason why deliveries pause, empty if they do not.")]
    waiting: Count
    dead_letters: int | None
    last_failure: Failure | None
    delivered: Count
    failed: Count
    secret: Annotated[Text, Meta(description="The generated secret, shown only once.")] = UNSET


class Webhooks(Shape):
    webhooks: list[Webhook]


class WebhookWanted(Shape):
    url: Annotated[str, Meta(max_length=WEBHOOK_URL_LENGTH_MAX)]
    secrets: Annotated[list[Secret], Meta(min_length=1, max_length=WEBHOOK_SECRETS_MAX)] | UnsetType = UNSET


class DeadLetters(Shape):
    dead_letters: Letters
    next: Annotated[int | None, Meta(description="`after` of the next page.")]


class Retried(Shape):
    retried: Count


class Redriven(Shape):
    redriven: Count


class LettersPurged(Shape):
    purged: Count


class LastKnown(Shape):
    seconds_ago: float
    records: Count
    bytes: Count
    backlog: Count
    oldest_unacknowledged_seconds: Oldest
    subscribers: Count


class Waiting(Shape):
    client: str
    waiting: Count
    polling: bool
    oldest_unacknowledged_seconds: Oldest


class Topic(Shape, kw_only=True):
    topic: str
    owners: list[str]
    others: list[str]
    sole_owner: Annotated[bool | None, Meta(description="One server is the sole owner; null: it does not answer.")]
    whole: Annotated[bool | None, Meta(description="Old name of `sole_owner`, for one release.")]
    unknown_seconds: Annotated[
        float | None,
        Meta(description="Seconds without an answer of its server; the figures are then null. Null: it answers."),
    ]
    last_known: LastKnown | None
    records: Figure
    bytes: Figure
    backlog: Figure
    puts: Annotated[float | None, Meta(description="Messages put per second; null: unknown.")]
    deliveries: Annotated[float | None, Meta(description="Messages acknowledged per second by all subscribers.")]
    keep: Annotated[str | None, Meta(description="How much stays beyond what subscribers need; null: unknown.")]
    drop: Annotated[str | None, Meta(description="What goes although a subscriber needs it; null: unknown.")]
    expire: Annotated[str | None, Meta(description="Age beyond which nothing is delivered; null: unknown.")]
    rate_limit: Annotated[str | None, Meta(description="The setting rate: messages put in a second; null: unknown.")]
    bytes_limit: Annotated[str | None, Meta(description="The setting bytes: bytes put in a second; null: unknown.")]
    throttled: Annotated[Count | None, Meta(description="Puts that were put off because of the two; null: unknown.")]
    throttled_seconds: Annotated[float | None, Meta(description="Time during which puts waited; null: unknown.")]
    settings_from: Annotated[
        dict[str, str] | None, Meta(description="By setting: topic, default PATTERN, or built-in.")
    ]
    settings_conflict: Annotated[bool | None, Meta(description="Two servers merged the topic with other settings.")]
    keep_seconds: Annotated[float | None, Meta(description="The age in `keep`; null: no age, or unknown.")]
    kept_bytes: Annotated[Count | None, Meta(description="Bytes that no subscriber needs; null: without settings.")]
    oldest_stored_seconds: Annotated[
        float | None, Meta(description="Age of the oldest stored message; null: none, or without settings.")
    ]
    not_let_go: Annotated[str | None, Meta(description="Reason why messages beyond `keep` stay; empty: none stay.")]
    superseded_seconds: Annotated[
        float | None, Meta(description="Age of the oldest superseded message that a subscriber needs; null: none.")
    ]
    delayed: (
        Annotated[int, Meta(ge=0, description="Messages that wait for their due time; absent: none.")] | UnsetType
    ) = UNSET
    delayed_bytes: Annotated[int, Meta(ge=0, description="Bytes of these messages.")] | UnsetType = UNSET
    overdue_seconds: Annotated[Seconds, Meta(description="Seconds since the first was due; null: none is due.")] = UNSET
    held_by: Annotated[str | None, Meta(description="The client with the largest backlog.")]
    oldest_unacknowledged_seconds: Oldest
    subscribers: list[Waiting] | None
    subscribers_total: Annotated[Count | None, Meta(description="Number of subscribers, listed or not; null: unknown.")]


class Family(Shape):
    client: str
    pattern: str
    since: Annotated[int, Meta(ge=0, description="Earlier messages are not received; microseconds since 1970.")]


class Families(Shape):
    patterns: list[Family]


class Topics(Shape):
    topics: list[Topic]
    total: Count
    next: Next


class Process(Shape, kw_only=True):
    address: Text = UNSET
    id: Text = UNSET
    alive: Flag = UNSET
    answered: bool
    silent_seconds: Annotated[Seconds, Meta(description="Seconds since a server's last sign of life.")] = UNSET
    unheard_seconds: Annotated[Seconds, Meta(description="Old name of `silent_seconds`, for one release.")] = UNSET
    last_known: Annotated[Anything | UnsetType, Meta(description="Its last numbers of topics and records.")] = UNSET
    reason: str
    report: Annotated[Anything, Meta(description="The process's own report.")]


class Servers(Shape):
    servers: list[Process]
    standbys: list[dict[str, Any]]
    warnings: list[str]


class Proxies(Shape):
    proxies: list[Process]
    warnings: list[str]


class MoveWanted(Shape):
    to: Annotated[str, Meta(description="ID of the new owner.")]


class Moved(Shape):
    topic: str
    from_: str = field(name="from")
    to: str
    moved: bool


class TopicSettings(Shape):
    topic: str
    keep: Annotated[str, Meta(description="How much stays although every subscriber has acknowledged it.")]
    drop: Annotated[str, Meta(description="The amount beyond which a message goes although a subscriber needs it.")]
    version: Annotated[str, Meta(description="ID of these settings; empty if they were never changed.")]
    conflict: Annotated[bool, Meta(description="Two servers merged the topic with other settings; both are in force.")]
    sources: Annotated[dict[str, str], Meta(description="By setting: topic, default PATTERN, or built-in.")]
    expire: Annotated[str, Meta(description="The age beyond which a message is not delivered any more.")]
    rate: Annotated[str, Meta(description="The most messages that are put in a second.")]
    bytes: Annotated[str, Meta(description="The most bytes that are put in a second.")]
    own: Annotated[dict[str, str], Meta(description="By setting: the topic's own value; empty: a default holds.")]
    tombstones: Annotated[str, Meta(description="With `keep=latest`, how long the deletion of a key stays.")]


class SettingsWanted(Shape):
    keep: Annotated[Text, Meta(description=f"{KEEP_FORM}; empty: the default. Left out: unchanged.")] = UNSET
    drop: Annotated[Text, Meta(description=f"{DROP_FORM}; empty: the default. Left out: unchanged.")] = UNSET
    tombstones: Annotated[Text, Meta(description=f"{TOMBSTONES_FORM}; empty: 1d. Left out: unchanged.")] = UNSET
    expire: Annotated[Text, Meta(description=f"{EXPIRE_FORM}; empty: the default. Left out: unchanged.")] = UNSET
    rate: Annotated[Text, Meta(description=f"{RATE_FORM}; empty: the default. Left out: unchanged.")] = UNSET
    bytes: Annotated[Text, Meta(description=f"{BYTES_FORM}; empty: the default. Left out: unchanged.")] = UNSET


class PurgeWanted(Shape):
    unread: Annotated[bool, Meta(description="Delete messages that a subscriber has not acknowledged, too.")]


class Purged(Shape):
    topic: str
    records: Annotated[int, Meta(ge=0, description="Deleted messages.")]
    unread: Annotated[int, Meta(ge=0, description="Those of them that a subscriber had not acknowledged.")]


class TopicDeleted(Shape):
    topic: str
    records: Annotated[int | None, Meta(description="Its stored messages; null: not known.")]
    subscribers: Annotated[int | None, Meta(description="Its subscribers; null: not known.")]


class Unsubscribed(Shape):
    topic: str
    client: str
    given_up: Count


class Drained(Shape):
    server: str
    draining: bool
    moved: Count


class Alive(Shape):
    alive: Yes


class Ready(Shape):
    ready: Yes


_ALL: Final = [*vars(group_shapes).values(), *list(globals().values())]
_, _found = msgspec.json.schema_components(
    [one for one in _ALL if isinstance(one, type) and Shape in one.mro()[1:]], ref_template=REF
)
SCHEMAS: Final[dict[str, Schema]] = {
    **_found,
    "MessageWanted": _found["MessageWanted"]
    | {
        "oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}],
        "not": {"required": ["key", "key_base64"]},
    },
    "SettingsWanted": _found["SettingsWanted"] | {"minProperties": 1},
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
}
