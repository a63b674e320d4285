"""Open the same client's state in a file and in PostgreSQL, and read all of it by the interface of a store."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, Protocol

from pubsub.client.storage.interface import ClientStore
from pubsub.client.storage.store import Store
from pubsub.config.databases import DatabaseUrl

_names = count(1)


class Place(Protocol):
    """A place for states; each `open` of one name opens the same state again."""

    def open(self, name: str) -> Any:
        """Open the state of a client."""

    def new(self) -> str:
        """Return the name of a client without state."""

    def text(self, statement: str) -> str:
        """Return a statement of an application, written with `?`, as this database has it."""


class Files:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, name: str) -> ClientStore:
        return Store(self.directory / f"{name}.db")

    def new(self) -> str:
        return f"client{next(_names)}"

    def text(self, statement: str) -> str:
        return statement


class Database:
    def __init__(self, url: str) -> None:
        self.url = DatabaseUrl(url)

    def open(self, name: str) -> ClientStore:
        from pubsub.client.storage.postgres.store import PostgresStore

        return PostgresStore(name, self.url, seconds=10.0)

    def new(self) -> str:
        return f"client{next(_names)}"

    def text(self, statement: str) -> str:
        return statement.replace("?", "%s")


def content(store: ClientStore) -> dict[str, Any]:
    """Return all that a session reads from its store, and what commands read."""
    subscriptions = sorted(store.subscriptions())
    waiting = list(store.waiting())
    topics = {one[0] for one in subscriptions}
    groups = store.groups()
    letters = store.letters(None)
    found: dict[str, Any] = {
        "milliseconds": store.known_milliseconds(),
        "cuts": store.state("cuts"),
        "rows": list(store.rows()),
        "bodies": {row[0]: store.body(row[0]) for row in store.rows()},
        "chains": sorted(store.chains()),
        "subscriptions": subscriptions,
        "starts": sorted(store.starts()),
        "patterns": store.patterns(),
        "joined": store.joined(),
        "replays": sorted(store.replays()),
        "taken": {topic: store.taken(topic) for topic in topics},
        "retries": sorted(store.retries()),
        "waiting": waiting,
        "pieces": [store.waiting_piece(row[0]) for row in waiting],
        "groups": groups,
        "done": [store.group_done(group[0]) for group in groups],
        "begun": [store.group_begun(group[0]) for group in groups],
        "untold": store.untold(),
        "untold letters": store.untold_letters(),
        "letters": letters,
        "letters of t": store.letters("t"),
        "contents": [store.letter_contents(one.number) for one in letters],
        "dead letters": store.dead_letters(None),
        "dead letters without bodies": store.dead_letters("t", bodies=False),
        "files": [(_bytes(path), _bytes(part), size) for path, part, size in store.files()],
    }
    return found


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
