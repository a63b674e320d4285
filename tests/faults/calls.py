"""A caller, or a worker, that may be killed at any moment: `python -m tests.faults.calls JSON`.

A worker serves the service that is its only topic until it is told to finish: its effect is a row with the call's ID,
and its reply says which row that was, so that a second effect has another reply. It prints `serving`.

A caller makes `count` calls under IDs of its own, those of its earlier lives again, and writes each reply down. It
prints `replied N` as it goes and `done N`; a reply that is not the one it had before is `different ID`. One that asks
makes no call: it asks for every reply by its ID, makes the call again, and makes another one under its ID.

Facts: name, directory, proxies, topics: the service; serves: it is the worker; count: of calls; asks: it is a caller
that asks; fails: which part of the calls the handler fails on, once each; die: see `dying.die_at_step`; timeout: of a
call.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pubsub import CallerError, Client, Request, Transaction, Unavailable
from pubsub.config.settings import ClientSettings
from tests.faults.dying import die_at_step
from tests.faults.orders import Orders

EFFECTS = "create table if not exists effects (n integer primary key, id text, body blob)"
REPLIED = "create table if not exists replied (id text primary key, body blob)"


def serve(client: Client, service: str, orders: Orders, fails: int) -> None:
    """Serves until it is told to finish."""
    with client.transaction() as transaction:
        transaction.execute(EFFECTS)
    failed: set[str] = set()

    def handler(request: Request, transaction: Transaction) -> bytes:
        transaction.execute("insert into effects (id, body) values (?, ?)", (request.id, request.body))
        if fails and len(request.body) % fails == 0 and request.id not in failed:
            failed.add(request.id)
            raise ValueError("once")
        row = transaction.execute("select max(n) from effects").get
        return b"%s is row %d" % (request.body, row)

    with suppress(Unavailable):
        client.serve(service, handler, timeout=0.01)
    print("serving", flush=True)
    while not orders.finishing.is_set():
        try:
            client.serve(service, handler, timeout=0.5)
        except Unavailable as error:
            _tell(error)


def _tell(error: Unavailable) -> None:
    """For whoever looks into a round that takes long."""
    print(f"{time.strftime('%X')} {error}", file=sys.stderr, flush=True)


def call(client: Client, service: str, count: int) -> None:
    """Calls, and asks again."""
    with client.transaction() as transaction:
        transaction.execute(REPLIED)
        known = dict(transaction.execute("select id, body from replied"))
    for number in range(1, count + 1):
        name, body = _call(client, number)
        while True:
            try:
                reply = client.call(service, body, id=name, deadline=3600.0)
                break
            except Unavailable as error:  # The call is kept, or is not made yet.
                _tell(error)
        if known.get(name, reply.body) != reply.body:
            print("different", name, flush=True)
        with client.transaction() as transaction:
            transaction.execute("insert or replace into replied values (?, ?)", (name, reply.body))
        print("replied", number, flush=True)
    print("done", count, flush=True)


def ask(client: Client, service: str, count: int) -> None:
    """Asks again, when all is over: every ID has the reply that was written down, and no other request."""
    with client.transaction() as transaction:
        known = dict(transaction.execute("select id, body from replied"))
    for number in range(1, count + 1):
        name, body = _call(client, number)
        asked = client.reply(name).body, client.call(service, body, id=name).body
        if asked != (known[name], known[name]):
            print("different", name, flush=True)
        with suppress(CallerError):
            client.call(service, body + b" another", id=name)
            print("different", name, "was called with another body", flush=True)
    print("asked", count, flush=True)


def _call(client: Client, number: int) -> tuple[str, bytes]:
    name = f"{client.name}-{number}"
    return name, b"x" * (number % 7) + name.encode()


def main(facts: dict[str, Any]) -> None:
    """Does one or the other."""
    orders = Orders(facts)
    if "die" in facts:
        die_at_step(**facts["die"])
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]),
        directory=Path(facts["directory"]),
        timeout_seconds=facts.get("timeout", 5.0),
        **facts.get("keys", {}),
    )
    (service,) = orders.topics
    with Client(facts["name"], settings=settings) as client:
        if facts.get("serves"):
            serve(client, service, orders, facts.get("fails", 0))
        elif facts.get("asks"):
            ask(client, service, facts["count"])
        else:
            call(client, service, facts["count"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
