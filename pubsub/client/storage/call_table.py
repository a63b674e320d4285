"""Keep the calls of a client in its state file: waiting calls, and replies that can be read by the call's ID."""

from __future__ import annotations

from typing import Any

from pubsub.base.limits import CALL_REPLIES_BYTES_MAX, CALLS_MAX
from pubsub.client.core.calling import DISCARDED, WAITING, CallState, service_of
from pubsub.client.storage.interface import Database
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import TooLarge

FORGET_ROWS = 100
"""Calls that are forgotten together to make room."""

_COLUMNS = "id, topic, made, deadline, outcome, body, answered, told"


class CallTable:
    """The table of calls in an open store. Changes run within a transaction of the client."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, call: str) -> tuple[CallState, str, bytes] | None:
        """Return a kept call, its topic and its fingerprint; None if there is none with this ID."""
        statement = f"select {_COLUMNS}, request from pubsub_calls left join pubsub_replies using (n) where id = ?"  # noqa: S608
        for row in self._database.query(statement, (call,)):
            return _state(row[:-1]), row[1], row[-1]
        return None

    def find_over(self, call: str) -> tuple[str, bytes] | None:
        """Return topic and fingerprint of a named call with a forgotten reply; None if there is none."""
        for topic, request in self._database.query(
            "select topic, request from pubsub_calls_over where id = ?", (call,)
        ):
            return topic, request
        return None

    def all(self) -> list[CallState]:
        """Return every kept call, oldest first."""
        statement = f"select {_COLUMNS} from pubsub_calls left join pubsub_replies using (n) order by n"  # noqa: S608
        return [_state(row) for row in self._database.query(statement)]

    def add(
        self,
        transaction: Transaction,
        call: str,
        topic: str,
        request: bytes,
        made: float,
        deadline: float | None,
        *,
        named: bool,
    ) -> None:
        """Add a call.

        Args:
            named: True if the caller named it, so it may be repeated under its ID at any later time.

        Raises:
            TooLarge: CALLS_MAX calls are kept, or their replies take CALL_REPLIES_BYTES_MAX, and none may be forgotten.
        """
        self._make_room(transaction)
        transaction.run(
            "insert into pubsub_calls (n, id, topic, request, named, made, deadline)"
            " select coalesce(max(n), 0) + 1, ?, ?, ?, ?, ?, ? from pubsub_calls",
            (call, topic, request, int(named), made, deadline),
        )

    def _make_room(self, transaction: Transaction) -> None:
        while True:
            ((count, size),) = self._database.query("select count(*), coalesce(sum(size), 0) from pubsub_calls")
            if count < CALLS_MAX and size < CALL_REPLIES_BYTES_MAX:
                return
            oldest = transaction.run("select n from pubsub_calls where told = 1 order by n limit ?", (FORGET_ROWS,))
            if not oldest:
                what = "number of calls that wait or have unread replies"
                if count >= CALLS_MAX:
                    raise TooLarge(what, count + 1, CALLS_MAX, "CALLS_MAX")
                raise TooLarge("total of unread replies", int(size), CALL_REPLIES_BYTES_MAX, "CALL_REPLIES_BYTES_MAX")
            for n in oldest:
                transaction.run(
                    "insert into pubsub_calls_over (id, topic, request)"
                    " select id, topic, request from pubsub_calls where n = ? and named = 1",
                    n,
                )
                transaction.run("delete from pubsub_replies where n = ?", n)
                transaction.run("delete from pubsub_calls where n = ?", n)

    def answer(self, transaction: Transaction, call: str, outcome: str, body: bytes, at: float) -> bool:
        """Keep the reply to a waiting or discarded call; return False if there is none."""
        found = transaction.run(
            "update pubsub_calls set outcome = ?, size = ?, answered = ?, told = 0 where id = ? and outcome in (?, ?)"
            " returning n",
            (outcome, len(body), at, call, WAITING, DISCARDED),
        )
        for (n,) in found:
            transaction.run("insert into pubsub_replies (n, body) values (?, ?)", (n, body))
        return bool(found)

    def tell(self, transaction: Transaction, call: str) -> None:
        """Mark a reply as handed over."""
        transaction.run("update pubsub_calls set told = 1 where id = ?", (call,))

    def forget(self, transaction: Transaction, call: str) -> bool:
        """Drop a call with its ID; return True if there was one."""
        transaction.run("delete from pubsub_replies where n = (select n from pubsub_calls where id = ?)", (call,))
        gone = [
            transaction.run(f"delete from {table} where id = ? returning id", (call,))  # noqa: S608
            for table in ("pubsub_calls", "pubsub_calls_over")
        ]
        return any(gone)


def _state(row: tuple[Any, ...]) -> CallState:
    call, topic, made, deadline, outcome, body, answered, told = row
    return CallState(call, service_of(topic), made, deadline, outcome, body, answered, bool(told))
