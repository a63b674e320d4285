"""The SQLite schema of the server's store, and the text form of spans in a row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from pubsub.server.storage import delayed, groups, staged
from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.removal import Removal
from pubsub.server.topic.settings import Settings
from pubsub.server.topic.spans import Span, read_rows, row_of

FORMAT: Final = 3
"""`formats` migrates a store of an earlier format."""
APPLICATION_ID: Final = 0x50505542
FILE: Final = "server.db"
MEMBER: Final = "local"
"""The file beside the store of one of two members; see `standby.disk.local_file`."""
RESTORED: Final = "restored"
"""Value in the column `receiver` of a log that was ended because this store was restored."""

ADDED: Final = (
    "create table if not exists removal (topic integer primary key, removal text not null)",
    "create table if not exists compacted (log integer primary key, parts text not null)",
    "create table if not exists topic_order (topic integer primary key, log text not null)",
    *groups.SCHEMA,
)
"""Tables that a store of this format may lack, because it was made before them."""

SCHEMA: Final = (
    "create table meta (name text primary key, value) without rowid",
    "create table topic (id integer primary key, name text not null unique, open_log integer not null,"
    " history text not null, frozen text not null)",
    "create table log (id integer primary key, name text not null, topic integer not null, state text not null,"
    " low integer not null, end integer not null, total integer not null, receiver text not null default '')",
    "create index log_name on log (name)",
    "create index log_topic on log (topic)",
    "create table publisher (id integer primary key, name text not null unique)",
    "create table last (topic integer, publisher integer, last integer not null, primary key (topic, publisher))"
    " without rowid",
    "create table subscription (topic integer, subscriber text, number integer not null, epoch integer not null,"
    " subscribed integer not null, since integer not null, log text not null, acknowledged integer not null,"
    " backlog text not null, primary key (topic, subscriber)) without rowid",
    "create table watermark (id integer, publisher integer, counter integer not null, primary key (id, publisher))"
    " without rowid",
    "create table batch (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null, body blob)",
    "create table quarantine (key integer primary key, checksum integer not null, body blob)",
    "create table topic_settings (topic integer primary key, settings text not null)",
    *ADDED,
    "create table purge (topic integer, log text, kept integer not null, unread integer not null,"
    " primary key (topic, log)) without rowid",
    "create table rival (topic integer, log text, server text not null, primary key (topic, log)) without rowid",
    "create table quarantined_topic (id integer primary key, name text not null, open_log integer not null,"
    " history text not null, reason text not null, stamp integer not null)",
    *staged.SCHEMA,
    *delayed.SCHEMA,
)
"""`quarantine` has the bytes of damaged batches, and `quarantined_topic` the topics that the server no longer holds."""

DESCRIBING: Final = (
    "sqlite_schema",
    "meta",
    "topic",
    "topic_settings",
    "removal",
    "compacted",
    "topic_order",
    "purge",
    "log",
    "publisher",
    "last",
    "subscription",
    "consumer_group",
    "group_member",
    "group_retry",
    "watermark",
    "stage",
    "shelf",
    "published",
    "rival",
    "quarantined_topic",
    "quarantine",
)
"""Tables that every topic needs, or that have their rows close together. A server refuses to start if a page of one
of them is damaged, or a page of the list of free pages. Damage in other tables concerns single topics."""


def write_spans(spans: Iterable[Span]) -> str:
    """Return the text form of spans in a row."""
    return json.dumps([row_of(span) for span in spans], separators=(",", ":"))


def write_settings(settings: Settings) -> str:
    """Return the text form of a topic's settings in a row."""
    return msgspec.json.encode(settings).decode("ascii")


def read_settings(text: str) -> Settings:
    """Parse the text that `write_settings` made.

    Raises:
        ValueError: the text has another form.
    """
    return msgspec.json.decode(text, type=Settings)


def write_removal(removal: Removal) -> str:
    """Return the text form of a topic's removals in a row."""
    return msgspec.json.encode(removal).decode("ascii")


def read_removal(text: str) -> Removal:
    """Parse the text that `write_removal` made.

    Raises:
        ValueError: the text has another form.
    """
    return msgspec.json.decode(text, type=Removal)


def write_parts(parts: Parts) -> str:
    """Return the text form of the compacted parts of a log in a row."""
    return msgspec.json.encode(parts).decode("ascii")


def read_parts(text: str) -> Parts:
    """Parse the text that `write_parts` made.

    Raises:
        ValueError: the text has another form.
    """
    return msgspec.json.decode(text, type=Parts)


def read_spans(text: str) -> tuple[Span, ...]:
    """Parse the text that `write_spans` made.

    Raises:
        ValueError: the text has another form.
    """
    return tuple(Span(*row) for row in read_rows(json.loads(text)))
