"""The gate of a running process: who is authorized now, and what it notes of those who come.

The file is looked at once a second, and at once after SIGHUP. One that cannot be used changes nothing: what was read
last counts on, the counter `reload_failed` rises, and the log says so each minute. It decides nothing itself; that does
`Access`, from what the file says.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final, Protocol

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import ConfigurationError
from pubsub.security.access import Access, Verdict
from pubsub.security.audit import Audit
from pubsub.security.authorized import Authorized, Line

LOOK_SECONDS: Final = 1.0
"""Between two looks at the file."""

REMIND_SECONDS: Final = 60.0
"""Between two lines of the log about a file that cannot be used."""

DENIALS_MAX: Final = 1_024
"""Kinds of denials that are told apart in a minute; of more only the counter tells."""

COUNTERS: Final = (
    "denied",
    "reloads",
    "reload_failed",
    "answers_dropped_rights_changed",
    "servers_under_a_wrong_name",
)
"""What is counted from the start, so that a report says 0 where nothing happened."""

_log: Final = logging.getLogger("pubsub.security")


class Source(Protocol):
    """Where it stands who is authorized: a file (`files.AuthorizedFile`), or memory (`opening.InMemory`)."""

    @property
    def unread(self) -> bool:
        """Whether the last `load` could not read it, for a reason that may be over though nothing has changed."""

    def load(self) -> Authorized:
        """What it says now; raises ConfigurationError where it cannot be used."""

    def changed(self) -> bool:
        """Whether it may say something else than at the last `load`."""


class Gate:
    """Who is let in to one process, and may do what there.

    Args:
        source: where it stands who is authorized.
        audit: where it is noted.
        now: the monotonic clock, in seconds.
        wall: seconds since 1970.

    Attributes:
        access: what is decided, by what the file says now.
        counters: how often what happened: COUNTERS.
        problem: why the file cannot be used at present, "" while it can.

    Raises:
        ConfigurationError, AuthorizedRefused: the file cannot be used.
    """

    def __init__(self, source: Source, audit: Audit, now: float, wall: float) -> None:
        self._source, self._audit = source, audit
        self.access = Access(source.load(), generation=int(wall * MICROSECONDS))
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.problem = ""
        self.deadline = now + LOOK_SECONDS
        self._hang_ups = self._hang_ups_taken = 0
        self._reminded = float("-inf")
        self._denials: set[tuple[str, str, str]] = set()
        self._denials_since = now

    def hang_up(self) -> None:
        """SIGHUP came: `look` reads the file again, and opens the audit anew. A signal handler may call it."""
        self._hang_ups += 1
        self.deadline = float("-inf")

    def look(self, now: float, wall: float) -> bool:
        """Look whether the file is another one, where it is time to; whether the rules have changed.

        Args:
            now: the monotonic clock, in seconds.
            wall: seconds since 1970.
        """
        if now < self.deadline:
            return False
        self.deadline = now + LOOK_SECONDS
        hang_ups = self._hang_ups  # Read once, after the deadline was set: a signal may come between any two lines.
        asked, self._hang_ups_taken = hang_ups != self._hang_ups_taken, hang_ups
        if asked:
            self._audit.reopen()
        self._audit.tick(wall)
        if now - self._denials_since >= REMIND_SECONDS:
            self._denials.clear()
            self._denials_since = now
        another = asked or self._source.changed()
        # As where no further file could be opened just then: who was revoked must not stay for want of another change.
        changed = (another or self._source.unread) and self._reload(wall, again=not another)
        if self.problem and now - self._reminded >= REMIND_SECONDS:
            self._reminded = now
            _log.warning("%s; what it said before counts on", self.problem)
        return changed

    def _reload(self, wall: float, *, again: bool) -> bool:
        """Read the file; `again`: the same one as before, of which it is known that it could not be read."""
        try:
            authorized = self._source.load()
        except ConfigurationError as error:
            if again and str(error) == self.problem:
                return False
            self.problem, self._reminded = str(error), float("-inf")
            self.counters["reload_failed"] += 1
            self._audit.write(wall, "reload_failed", reason=self.problem)
            return False
        self.problem = ""
        self.counters["reloads"] += 1
        difference = self.access.replace(authorized)
        for what, lines in (("came", difference.came), ("went", difference.went)):
            for line in lines:
                self._audit.write(wall, "line_" + what, user=line.user, rights=" ".join(line.rights))
        if difference.came or difference.went:
            _log.info("who is authorized: %d lines came, %d went", len(difference.came), len(difference.went))
        return bool(difference.came or difference.went)

    def note_handshakes(self, wall: float) -> None:
        """Write down who came since the last time, and what became of them."""
        for one in self.access.take_handshakes():
            what = "refused" if one.refused else "entered"
            facts = {"user": one.user, "key": one.fingerprint, "address": one.address, "door": one.domain}
            self._audit.write(wall, what, **facts, reason=one.refused)

    def note_denied(self, user: str, operation: str, topic: str, verdict: Verdict, now: float, wall: float) -> None:
        """Count a denial, and write it down where it is the first of its kind in a minute."""
        self.counters["denied"] += 1
        kind = user, operation, verdict.why
        if kind not in self._denials and len(self._denials) < DENIALS_MAX:
            self._denials.add(kind)
            self._audit.write(wall, "denied", user=user, operation=operation, topic=topic, reason=verdict.text)

    def note_operation(self, user: str, wall: float, **facts: object) -> bool:
        """Write down what somebody is about to operate; False: it cannot be, and must not be done."""
        return self._audit.must_write(wall, "operate", user=user, **facts)

    def note(self, what: str, wall: float, **facts: object) -> None:
        """Write down something else: a subscription, a topic that was made."""
        self._audit.write(wall, what, **facts)

    def line_of(self, user: str) -> Line | None:
        """The line that a user has now."""
        return self.access.authorized.by_user.get(user)

    def report(self) -> dict[str, Any]:
        """What `pubsub status` tells of it."""
        problems = [text for text in (self.problem, self._audit.problem) if text]
        return {
            "authorized_digest": self.access.authorized.digest,
            "authorized_lines": len(self.access.authorized.lines),
            "problems": problems,
            "counters": {**self.access.counters, **self.counters},
        }

    def close(self) -> None:
        """Note no more."""
        self._audit.close()
