-- Outgoing rows of pirate-pubsub, format 1: any program inserts messages in its own transactions, and one relay sends
-- them after the commit. Run it once in the database, by `pubsub relay --install` or by a migration tool.
-- A repeated run changes nothing.

create schema if not exists pubsub;

-- True if the headers are an object of at most 16 headers, 8 KiB in all: names, values, and 3 bytes for each header.
-- A value is a text, or {"hex": "00ff"} for bytes that are no text. A time to live becomes a further header.
create or replace function pubsub.headers_are_valid(headers jsonb, ttl interval) returns boolean
language sql immutable parallel safe set search_path = pg_catalog as $$
    select case when jsonb_typeof(headers) <> 'object' then false else (
        select count(*) <= case when ttl is null then 16 else 15 end
            and (ttl is null or not headers ? '$ttl')
            and coalesce(sum(3 + octet_length(name) + case jsonb_typeof(value)
                when 'string' then octet_length(value #>> '{}')
                else coalesce(octet_length(value #>> '{hex}') / 2, 0) end), 0)
                <= case when ttl is null then 8192 else 8168 end
            and coalesce(bool_and(name collate "C" ~ '^[!-<>-~]{1,64}$' and case jsonb_typeof(value)
                when 'string' then true
                when 'object' then value - 'hex' = '{}' and jsonb_typeof(value -> 'hex') is not distinct from 'string'
                    and (value #>> '{hex}') collate "C" ~ '^([0-9a-f]{2})*$'
                else false end), true)
        from jsonb_each(headers) as header (name, value)
    ) end
$$;

-- One row for each message, in the order of `id`. Writers give topic and body, and what else they need.
create table if not exists pubsub.outgoing (
    id bigint generated always as identity primary key,
    topic text not null
        constraint "topic has 1 to 80 printable ASCII characters without space"
        check (topic collate "C" ~ '^[!-~]{1,80}$')
        constraint "topic has no * > # and does not begin with _ or $"
        check (topic collate "C" !~ '^[_$]|[*>#]'),
    key bytea not null default '',
    headers jsonb,
    body bytea not null,
    -- The time of delivery; null: at once.
    deliver_at timestamptz
        constraint "deliver_at is at most 90 days ahead"
        check (isfinite(deliver_at) and deliver_at <= now() + interval '90 days'),
    -- The time after which subscribers pass the message over, from its timestamp on; null: never.
    ttl interval
        constraint "ttl is between 1 millisecond and 3650 days"
        check (ttl between interval '1 millisecond' and interval '3650 days'),
    written_at timestamptz not null default now(),
    constraint "body and key have at most 16,760,832 bytes together"
        check (octet_length(body) + octet_length(key) <= 16760832),
    constraint "headers, with ttl, are up to 16 texts or {hex: digits}, 8 KiB"
        check (headers is null or pubsub.headers_are_valid(headers, ttl))
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000,
    toast.autovacuum_vacuum_cost_delay = 0
);

-- A body is often compressed or encrypted already, and its length is read without it.
alter table pubsub.outgoing alter column body set storage external;

-- Rows that the relay could not take although the table accepted them, such as those from before a new release.
-- To send one again, insert its columns into pubsub.outgoing, corrected, and delete it here, in one transaction.
create table if not exists pubsub.refused (
    id bigint primary key,
    topic text not null,
    key bytea not null,
    headers jsonb,
    body bytea not null,
    deliver_at timestamptz,
    ttl interval,
    written_at timestamptz not null,
    refused_at timestamptz not null default now(),
    reason text not null
);

-- The format of these tables, and the client ID of the one relay of this schema.
create table if not exists pubsub.relay (
    one boolean primary key default true check (one),
    format integer not null,
    name text
);
insert into pubsub.relay (format) values (1) on conflict (one) do nothing;
