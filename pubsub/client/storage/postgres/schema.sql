-- The tables of clients with their state in this database, format 1. Run it once, as the owner of the schema.
--
-- Each table has the client's ID first in its key. Only the process that has a client open writes the client's rows, in
-- transactions that end with pubsub.step. Other programs may read them.
--
-- Rows come and go all the time, so autovacuum begins after a number of dead rows, not after a share of the table. Bodies
-- are stored without compression, which PostgreSQL would try for each of them.

create schema if not exists pubsub;

create table pubsub.format (
    single boolean primary key default true check (single),
    number integer not null
);
insert into pubsub.format (number) values (1);

-- One row for each client. Every commit of a client counts "commits" up by one, in the life that has it open.
--   life          random token of the process that opened the client last; lives counts them, for people
--   store         the store ID, a part of the publisher ID that subscribers see
--   milliseconds  greatest milliseconds of used message numbers, known: the ones before
--   cuts          how often commits may have been lost: a power cut, a restored copy, a replica that was behind
--   system, timeline, database: the cluster in which the last life began
create table pubsub.state (
    client text collate "C" primary key,
    life text not null,
    lives bigint not null,
    commits bigint not null,
    store text not null,
    milliseconds bigint not null,
    known text not null,
    cuts bigint not null,
    system text not null,
    timeline text not null,
    database text not null,
    opened timestamptz not null default now()
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0);

-- "whole" marks a row that only the sole owner of its topic may accept, after a power cut.
create table pubsub.outbox (
    client text collate "C" not null,
    counter bigint not null,
    topic text collate "C" not null,
    previous bigint not null,
    count bigint not null,
    whole bigint not null,
    checksum bigint not null,
    body bytea not null,
    primary key (client, counter)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000,
        toast.autovacuum_vacuum_cost_delay = 0);
alter table pubsub.outbox alter column body set storage external;

