"""Define the tables of a client's state file; all other tables in it belong to the application."""

from __future__ import annotations

from typing import Final

FORMAT: Final = 2
"""2: a subscription's intent tells if it must begin at the end (`fresh`)."""

FORMAT_WAITING: Final = 3
"""3: as 2, and messages are put aside (`WAITING`). An older release must not open the file then, because it would never
handle them. A start that finds none of them sets format 2 again (docs/explanation/retries.md, J7).
"""

TABLES: Final = (
    "create table pubsub_state (key text primary key, value) without rowid",
    "create table pubsub_outbox (counter integer primary key, topic text not null, previous integer not null,"
    " count integer not null, whole integer not null, checksum integer not null, body blob not null)",
    "create table pubsub_chains (topic text primary key, previous integer not null, cleared integer not null,"
    " log text not null) without rowid",
    "create table pubsub_subscriptions (topic text primary key, wanted integer not null, settled integer not null,"
    " number integer not null, log text not null, last_log text, last_offset integer,"
    " tried_log text, tried_offset integer, attempts integer not null default 0,"
    " fresh integer not null default 1) without rowid",
    "create table pubsub_taken (topic text, publisher text, counter integer not null,"
    " primary key (topic, publisher)) without rowid",
    "create table pubsub_dead_letters (id integer primary key, topic text not null, first text not null,"
    " last text not null, publisher text not null, counter integer not null, stamp integer not null, body blob,"
    " error text not null, attempts integer not null, at real not null)",
)
MIGRATIONS: Final = {
    # An unconfirmed intent of an older release was meant to begin at the end.
    2: ("alter table pubsub_subscriptions add column fresh integer not null default 1",),
}
"""By format, the statements that convert a store of the previous format."""
STARTS: Final = "create table if not exists pubsub_starts (topic text primary key, start text not null) without rowid"
"""Start of a topic's intent, unless it is the end. An older store gets this table."""
REPLAYS: Final = (
    "create table if not exists pubsub_replays (topic text primary key, number integer not null) without rowid"
)
"""Number of the last replay of a topic, if there was one. An older store gets this table."""
PATTERNS: Final = (
    "create table if not exists pubsub_patterns (pattern text primary key, wanted integer not null,"
    " settled integer not null, number integer not null, stamp integer not null) without rowid",
    "create table if not exists pubsub_joined (topic text primary key, pattern integer not null) without rowid",
)
"""Patterns of topics, and the topics that they brought. An older store gets these tables."""
UNTOLD: Final = "create table if not exists pubsub_untold (id integer primary key, topic text not null)"
"""Dead letters of losses that were not raised yet. An older store gets this table at its opening."""
DELETIONS: Final = (
    "create table if not exists pubsub_deletions (id integer primary key, topic text not null, reason text not null)"
)
"""Deletions of topics that were not raised yet, and have no dead letter. An older store gets this table at its opening.
"""
CALLS: Final = (
    "create table if not exists pubsub_calls (n integer primary key, id text not null unique, topic text not null,"
    " request blob not null, named integer not null, made real not null, deadline real,"
    " outcome text not null default 'waiting',"
    " size integer not null default 0, answered real, told integer not null default 0)",
    "create table if not exists pubsub_replies (n integer primary key, body blob not null)",
    "create table if not exists pubsub_calls_over (id text primary key, topic text not null, request blob not null)"
    " without rowid",
    "create index if not exists pubsub_calls_told on pubsub_calls (n) where told = 1",
)
"""Calls; their replies, in a table of their own so that the table of calls stays short; and the fingerprints of named
calls with forgotten replies. An older store gets these tables too.
"""
WAITING: Final = (
    "create table if not exists pubsub_later (number integer primary key, topic text not null, first text not null,"
    " publisher text not null, counter integer not null, stamp integer not null, body blob not null,"
    " key blob not null, headers blob not null, doubtful integer not null, lane blob not null,"
    " attempts integer not null, later integer not null, due real not null, seconds real not null)",
    "create table if not exists pubsub_retries (topic text primary key, log text not null, offset integer not null,"
    " due real not null, seconds real not null, later integer not null) without rowid",
)
"""Messages that are put aside until their next attempt; and the wait of a topic's next message, which keeps its place.
An older store gets these tables too. An older release ignores the second one, and tries that message at once.
"""
DEAD_LETTER_METADATA: Final = (
    "create table if not exists pubsub_letters_beside"
    " (id integer primary key, key blob not null, headers blob not null)"
)
"""Keys and headers of dead letters, by `id`, if they have any. An older store gets this table at its opening."""
GROUPS: Final = (
    "create table if not exists pubsub_groups (member integer primary key, topic text not null, name text not null,"
    " store text not null, number integer not null, log text not null, told text not null, wish text not null,"
    " cuts integer not null default 0, gone integer not null default 1)",
    "create table if not exists pubsub_group_done (member integer not null, log text not null, part integer not null,"
    " low integer not null, high integer not null, primary key (member, log, part, low)) without rowid",
    "create table if not exists pubsub_group_begun (member integer not null, log text not null, place integer not null,"
    " attempts integer not null, primary key (member, log, place)) without rowid",
)
"""Memberships in consumer groups; finished ranges, and attempts, that the service may not know.

An older store gets these tables too. An older release knows no groups, and leaves them as they are.
"""
