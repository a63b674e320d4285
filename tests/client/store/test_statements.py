"""The translation of the common subset of SQL for PostgreSQL: each statement is confined to the client's own rows."""

from __future__ import annotations

import re

import pytest

from pubsub.client.storage.applying import APPLY
from pubsub.client.storage.postgres.statements import translate
from pubsub.errors import InvalidName
from tests.client.test_fields import BASE, CHANGES


@pytest.mark.parametrize(
    ("statement", "translated"),
    [
        (
            "insert into pubsub_a (x, y) values (?, 0) on conflict (x) do update set y = excluded.y",
            "insert into pubsub.a (client, x, y) values ('me', %s, 0)"
            " on conflict (client, x) do update set y = excluded.y",
        ),
        (
            "insert into pubsub_a (n, x) select max(n), ? from pubsub_b",
            "insert into pubsub.a (client, n, x) select 'me', max(n), %s"
            " from (select * from pubsub.b where client = 'me') as pubsub_b",
        ),
        (
            "update pubsub_a set x = ?, y = 1 where x = ? and y = ? returning n",
            "update pubsub.a set x = %s, y = 1 where client = 'me' and x = %s and y = %s returning n",
        ),
        ("update pubsub_a set x = 0", "update pubsub.a set x = 0 where client = 'me'"),
        ("delete from pubsub_a", "delete from pubsub.a where client = 'me'"),
        (
            "delete from pubsub_a where x in (select x from pubsub_b where y = ?)",
            "delete from pubsub.a where client = 'me'"
            " and x in (select x from (select * from pubsub.b where client = 'me') as pubsub_b where y = %s)",
        ),
        (
            "select x from pubsub_a left join pubsub_b using (n) where x = ? order by n",
            "select x from (select * from pubsub.a where client = 'me') as pubsub_a"
            " left join (select * from pubsub.b where client = 'me') as pubsub_b using (n) where x = %s order by n",
        ),
    ],
)
def test_a_statement_gets_the_client(statement: str, translated: str) -> None:
    assert translate(statement, "me") == translated


@pytest.mark.parametrize("change", [*BASE, *CHANGES], ids=lambda change: type(change).__name__)
def test_no_statement_of_a_change_touches_the_rows_of_another_client(change: object) -> None:
    for statement, _ in APPLY[type(change)](change):
        found = translate(statement, "me")
        assert found.count("%s") == statement.count("?")
        assert "pubsub_" not in re.sub(r"as pubsub_\w+", "", found)
        for table in re.findall(r"pubsub\.\w+", found):
            confined = re.search(
                rf"insert into {table} \(client, |(update|delete from) {table}\b.* where client = 'me'"
                rf"|\(select \* from {table} where client = 'me'\)",
                found,
            )
            assert confined, found


@pytest.mark.parametrize(
    "statement",
    [
        "drop table pubsub_a",
        "delete from pubsub_a where x = ? or y = ?",
        "select x from pubsub_a where x like '%'",
        "delete from pubsub_a; select 1",
    ],
)
def test_a_statement_outside_the_subset_is_refused(statement: str) -> None:
    with pytest.raises(ValueError, match="not of the common subset"):
        translate(statement, "me")


def test_no_name_can_leave_its_quotes() -> None:
    with pytest.raises(InvalidName):
        translate("select x from pubsub_a", "me' or 'a' = 'a")