create table pubsub.chains (
    client text collate "C" not null,
    topic text collate "C" not null,
    previous bigint not null,
    cleared bigint not null,
    log text collate "C" not null,
    primary key (client, topic)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table pubsub.subscriptions (
    client text collate "C" not null,
    topic text collate "C" not null,
    wanted bigint not null,
    settled bigint not null,
    number bigint not null,
    log text collate "C" not null,
    last_log text collate "C",
    last_offset bigint,
    tried_log text collate "C",
    tried_offset bigint,
    attempts bigint not null default 0,
    fresh bigint not null default 1,
    primary key (client, topic)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

create table pubsub.starts (
    client text collate "C" not null,
    topic text collate "C" not null,
    start text collate "C" not null,
    primary key (client, topic)
);

create table pubsub.replays (
    client text collate "C" not null,
    topic text collate "C" not null,
    number bigint not null,
    primary key (client, topic)
);

create table pubsub.patterns (
    client text collate "C" not null,
    pattern text collate "C" not null,
    wanted bigint not null,
    settled bigint not null,
    number bigint not null,
    stamp bigint not null,
    primary key (client, pattern)
);

create table pubsub.joined (
    client text collate "C" not null,
    topic text collate "C" not null,
    pattern bigint not null,
    primary key (client, topic)
);

-- The last counter of each publisher whose messages a client took.
create table pubsub.taken (
    client text collate "C" not null,
    topic text collate "C" not null,
    publisher text collate "C" not null,
    counter bigint not null,
    primary key (client, topic, publisher)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

create table pubsub.dead_letters (
    client text collate "C" not null,
    id bigint not null,
    topic text collate "C" not null,
    first text collate "C" not null,
    last text collate "C" not null,
    publisher text collate "C" not null,
    counter bigint not null,
    stamp bigint not null,
    body bytea,
    error text not null,
    attempts bigint not null,
    at double precision not null,
    primary key (client, id)
);
alter table pubsub.dead_letters alter column body set storage external;

create table pubsub.letters_beside (
    client text collate "C" not null,
    id bigint not null,
    key bytea not null,
    headers bytea not null,
    primary key (client, id)
);

create table pubsub.untold (
    client text collate "C" not null,
    id bigint not null,
    topic text collate "C" not null,
    primary key (client, id)
);

create table pubsub.deletions (
    client text collate "C" not null,
    id bigint not null,
    topic text collate "C" not null,
    reason text not null,
    primary key (client, id)
);

-- Messages that wait for their next attempt, and the wait of a topic's next message, which keeps its place.
create table pubsub.later (
    client text collate "C" not null,
    number bigint not null,
    topic text collate "C" not null,
    first text collate "C" not null,
    publisher text collate "C" not null,
    counter bigint not null,
    stamp bigint not null,
    body bytea not null,
    key bytea not null,
    headers bytea not null,
    doubtful bigint not null,
    lane bytea not null,
    attempts bigint not null,
    later bigint not null,
    due double precision not null,
    seconds double precision not null,
    primary key (client, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000);
alter table pubsub.later alter column body set storage external;

create table pubsub.retries (
    client text collate "C" not null,
    topic text collate "C" not null,
    log text collate "C" not null,
    "offset" bigint not null,
    due double precision not null,
    seconds double precision not null,
    later bigint not null,
    primary key (client, topic)
);

create table pubsub.calls (
    client text collate "C" not null,
    n bigint not null,
    id text collate "C" not null,
    topic text collate "C" not null,
    request bytea not null,
    named bigint not null,
    made double precision not null,
    deadline double precision,
    outcome text collate "C" not null default 'waiting',
    size bigint not null default 0,
    answered double precision,
    told bigint not null default 0,
    primary key (client, n),
    unique (client, id)
);
create index calls_told on pubsub.calls (client, n) where told = 1;

create table pubsub.replies (
    client text collate "C" not null,
    n bigint not null,
    body bytea not null,
    primary key (client, n)
);
alter table pubsub.replies alter column body set storage external;

create table pubsub.calls_over (
    client text collate "C" not null,
    id text collate "C" not null,
    topic text collate "C" not null,
    request bytea not null,
    primary key (client, id)
);

-- Memberships in consumer groups; finished ranges, and attempts, of which the service may not know.
create table pubsub.groups (
    client text collate "C" not null,
    member bigint not null,
    topic text collate "C" not null,
    name text collate "C" not null,
    store text collate "C" not null,
    number bigint not null,
    log text collate "C" not null,
    told text not null,
    wish text not null,
    cuts bigint not null default 0,
    gone bigint not null default 1,
    primary key (client, member)
);

create table pubsub.group_done (
    client text collate "C" not null,
    member bigint not null,
    log text collate "C" not null,
    part bigint not null,
    low bigint not null,
    high bigint not null,
    primary key (client, member, log, part, low)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table pubsub.group_begun (
    client text collate "C" not null,
    member bigint not null,
    log text collate "C" not null,
    place bigint not null,
    attempts bigint not null,
    primary key (client, member, log, place)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Files that the command `get` writes on its own machine; a path is bytes.
create table pubsub.files (
    client text collate "C" not null,
    path bytea not null,
    part bytea not null,
    size bigint not null,
    primary key (client, path)
);

-- The last statement of each transaction of a client, just before COMMIT. It raises, so that nothing of the transaction
-- happens, unless the life is the one that has the client open and has made all commits before this one.
--   mark    text that the transaction set as pubsub.tx at its beginning, '' for a statement of its own: a COMMIT or ROLLBACK
--           in between forgets the setting
create function pubsub.step(its_client text, its_life text, number bigint, mark text) returns void
language plpgsql as $$
begin
    if mark <> '' and pg_catalog.current_setting('pubsub.tx', true) is distinct from mark then
        raise exception using errcode = 'PB001', message = 'a statement ended the transaction of the client';
    end if;
    if pg_catalog.current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
    update pubsub.state set commits = number where client = its_client and life = its_life and commits = number - 1;
    if not found then
        raise exception using errcode = 'PB002', message = 'another life has the client open, or commits are missing';
    end if;
end
$$;
