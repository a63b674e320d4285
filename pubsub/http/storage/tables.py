"""The tables of reliable requests, in a client's state file or their own; times are `core.elapsed`."""

from __future__ import annotations

from typing import Final

FORMAT: Final = 1

TABLES: Final = (
    "create table if not exists pubsub_http_state (key text primary key, value) without rowid",
    "create table if not exists pubsub_http_outbox (id text primary key, kind text not null, method text not null,"
    " url text not null, headers text not null, body blob not null, print blob not null, created real not null,"
    " expires real not null, due real not null, state text not null, attempts integer not null, status integer,"
    " answer_headers text, answer_body blob, problem text not null, confirm text not null, listen text not null,"
    " changed real not null)",
    "create index if not exists pubsub_http_outbox_states on pubsub_http_outbox (state, changed)",
    "create table if not exists pubsub_http_inbox (number integer primary key, owner text not null, key text not null,"
    " kind text not null, method text not null, path text not null, query text not null, headers text not null,"
    " body blob not null, print blob not null, received real not null, response_url text not null,"
    " standing text not null, attempts integer not null, due real not null, changed real not null, status integer,"
    " answer_headers text, answer_body blob, problem text not null, session text, session_number integer,"
    " unique (owner, key))",
    "create index if not exists pubsub_http_inbox_standings on pubsub_http_inbox (standing, changed)",
    "create index if not exists pubsub_http_inbox_sessions on pubsub_http_inbox (owner, session, session_number)"
    " where session is not null",
    "create table if not exists pubsub_http_finished (owner text not null, session text not null,"
    " number integer not null, heard real not null, primary key (owner, session)) without rowid",
    "create index if not exists pubsub_http_finished_heard on pubsub_http_finished (heard)",
)
