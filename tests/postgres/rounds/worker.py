"""A client with its state in the database, which may be killed at any moment; a program of its own.

Facts: name, directory, proxies, database; role (see `ROLES`); topic; plain_database: the database without
the link that faults cut, for the connection of the application; seed.

It prints a line for each error that a call raises, and goes on, as an application does. StateCopied ends it. After the
line `finish` on its standard input it ends once its outbox is empty.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Any, Final

import psycopg

from pubsub import Client, Message, StateCopied, StorageError, Transaction, Unavailable
from pubsub.config import ClientSettings
from tests.faults.cluster import until
from tests.postgres.ledger import TOPICS

EFFECT: Final = "insert into effects (way, row, client) values (%s, %s, %s)"
WAIT_SECONDS: Final = 0.5
WRITER: Final = 800_000
"""Number of the publisher as a writer of outgoing rows."""

CLUMSY: Final = 0.02
"""Share of the handlers that fail after their effect."""


class Clumsy(Exception):
    """The error of a handler."""


class Worker:
    """A client, and its handlers."""

    def __init__(self, client: Client, facts: dict[str, Any], finishing: threading.Event) -> None:
        self.client, self.facts, self.finishing = client, facts, finishing
        self.name, self.topic = facts["name"], facts.get("topic", "")
        self.random = Random(f"{facts['seed']} {self.name} {client.publisher_id}")

    def calls(self, call: Callable[[], Any]) -> None:
        """Call until the worker finishes."""
        while not self.finishing.is_set():
            self.once(call)

    def subscribe(self, **options: Any) -> None:
        """Subscribe, however often that fails."""
        until(lambda: self.once(lambda: self.client.subscribe(self.topic, **options)), "subscribed")
        print("subscribed", flush=True)

    def once(self, call: Callable[[], Any]) -> bool:
        """Call once; print the error of a fault."""
        try:
            call()
        except Clumsy:
            return False
        except StateCopied:
            raise  # An operator has to decide.
        except (StorageError, Unavailable) as error:
            print("error", type(error).__name__, str(error).partition("\n")[0], flush=True)
            self.finishing.wait(0.01)
            return False
        return True

    # Consumers

    def effect(self, way: str, messages: list[Message], transaction: Transaction) -> None:
        """Write the effects and put their receipts, all in the transaction of the position."""
        rows = [message.body.decode() for message in messages]
        if len(rows) == 1:
            transaction.connection.execute(EFFECT, (way, rows[0], self.name))
        else:
            transaction.executemany(EFFECT, [(way, row, self.name) for row in rows])
        for row in rows:
            self.client.put("receipts", f"{way} {row}".encode(), transaction=transaction)
        if self.random.random() < CLUMSY:
            raise Clumsy

    def single(self) -> None:
        self.subscribe()

        def handle(message: Message, transaction: Transaction) -> None:
            self.effect("single", [message], transaction)

        self.calls(lambda: self.client.process(self.topic, handle, WAIT_SECONDS))

    def many(self) -> None:
        self.subscribe()

        def handle(messages: list[Message], transaction: Transaction) -> None:
            self.effect("many", messages, transaction)

        self.calls(lambda: self.client.process_many(self.topic, handle, WAIT_SECONDS))

    def member(self) -> None:
        self.subscribe(group="workers", start="earliest")

        def handle(message: Message, transaction: Transaction) -> None:
            self.effect("member", [message], transaction)

        self.calls(lambda: self.client.process(self.topic, handle, WAIT_SECONDS, group="workers"))

    # The publisher

    def putter(self) -> None:
        """Put in transactions with an intent, and alone with a journal; number them over the lives of the process."""
        number = self.facts["first"]

        own: list[psycopg.Connection[Any]] = []

        def put() -> None:
            nonlocal number
            number += 1
            if number % 3 == 0:
                self.put_by_own_connection(own, number)
            elif number % 3 == 1:
                with self.client.transaction() as transaction:
                    transaction.execute("insert into intents values (%s)", (number,))
                    self.client.put("direct", b"%d" % number, transaction=transaction)
            else:
                print("put", number, flush=True)
                self.client.put("plain", b"%d" % number)
                print("returned", number, flush=True)

        def pausing() -> None:
            put()
            self.finishing.wait(0.05)

        self.calls(pausing)

    def put_by_own_connection(self, own: list[psycopg.Connection[Any]], number: int) -> None:
        """Put a message as a row of a transaction of the application, with a row of the ledger."""
        try:
            if not own or own[0].closed:
                own[:] = [psycopg.connect(self.facts["plain_database"], connect_timeout=10)]
            topic = self.random.choice(TOPICS)
            own[0].execute("insert into ledger values (%s, %s, 0, %s)", (WRITER, number, topic))
            self.client.put(topic, b"%d %d 0" % (WRITER, number), connection=own[0])
            own[0].commit()
        except psycopg.OperationalError:
            own.clear()


ROLES: Final[dict[str, Callable[[Worker], None]]] = {
    "single": Worker.single, "many": Worker.many, "member": Worker.member, "putter": Worker.putter,
}  # fmt: skip


def main(facts: dict[str, Any]) -> int:
    """Work until told to finish."""
    finishing = threading.Event()

    def listen() -> None:
        if sys.stdin.readline():
            finishing.set()

    threading.Thread(target=listen, daemon=True).start()
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=facts["directory"], timeout_seconds=facts["timeout"],
        handler_attempts=1_000_000, retry_first_seconds=0.02, retry_longest_seconds=0.1, **facts["keys"],
    )  # fmt: skip
    try:
        client = Client(facts["name"], settings=settings, database=facts["database"])
    except StorageError as error:
        print("refused", type(error).__name__, str(error).partition("\n")[0], flush=True)
        return error.exit_code
    try:
        with client:
            worker = Worker(client, facts, finishing)
            print("opened", flush=True)
            ROLES[facts["role"]](worker)
            until(lambda: worker.once(lambda: client.flush(timeout=10)), "the outbox is empty")
    except StateCopied as error:
        print("error", type(error).__name__, str(error).partition("\n")[0], flush=True)
        return error.exit_code
    print("finished", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
