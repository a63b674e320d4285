"""The gateway's own state: its subscribers and webhooks, in a small SQLite file of its directory.

Messages are in the subscribers' clients, not here. A row is written before its subscription begins and removed after it
ends, so that a restart finds every subscription. The file is locked while it is open, which keeps a second gateway out
of the directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import CAREFUL, begin_file
from pubsub.errors import StorageError, StoreDamaged, StoreFull, StoreInUse
from pubsub.gateway.limits import SUBSCRIBERS_MAX, WEBHOOKS_MAX
from pubsub.gateway.problems import Problem
from pubsub.protocol.pattern_table import CLIENT_PATTERNS_MAX
from pubsub.protocol.patterns import is_pattern, overlap

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS subscriber (
    user TEXT NOT NULL, topic TEXT NOT NULL, name TEXT NOT NULL, webhook TEXT, PRIMARY KEY (user, topic, name)
) WITHOUT ROWID;
"""

_REMEDY: Final = "restore the gateway's directory from a backup"

ACTIVE: Final = "active"
ENDED: Final = "ended"


@dataclass(frozen=True)
class Webhook:
    """The receiver of a webhook.

    Attributes:
        url: of the receiver.
        secrets: `whsec_…`, newest first; all of them sign.
        state: ACTIVE or ENDED; reason: why it ended.
    """

    url: str
    secrets: tuple[str, ...]
    state: str = ACTIVE
    reason: str = ""


@dataclass(frozen=True)
class Subscriber:
    """One subscriber of one topic or pattern.

    Attributes:
        user: its owner.
        topic: the topic, or the pattern of topics.
        name: as its owner calls it.
        webhook: receiver of its messages; None: requests fetch them.
    """

    user: str
    topic: str
    name: str
    webhook: Webhook | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.user, self.topic, self.name

    @property
    def client(self) -> str:
        return f"{self.user}.{self.name}"


class Registry:
    """All subscribers of a gateway, in memory and on disk.

    Args:
        directory: of the gateway.

    Raises:
        StorageError: it cannot be opened; StoreInUse: another gateway has it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "gateway.db"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(str(directory), error.strerror or str(error)) from None
        begin_file(self._path, mode=0o600)  # The file contains the webhooks' secrets.
        with self._opening():
            self._db = apsw.Connection(str(self._path))
            self._db.execute(CAREFUL)
            self._db.set_busy_timeout(100)
            for pragma in ("locking_mode=exclusive", "journal_mode=wal", "synchronous=full"):
                self._db.execute(f"pragma {pragma}").fetchall()
            self._db.execute(_TABLES)
            rows = list(self._db.execute("SELECT user, topic, name, webhook FROM subscriber"))
            self._found = {found.key: found for found in (_loaded(*row) for row in rows)}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError):
            raise StoreInUse(str(self._path), "another gateway") from None
        except apsw.FullError:
            raise StoreFull(str(self._path), "the disk is full") from None
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise StoreDamaged(str(self._path), f"damaged ({error}); {_REMEDY}") from None
        except apsw.Error as error:
            raise StorageError(str(self._path), str(error)) from None

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """As `_errors`, also for rows that no gateway writes. After an error the file is closed."""
        try:
            with self._errors():
                yield
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._db.close()
            reason = str(error).split("\n", 1)[0][:200]
            raise StoreDamaged(str(self._path), f"damaged ({reason}); {_REMEDY}") from None
        except StorageError:
            if hasattr(self, "_db"):
                self._db.close()
            raise

    def find(self, user: str, topic: str, name: str) -> Subscriber | None:
        return self._found.get((user, topic, name))

    def all(self) -> list[Subscriber]:
        return [self._found[key] for key in sorted(self._found)]

    def webhooks(self, user: str, topic: str) -> list[Subscriber]:
        return [one for one in self.all() if one.user == user and one.topic == topic and one.webhook is not None]

    def check_apart(self, subscriber: Subscriber) -> None:
        """Check that no topic matches two subscriptions of one name: one client takes a message once, for one of them.

        Raises:
            Problem: a topic would match both, or the name has too many patterns.
        """
        others = [one for one in self._found.values() if one.client == subscriber.client]
        others = [one for one in others if one.topic != subscriber.topic]
        for one in others:
            if overlap(one.topic, subscriber.topic):
                text = f"{one.name} receives {one.topic}, and a topic may match only one subscription of a name"
                raise Problem("conflict", f"{text}; choose another name.")
        if is_pattern(subscriber.topic) and sum(is_pattern(one.topic) for one in others) >= CLIENT_PATTERNS_MAX:
            text = f"{subscriber.name} has {CLIENT_PATTERNS_MAX} patterns, which is the limit"
            raise Problem("conflict", f"{text}; choose another name.")

    def put(self, subscriber: Subscriber) -> None:
        """Add or replace a subscriber; durable when this returns.

        Raises:
            Problem: SUBSCRIBERS_MAX or WEBHOOKS_MAX is reached. StorageError: the disk failed.
        """
        if subscriber.key not in self._found and len(self._found) >= SUBSCRIBERS_MAX:
            raise Problem("busy", f"This gateway has {SUBSCRIBERS_MAX:,} subscribers, which is the limit; remove one.")
        hook = subscriber.webhook
        new = hook is not None and subscriber.key not in self._found
        if new and sum(one.webhook is not None for one in self._found.values()) >= WEBHOOKS_MAX:
            raise Problem("busy", f"This gateway has {WEBHOOKS_MAX} webhooks, which is the limit; remove one.")
        facts = None
        if hook is not None:
            facts = json.dumps({"url": hook.url, "secrets": hook.secrets, "state": hook.state, "reason": hook.reason})
        with self._errors():
            self._db.execute("INSERT OR REPLACE INTO subscriber VALUES (?, ?, ?, ?)", (*subscriber.key, facts))
        self._found[subscriber.key] = subscriber

    def end(self, subscriber: Subscriber, state: str, reason: str) -> Subscriber:
        """Change a webhook's state, and return the changed subscriber."""
        assert subscriber.webhook is not None
        changed = replace(subscriber, webhook=replace(subscriber.webhook, state=state, reason=reason))
        self.put(changed)
        return changed

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a subscriber; durable when this returns."""
        with self._errors():
            self._db.execute("DELETE FROM subscriber WHERE user = ? AND topic = ? AND name = ?", subscriber.key)
        self._found.pop(subscriber.key, None)

    def close(self) -> None:
        """Release the directory for another gateway."""
        self._db.close()


def _loaded(user: str, topic: str, name: str, webhook: str | None) -> Subscriber:
    if {type(text) for text in (user, topic, name)} != {str}:
        raise ValueError("a name that is not text")
    if webhook is None:
        return Subscriber(user, topic, name)
    facts = json.loads(webhook)
    hook = Webhook(facts["url"], tuple(facts["secrets"]), facts["state"], facts["reason"])
    if {type(text) for text in (hook.url, hook.state, hook.reason, *hook.secrets)} != {str}:
        raise ValueError("a webhook that is not text")
    return Subscriber(user, topic, name, hook)
