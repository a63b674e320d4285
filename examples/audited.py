"""An audit of your own traffic: two clients record their puts and deliveries, and the audit compares the records.

    export PUBSUB_PROXIES_FILE=cluster/proxies
    python audited.py records
    pubsub pipeline audit records --drained       # needs the extra `spark`

`recorder=` is all that a client needs. The audit joins the records of all clients and names each message that was lost,
doubled, reordered or never put; its exit code is 0 if there is none.
"""

import sys
from pathlib import Path

from pubsub import Client, Message, Transaction

TOPIC = "audited"
MESSAGES = 1_000


def publish(records: Path) -> None:
    with Client("auditor-shop", recorder=records / "shop.jsonl") as shop:
        for first in range(0, MESSAGES, 100):
            shop.put_many(TOPIC, [b"order %d" % number for number in range(first, first + 100)])


def handle(message: Message, transaction: Transaction) -> None:
    transaction.execute("insert into ledger values (?, ?)", (message.id, message.body))


def consume(records: Path) -> int:
    """Handle the backlog, until an answer says that no more messages are there."""
    with Client("auditor-billing", recorder=records / "billing.jsonl") as billing:
        while billing.process(TOPIC, handle, timeout=5.0, max=1_000):
            pass
        with billing.transaction() as transaction:
            (row,) = transaction.execute("select count(*), count(distinct id) from ledger")
        if row[0] != row[1]:
            raise SystemExit(f"{row[0]} rows, {row[1]} different")
        return int(row[0])


def main(records: Path) -> None:
    records.mkdir(exist_ok=True)
    with Client("auditor-billing", recorder=records / "billing.jsonl") as billing:
        with billing.transaction() as transaction:
            transaction.execute("create table if not exists ledger (id text primary key, body blob)")
        billing.subscribe(TOPIC)
    publish(records)
    print(consume(records), "messages handled")
    print(f"now run: pubsub pipeline audit {records} --drained")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
