"""Access control of a running process: the access list in force, and the audit of connections and requests.

The file is checked once a second, and at once after SIGHUP. If it cannot be used, the rules read last stay in force,
the counter `reload_failed` rises, and the log has a line each minute. `Access` makes the decisions.
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
"""Interval of the checks of the file."""

REMIND_SECONDS: Final = 60.0
"""Interval of the log lines about an unusable file."""

DENIALS_MAX: Final = 1_024
"""Kinds of denials in a minute that the audit records. Further ones are only counted."""

COUNTERS: Final = (
    "denied",
    "reloads",
    "reload_failed",
    "answers_dropped_rights_changed",
    "servers_under_a_wrong_name",
)
"""Counters that exist from the start, so that a report has them with 0."""

_log: Final = logging.getLogger("pubsub.security")


class Source(Protocol):
    """The source of the access list: a file (`files.AuthorizedFile`), or memory (`opening.InMemory`)."""

    @property
    def unread(self) -> bool:
        """True if the last `load` failed for a reason that may go away without a change of the source."""

    def load(self) -> Authorized:
        """Return the access list; raises ConfigurationError if it cannot be used."""

    def changed(self) -> bool:
        """Return whether the access list may differ from that of the last `load`."""


class Authorizer:
    """The access control of one process.

    Args:
        now: the monotonic clock, in seconds.
        wall: seconds since 1970.

    Attributes:
        access: the decisions by the present access list.
        counters: see COUNTERS.
        problem: why the file cannot be used at present, "" if it can.

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
        """Make `look` read the file again and reopen the audit, after SIGHUP. A signal handler may call it."""
        self._hang_ups += 1
        self.deadline = float("-inf")

    def look(self, now: float, wall: float) -> bool:
        """Check the file if a check is due, and return whether the rules changed.

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
        # Retry a failed read even if the file is unchanged: it may have failed because no file could be opened. A
        # revoked key must not stay in force until the next change.
        changed = (another or self._source.unread) and self._reload(wall, again=not another)
        if self.problem and now - self._reminded >= REMIND_SECONDS:
            self._reminded = now
            _log.warning("%s; the rules read before stay in force", self.problem)
        return changed

    def _reload(self, wall: float, *, again: bool) -> bool:
        """Read the file. `again`: it is unchanged since an earlier attempt that failed."""
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
            _log.info("access list: %d lines added, %d removed", len(difference.came), len(difference.went))
        return bool(difference.came or difference.went)

    def note_handshakes(self, wall: float) -> None:
        """Record the attempts to connect since the last call."""
        for one in self.access.take_handshakes():
            what = "refused" if one.refused else "entered"
            facts = {"user": one.user, "key": one.fingerprint, "address": one.address, "door": one.domain}
            self._audit.write(wall, what, **facts, reason=one.refused)

    def note_denied(self, user: str, operation: str, topic: str, verdict: Verdict, now: float, wall: float) -> None:
        """Count a denial, and record it if it is the first of its kind in a minute."""
        self.counters["denied"] += 1
        kind = user, operation, verdict.why
        if kind not in self._denials and len(self._denials) < DENIALS_MAX:
            self._denials.add(kind)
            self._audit.write(wall, "denied", user=user, operation=operation, topic=topic, reason=verdict.text)

    def note_operation(self, user: str, wall: float, **facts: object) -> bool:
        """Record an operation before it is done; if that returns False, the operation must not run."""
        return self._audit.must_write(wall, "operate", user=user, **facts)

    def note(self, what: str, wall: float, **facts: object) -> None:
        """Record another event, such as a subscription or a new topic."""
        self._audit.write(wall, what, **facts)

    def line_of(self, user: str) -> Line | None:
        """Return the present line of a user."""
        return self.access.authorized.by_user.get(user)

    def report(self) -> dict[str, Any]:
        """Return the part of a report about keys, for `pubsub status`."""
        problems = [text for text in (self.problem, self._audit.problem) if text]
        return {
            "authorized_digest": self.access.authorized.digest,
            "authorized_lines": len(self.access.authorized.lines),
            "problems": problems,
            "counters": {**self.access.counters, **self.counters},
        }

    def close(self) -> None:
        """Close the audit."""
        self._audit.close()
