"""A worker that sends each message to another system, with pauses between attempts and dead letters in the end.

    PUBSUB_PROXIES_FILE=cluster/proxies python retries.py http://127.0.0.1:9000/mail   # until SIGTERM
    PUBSUB_PROXIES_FILE=cluster/proxies python retries.py --again                      # put dead letters again

The other system may receive a request twice: after a crash, and after a time-out. It gets the message's ID as the key
against repeats.
"""

import logging
import signal
import sys
import threading
import urllib.request

from pubsub import Client, DataLoss, Message, PubsubError, Transaction, Unavailable

TOPIC = "mail"
ATTEMPTS = 5  # `handler_attempts`: then a message becomes a dead letter, and the worker goes on behind it.
PAUSE_SECONDS = 0.2  # After the first failure; twice as long after each further one.

stopping = threading.Event()


def deliver(url: str, message: Message) -> None:
    headers = {"Idempotency-Key": message.id}
    request = urllib.request.Request(url, data=message.body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=10.0):
        pass


def work(client: Client, url: str) -> None:
    failures = 0

    def handle(message: Message, transaction: Transaction) -> None:
        deliver(url, message)  # First the other system, then the transaction.
        transaction.execute("insert or ignore into sent values (?)", (message.id,))

    while not stopping.is_set():
        try:
            if client.process(TOPIC, handle, timeout=1.0):
                failures = 0
        except (Unavailable, DataLoss) as error:
            logging.warning("%s", error)
        except PubsubError:
            raise
        except Exception as error:  # noqa: BLE001
            logging.warning("attempt failed: %s", error)
            stopping.wait(PAUSE_SECONDS * 2 ** min(failures, 8))
            failures += 1


def put_again(client: Client) -> None:
    letters = client.dead_letters(TOPIC)
    with client.transaction() as transaction:
        transaction.execute("create table if not exists again (id text primary key)")
        for letter in letters:
            known = list(transaction.execute("select 1 from again where id = ?", (letter.first,)))
            if letter.body is not None and not known:
                transaction.execute("insert into again values (?)", (letter.first,))
                client.put(TOPIC, letter.body, key=letter.key, transaction=transaction)
                print("again:", letter.body.decode(), "which failed with", letter.error)
    client.flush()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Client("mailer") as client:
        with client.transaction() as transaction:
            transaction.execute("create table if not exists sent (id text primary key)")
        client.subscribe(TOPIC)
        if sys.argv[1] == "--again":
            put_again(client)
        else:
            work(client, sys.argv[1])


if __name__ == "__main__":
    main()
