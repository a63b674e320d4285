"""Translate statements of the common subset of SQL for PostgreSQL, where all clients of a database share the tables.

The subset is stated in `pubsub.client.storage.interface`. A table `pubsub_x` becomes `pubsub.x`, a parameter `?`
becomes `%s`, and each statement is confined to the rows of one client:

* An insertion gets the column `client` and its value. A key of `on conflict` begins with `client`.
* An update and a deletion get a condition.
* A table that is read becomes a subquery with a condition, which PostgreSQL's planner dissolves.

The client's ID stands in the text as a literal. Its form allows no quote, so the parameters keep their places.

The rule is docs/explanation/databases.md, DB1.
"""

from __future__ import annotations

import re
from typing import Final

from pubsub.protocol.names import check_id

_INSERT: Final = re.compile(r"insert into pubsub_(\w+) \(([^)]*)\) (values \(|select )")
_UPDATE: Final = re.compile(r"(update|delete from) pubsub_(\w+)")
_READ: Final = re.compile(r"\b(from|join) pubsub_(\w+)")
_WHERE: Final = " where "


def translate(statement: str, client: str) -> str:
    """Return a statement of the common subset for PostgreSQL, confined to a client.

    Raises:
        ValueError: the statement is not of the subset.
    """
    mine = f"'{check_id('client ID', client)}'"
    if "%" in statement or ";" in statement or " or " in statement:
        raise ValueError(f"not of the common subset of SQL: {statement}")
    rest = statement
    done = ""
    if insert := _INSERT.match(statement):
        table, columns, source = insert.groups()
        done = f"insert into pubsub.{table} (client, {columns}) {source}{mine}, "
        rest = statement[insert.end() :].replace("on conflict (", "on conflict (client, ")
    elif change := _UPDATE.match(statement):
        verb, table = change.groups()
        head, where, condition = statement[change.end() :].partition(_WHERE)
        done = f"{verb} pubsub.{table}{head} where client = {mine}"
        rest = f" and {condition}" if where else ""
    elif not statement.startswith("select "):
        raise ValueError(f"not of the common subset of SQL: {statement}")
    rest = _READ.sub(rf"\1 (select * from pubsub.\2 where client = {mine}) as pubsub_\2", rest)  # noqa: S608
    return (done + rest).replace("?", "%s")
