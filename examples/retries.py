"""A worker that sends each message to another system, with waits between attempts and dead letters in the end.

    PUBSUB_PROXIES_FILE=cluster/proxies python retries.py http://127.0.0.1:9000/mail   # until SIGTERM
    PUBSUB_PROXIES_FILE=cluster/proxies python retries.py --again                      # redrive the dead letters

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

stopping = threading.Event()


def deliver(url: str, message: Message) -> None:
    headers = {"Idempotency-Key": message.id}
    request = urllib.request.Request(url, data=message.body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=10.0):
        pass


def work(client: Client, url: str) -> None:
    def handle(message: Message, transaction: Transaction) -> None:
        deliver(url, message)  # First the other system, then the transaction.
        transaction.execute("insert or ignore into sent values (?)", (message.id,))

    while not stopping.is_set():
        try:
            client.process(TOPIC, handle, timeout=1.0)
        except (Unavailable, DataLoss) as error:
            logging.warning("%s", error)
        except PubsubError:
            raise
        except Exception as error:  # noqa: BLE001
            logging.warning("attempt failed: %s", error)  # It comes again after 1, 2, 4 and 8 seconds.


def redrive(client: Client) -> None:
    for letter in client.dead_letters(TOPIC):
        if letter.body is not None:
            print("again:", letter.body.decode(), "which failed with", letter.error)
    client.redrive("all", topic=TOPIC)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Client("mailer") as client:
        with client.transaction() as transaction:
            transaction.execute("create table if not exists sent (id text primary key)")
        client.subscribe(TOPIC)
        if sys.argv[1] == "--again":
            redrive(client)
        else:
            work(client, sys.argv[1])


if __name__ == "__main__":
    main()
