-- Write an order and its message in one transaction, with SQL alone: any language can do the same.
--
--     pubsub relay --install --database postgresql://app@127.0.0.1/shop
--     psql postgresql://app@127.0.0.1/shop -v number=17 -v fruit=pear -f examples/outgoing/with_sql.sql
--
-- Beside it runs `pubsub relay --database …`, which sends the message after the commit, once. A number that was taken
-- already ends the transaction, and no message is sent.
\set ON_ERROR_STOP on

begin;
create table if not exists orders (number int primary key, fruit text not null);
insert into pubsub.outgoing (topic, key, headers, body)
values ('orders', convert_to(:'number', 'UTF8'), '{"source": "psql"}', convert_to(:'fruit', 'UTF8'));
insert into orders values (:number, :'fruit');
commit;
