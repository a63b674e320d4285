"""The demo's publisher and subscriber: programs as a user would write them, each a process that may be killed.

    demo_roles.py publisher  INPUT DIRECTORY RECORD PROXIES
    demo_roles.py subscriber INPUT DIRECTORY RECORD PROXIES

Each says on stdout how far it is, and is told on stdin how far to go. Neither knows whether it was killed before: the
publisher's position and its puts are one commit, and so are what a subscriber records and its position.
RECORD is a file for what the client itself writes down, for `pubsub pipeline audit`; `-` is none. PROXIES is a file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from demo_check import POSITION, SEEN, digest
from demo_input import number_of, saved

from pubsub import Client
from pubsub.client.core.message import Message
from pubsub.errors import Unavailable

COMMIT_RECORDS: Final = 200
"""Records that the publisher puts in one commit, at most; a fiftieth of a short input."""

PATIENCE_SECONDS: Final = 120.0


def say(word: str, number: int = 0) -> None:
    """Tells the demo."""
    sys.stdout.write(f"{word} {number}\n")
    sys.stdout.flush()


def open_client(directory: Path, record: str, proxies: str) -> Client:
    """The client whose state is there."""
    recorder = None if record == "-" else record
    return Client(
        directory.name, proxies_file=proxies, directory=directory, timeout=PATIENCE_SECONDS, recorder=recorder
    )


def publisher(source: Path, directory: Path, record: str, proxies: str) -> None:
    """Puts the input, as far as it is told, from where its last commit left off."""
    items = list(saved(source))
    step = max(1, min(COMMIT_RECORDS, len(items) // 50))
    with open_client(directory, record, proxies) as client:
        with client.transaction() as transaction:
            transaction.execute(POSITION)
            rows = list(transaction.execute("select next from demo_position"))
        done = int(rows[0][0]) if rows else 0
        say("put", done)
        for line in sys.stdin:
            if line == "finish\n":
                break
            limit = int(line)
            while done < limit:
                stop = min(done + step, limit)
                by_topic: dict[str, list[bytes]] = defaultdict(list)
                for topic, body in items[done:stop]:
                    by_topic[topic].append(body)
                with client.transaction() as transaction:  # The puts and the position: both, once, or neither.
                    for topic, bodies in by_topic.items():
                        client.put_many(topic, bodies, transaction=transaction)
                    transaction.execute("insert or replace into demo_position values (1, ?)", (stop,))
                done = stop
                say("put", done)
            client.flush()
            say("flushed", done)
    say("ended", done)


def subscriber(source: Path, directory: Path, record: str, proxies: str) -> None:
    """Records every message of every topic in the transaction that takes it, until it is told to finish."""
    topics = sorted({item.topic for item in saved(source)})
    finishing = Event()
    Thread(target=_wait_for_word, args=(finishing,), daemon=True).start()
    with open_client(directory, record, proxies) as client:
        with client.transaction() as transaction:
            transaction.execute(SEEN)
            ((taken,),) = transaction.execute("select count(*) from demo_seen")
        for topic in topics:
            client.subscribe(topic)
        say("subscribed")
        say("took", taken)

        def write(message: Message, transaction: Any) -> None:
            row = (message.topic, number_of(message.body), digest(message.body))
            transaction.execute("insert into demo_seen values (?, ?, ?)", row)

        quiet = 0
        while not (finishing.is_set() and quiet):
            last_round = finishing.is_set()
            count = 0
            for topic in topics:
                with suppress(Unavailable):  # Its server, or the proxy, is just dead: the next round asks again.
                    count += client.process(topic, write, timeout=0.2 if last_round else 0.01)
            quiet = int(last_round and count == 0)
            if count:
                taken += count
                say("took", taken)
    say("ended", taken)


def _wait_for_word(finishing: Event) -> None:
    if sys.stdin.readline():
        finishing.set()


if __name__ == "__main__":
    role, source, directory, record, proxies = sys.argv[1:]
    {"publisher": publisher, "subscriber": subscriber}[role](Path(source), Path(directory), record, proxies)
