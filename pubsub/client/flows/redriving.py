"""Hand dead letters to their handler again, put them elsewhere, or drop old ones.

A redrive goes to the subscriber that failed, and not to the topic, where all other subscribers would get the message
once more. The letter becomes a waiting message in one commit. `process` takes it as any message that was put aside.

The rule is docs/explanation/retries.md, J8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.changes import Change, LettersRemoved, Redriven
from pubsub.client.core.waiting import Waiting
from pubsub.client.flows.puts import Puts
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.errors import CallerError, NotSubscribed
from pubsub.protocol import check_topic
from pubsub.protocol.names import is_service_topic

if TYPE_CHECKING:
    from pubsub.client.storage.reading import LetterRow

ALL_LETTERS: Final = "all"

TOGETHER: Final = 100
"""Letters that are put elsewhere in one commit."""


def check_since(since: object) -> float:
    """Return a time as seconds since 1970; minus infinity for none.

    Raises:
        CallerError: it is no datetime with a time zone.
    """
    if since is None:
        return float("-inf")
    if not isinstance(since, datetime) or since.tzinfo is None:
        raise CallerError(f"since is a datetime with a time zone, not {since!r}"[:200])
    return since.timestamp()


class Redriving:
    """The calls about dead letters that change them, on one session."""

    def __init__(self, session: Session, puts: Puts) -> None:
        self.session, self.puts = session, puts

    def redrive(self, which: str | Sequence[str], topic: str | None, since: datetime | None, to: str | None) -> int:
        """Hand dead letters to their handler again, or put them to a topic; return their number.

        Raises:
            CallerError: an argument is not allowed, or there is no such dead letter; nothing happened.
            NotSubscribed: a named letter is of a topic without a subscription; nothing happened.
            TooLarge: there is no room for a further waiting message, or in the outbox.
        """
        earliest = check_since(since)
        if topic is not None:
            check_topic(topic)
        if to is not None:
            self.puts.check_put(to)
        with self.session.entered():
            self.session.check_disk()
            letters = self._chosen(which, topic, earliest, elsewhere=to is not None)
            done = self._hand_over(letters) if to is None else self._put(letters, to)
            self.session.counters["redriven"] += done
            self.session.tell_waiting()
            return done

    def purge(self, age: timedelta, topic: str | None) -> int:
        """Drop the dead letters that are older than `age`, and return their number.

        Raises:
            CallerError: the age is no timedelta of at least 0.
        """
        if not isinstance(age, timedelta) or age < timedelta(0):
            raise CallerError(f"age is a timedelta of at least 0, not {age!r}"[:200])
        if topic is not None:
            check_topic(topic)
        with self.session.entered():
            before = self.session.clock.wall() - age.total_seconds()
            untold = self.session.store.untold_letters()
            rows = self.session.store.letters(topic)
            letters = [row.number for row in rows if row.at <= before and row.number not in untold]
            if letters:
                self.session.commit([LettersRemoved(letters)], fsync=True)
            return len(letters)

    def _chosen(
        self, which: str | Sequence[str], topic: str | None, earliest: float, *, elsewhere: bool
    ) -> list[LetterRow]:
        """Return the letters that a call names, oldest first."""
        named = _names(which)
        rows = [row for row in self.session.store.letters(topic) if row.size is not None and row.at >= earliest]
        if named is None:
            return [row for row in rows if elsewhere or self._has_handler(row.topic)]
        found = [row for row in rows if row.first in named]
        missing = sorted(named - {row.first for row in found})
        if missing:
            raise CallerError(
                f"client {self.session.name} has no dead letter {missing[0]!r:.80} with a message; list them: "
                f"pubsub client {self.session.name} dead-letters"
            )
        for row in found:
            if not elsewhere and not self._has_handler(row.topic):
                raise NotSubscribed(self.session.name, row.topic)
        return found

    def _has_handler(self, topic: str) -> bool:
        """Return True if `process` may take a message of the topic."""
        sub = self.session.core.subscriptions.get(topic)
        return sub is not None and sub.intent.on and not is_service_topic(topic)

    def _hand_over(self, letters: Sequence[LetterRow]) -> int:
        """Make letters waiting messages, as many as there is room for."""
        session, waiting = self.session, self.session.core.waiting
        changes: list[Change] = []
        added: list[Waiting] = []
        size = 0
        for number, row in enumerate(letters, waiting.next_number()):
            size += row.size or 0
            if not waiting.has_room(size, len(added) + 1):
                break
            changes.append(Redriven(row.number, number))
            added.append(Waiting(number, row.topic, row.key, row.size or 0, 0, 0, session.now))
        if letters and not added:
            raise waiting.no_room(letters[0].size or 0)
        if changes:
            session.commit(changes, fsync=True)
        for one in added:
            waiting.add(one)
        return len(added)

    def _put(self, letters: Sequence[LetterRow], topic: str) -> int:
        """Put letters to a topic; each leaves the table in the commit of its put."""
        session = self.session
        for start in range(0, len(letters), TOGETHER):
            rows = letters[start : start + TOGETHER]
            numbers = [row.number for row in rows]
            with Work(session, partial(_removal, numbers), fsync=True) as transaction:
                for number in numbers:
                    body, key, headers = session.store.letter_contents(number)
                    contents = BatchContents([body], [key] if key else (), [headers] if headers else ())
                    transaction.put_batches(topic, [contents])
        session.follow()
        return len(letters)


def _removal(numbers: Sequence[int]) -> list[Change]:
    return [LettersRemoved(numbers)]


def _names(which: object) -> set[str] | None:
    """Return the named message IDs; None: all letters."""
    if which == ALL_LETTERS:
        return None
    named = [which] if isinstance(which, str) else which
    if isinstance(named, bytes) or not isinstance(named, Iterable):
        raise CallerError(f'a redrive names message IDs, or "all", not {type(which).__name__}')
    found = list(named)
    if not found or not all(isinstance(one, str) for one in found):
        raise CallerError('a redrive names message IDs as text, at least one, or "all"')
    return set(found)
