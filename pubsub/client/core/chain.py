"""Keep the unfinished puts of one publisher on one topic, in order (docs/explanation/put.md, *The chain*).

Batches are sent in order, a window at a time. An answer names the highest counter in the log, `last`. Every row up to
`last` is finished, for any transmission, however late the answer is, and in spite of its outcome for later rows.

A gap means that an earlier row was lost on the way. The chain then goes back to the row after `last`, once for each
value of `last`. If the gap stays, this server cannot be the right one, and the chain asks another. A row ends only by
success or by `discard`.

While MESSAGES_MAX messages are in flight, light rows wait. They then go together when one of the messages is answered:
a train. A refused train is sent again row by row, since an older server may not support trains; after a while the chain
tries trains again. When all rows are to be sent anew, no message counts as in flight, so rows never wait for a lost
message.

An answer that names a time (`after`) shows a quota. The chain waits that long, and asks the same proxy again.

The rules are those of docs/explanation/batches.md, B11 and B12; docs/explanation/put.md, P5;
docs/explanation/protocol.md, V5.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from pubsub.base.limits import TRAIN_BYTES_MAX, TRAIN_ROWS_MAX
from pubsub.client.core.changes import RowAdded
from pubsub.client.core.retries import Retries
from pubsub.errors import PubsubError
from pubsub.protocol import Outcome, Status
from pubsub.protocol.deletions import NAME_THE_LOG
from pubsub.protocol.train import ROW_BYTES

UNSURE: Final = -1
"""Value in place of a number of power cuts, below all of them."""

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes of batches in flight for each topic; one batch is always allowed."""

MESSAGES_MAX: Final = 2
"""Messages with light rows in flight for each topic: the server commits one while it receives the other."""

LIGHT_BYTES: Final = 16 * 1024
"""Largest row, in bytes, that shares a message: to copy a larger row costs more than a message of its own."""

SINGLY_SECONDS: Final = 60.0
"""Time for which rows go one by one after a refused train: an older server refuses trains until it is upgraded."""

THROTTLED_SECONDS_MAX: Final = 60.0
"""Longest wait for a quota without asking again: the quota may be raised meanwhile."""

THROTTLED: Final = {
    "quota_topic": "throttled by the quota of the topic (its settings rate and bytes)",
    "quota_client": "throttled by the quota of this client (rate and bytes in its line of authorized)",
}
"""By reason of an answer: the text for an error."""

UNFINISHED, DONE, DISCARDED = 0, 1, 2


class Row:
    """One put batch in the outbox.

    Attributes:
        counter, count, last: counter of its first record, number of records, and counter of the last record.
        previous: the chain's counter before it; 0: none.
        whole: 0, or a mark: a server accepts the row only while no other server holds any of the topic. The mark is one
            more than the number of power cuts in the client's history when the row was made.
        body: the encoded batch; None: it is on the disk only.
        size: bytes of the body.
        state: UNFINISHED, DONE or DISCARDED.
        held: True if the row is committed but must be fsynced before it is sent.
        tokens: tokens of its transmissions that may still be answered.
    """

    __slots__ = (
        "body", "checksum", "count", "counter", "held", "last", "previous", "size", "sole_owner", "state", "tokens",
        "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, counter: int, previous: int, count: int, sole_owner: int, checksum: int, body: bytes | None,
        size: int,
    ) -> None:  # fmt: skip
        self.topic, self.counter, self.previous, self.count = topic, counter, previous, count
        self.sole_owner = sole_owner
        self.checksum, self.body, self.size, self.last = checksum, body, size, counter + count - 1
        self.state = UNFINISHED
        self.held = False
        self.tokens: list[int] = []

    def numbered(self, counter: int, previous: int, sole_owner: int) -> None:
        """Take a place in the chain, for a row that was made without one."""
        self.counter, self.previous, self.sole_owner = counter, previous, sole_owner
        self.last = counter + self.count - 1

    def loaded(self, stored: Row) -> Row:
        """Reset to the stored values after a reopening; no transmission is in flight."""
        self.previous, self.sole_owner = stored.previous, stored.sole_owner
        self.body, self.held, self.tokens = None, False, []
        return self

    def added(self) -> RowAdded:
        return RowAdded(
            self.topic, self.counter, self.previous, self.count, self.sole_owner, self.checksum, self.body or b""
        )

    @property
    def light(self) -> bool:
        """True if the row may share a message; a marked row is sent alone."""
        return self.size <= LIGHT_BYTES and not self.sole_owner


class Chain:
    """The unfinished rows of one topic, in order, and the state of their transmission.

    Attributes:
        previous: the last counter that was not discarded: the `previous` of the next row.
        finished: last counter of the newest finished row.
        cleared: number of the power cut up to which a put marked `whole` has succeeded; UNSURE: the next put must be
            marked.
        loaded: last counter from before the present start of the client: rows up to there may be finished already.
        log: the log with all finished rows, among those that answered.
        avoid: a log at a server that could not accept these rows.
        size: bytes of the rows.
        sent: number of rows in flight, from the front.
        messages: the last counter of each message in flight.
        generation: rises whenever rows are sent anew; a gap or a retry counts only for its own generation.
        until: latest deadline of the waiting calls; nothing is sent after it.
        trouble: cause to report at the deadline.
        failure: error to raise at once, until the next put or flush.
        exact: True if the state loses a put only where an older copy of it took its place: a database.
    """

    def __init__(self, topic: str, retries: Retries, window: int, *, exact: bool = False) -> None:
        self.topic, self.retries, self._window, self.exact = topic, retries, window, exact
        self._agreed = False
        self.rows: deque[Row] = deque()
        self.previous = self.finished = self.cleared = self.loaded = 0
        self.log = self.avoid = ""
        self.size = self.sent = self._flying = self.generation = 0
        self.messages: deque[int] = deque()
        self._singly_until = float("-inf")
        self._allowed = window
        self._gap: int | None = None
        self._pausing = False
        self._throttled_until = float("-inf")
        self.deadline: float | None = None
        self.until = float("-inf")
        self.trouble = ""
        self.failure: PubsubError | None = None

    @property
    def crowded(self) -> bool:
        """True if two windows are unfinished: a caller that does not wait for its puts must now wait for room."""
        return len(self.rows) >= 2 * self._window or self.size >= 2 * WINDOW_BYTES

    @property
    def roomy(self) -> bool:
        """True if there is room for many more puts, so that a caller that waited for room can put many at once."""
        return len(self.rows) <= self._window and self.size <= WINDOW_BYTES

    @property
    def is_busy(self) -> bool:
        """True if light rows must wait: MESSAGES_MAX messages are in flight, and an answer will cause the next one."""
        return len(self.messages) >= MESSAGES_MAX and self.until != float("-inf")

    @property
    def asks(self) -> bool:
        """True if the first row asks for the server's last put before it is sent (docs/explanation/databases.md, DB13).

        A row that was discarded may be at the server, so the last put proves nothing after a discard.
        """
        marked = bool(self.rows) and self.rows[0].sole_owner > 1 and self.cleared != UNSURE
        return marked and self.exact and not self._agreed

    def holds_back(self, row: Row) -> bool:
        """Return True if the last row certainly cannot be sent now, but will be after an answer or at the next try."""
        waits = self.is_busy and row.light and self._singly_until == float("-inf")
        return waits or self._pausing or self.sent >= self._allowed

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.size += row.size

    def wake(self, until: float, proxy: int) -> None:
        """Send the rows, in order, for a call that waits until `until`."""
        if self.until == float("-inf"):
            self.retries.renew(proxy)
            self._allowed, self._pausing = self._window, False
            self.trouble = "" if self._throttled_until == float("-inf") else self.trouble
            self.send_anew()
        self.failure = None
        self.until = max(self.until, until)

    def sendable(self, now: float) -> list[list[Row]]:
        """Return the rows to send now, grouped by message; they count as in flight from here on."""
        out: list[list[Row]] = []
        if self._pausing or now >= self.until or now < self._throttled_until:
            return out
        self._throttled_until = float("-inf")
        end, singly = min(len(self.rows), 1 if self.asks else self._allowed), now < self._singly_until
        while self.sent < end and (rows := self._next_message(end, singly=singly)):
            out.append(rows)
            self.sent += len(rows)
            self._flying += sum([row.size for row in rows])
            self.messages.append(rows[-1].last)
        if out and self.deadline is None:
            self.deadline = now + self.retries.patience
        return out

    def _next_message(self, end: int, *, singly: bool) -> list[Row]:
        """Return the rows of the next message; an empty list if they must wait.

        Args:
            end: index of the first row that may not be in flight now.
            singly: True if each row goes alone.
        """
        first = self.rows[self.sent]
        room = WINDOW_BYTES - self._flying
        if first.held or (self.sent and first.size > room):
            return []
        if singly or not first.light:
            return [first]
        if len(self.messages) >= MESSAGES_MAX:
            return []
        out, size, room = [first], first.size + ROW_BYTES, min(room, TRAIN_BYTES_MAX)
        for row in islice(self.rows, self.sent + 1, min(end, self.sent + TRAIN_ROWS_MAX)):
            size += row.size + ROW_BYTES
            if row.held or not row.light or size > room:
                break
            out.append(row)
        return out

    def fail(self, error: PubsubError) -> None:
        """Stop sending after a rejection: waiting calls get the error, and the next put or flush starts again."""
        self.failure = error
        self.until, self.deadline = float("-inf"), None

    def answered(self, status: Status, generation: int, proxy: int, now: float) -> list[Row]:
        """Handle an answer to one of the rows.

        Returns:
            The rows that it finishes.
        """
        outcome, current = status.outcome, generation == self.generation
        successful = outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}
        # The server has stored a train that ended early up to `last`.
        reached = bool(self.rows) and self.rows[0].last <= status.last
        done = self._progress(status, proxy, now) if successful or reached else []
        if successful or not current or not self.rows:
            return done
        if outcome is Outcome.GAP and self.asks:
            self._agreed = True  # The server has no put that the database lacks: `Outbox.evidence` would say so.
            self.send_anew()
            self.deadline = now + self.retries.patience
        elif outcome is Outcome.GAP:
            self._go_back(status, now)
        elif outcome is Outcome.REFUSED:
            self._go_singly(now)
        elif outcome is Outcome.BUSY and status.after:
            self._throttle(status, now)
        else:
            self.trouble = status.reason.replace("_", " ") or outcome.value
            self._pause(now)
        return done

    def _progress(self, status: Status, proxy: int, now: float) -> list[Row]:
        done = []
        while self.rows and self.rows[0].last <= status.last:
            row = self.rows.popleft()
            row.state, row.body = DONE, None
            self.size -= row.size
            if self.sent:
                self.sent -= 1
                self._flying -= row.size
            self.finished = row.last
            done.append(row)
        while self.messages and self.messages[0] <= self.finished:
            self.messages.popleft()
        # Ignore the log of a late answer that lacks later acknowledged puts: a server treats a log that we name, and
        # that lacks the previous put, as an older copy of itself.
        if status.log and status.last >= self.finished:
            self.log = status.log
        if done:
            self.retries.restart(proxy)
            self._allowed, self._pausing, self._gap, self.avoid, self.trouble = self._window, False, None, "", ""
            self.deadline = now + self.retries.patience if self.sent else None
            if not self.rows:
                self.until = float("-inf")
        return done

    def _go_back(self, status: Status, now: float) -> None:
        if status.reason == NAME_THE_LOG and status.log and self.log != status.log:
            self.log = status.log  # The topic was deleted and began anew: the server takes the row by that log.
            self.send_anew()
            self._allowed, self.deadline = self._window, now + self.retries.patience
        elif self.rows[0].previous <= status.last and self._gap != status.last:
            self._gap = status.last
            self.send_anew()
            self._allowed, self.deadline = self._window, now + self.retries.patience
        else:
            self._gap, self.avoid = None, status.log
            self.trouble = "the server that answered does not hold the puts before this one"
            self._pause(now)

    def _go_singly(self, now: float) -> None:
        """Send the rows of a refused train again at once, row by row, so that each gets its own answer."""
        self._singly_until = now + SINGLY_SECONDS
        self.send_anew()
        self.deadline = now + self.retries.patience

    def _throttle(self, status: Status, now: float) -> None:
        """Wait as long as a quota demands; this is no failed try, so no other proxy is asked."""
        self.trouble = THROTTLED.get(status.reason, f"throttled by {status.reason.replace('_', ' ')}")
        self._throttled_until = now + min(status.after / 1000, THROTTLED_SECONDS_MAX)
        self.deadline = None
        self.send_anew()

    def send_anew(self) -> None:
        """Mark all rows as not sent."""
        self.sent = self._flying = 0
        self.messages.clear()
        self.generation += 1

    def _pause(self, now: float) -> None:
        """Stop this try; the next one begins at its deadline."""
        self._pausing = True
        self.send_anew()
        if self.deadline is None:
            self.deadline = now + self.retries.patience

    def try_now(self) -> None:
        """Abandon the present try and begin the next one at once."""
        self._pausing, self.deadline = False, None
        self.send_anew()

    def tick(self, now: float) -> bool:
        """Begin the next try if the present one is over; stop if no caller waits any more.

        Returns:
            True if a try failed.
        """
        if self.rows and now >= self.until and self.until != float("-inf"):
            self.until = float("-inf")
            self.deadline = None
        elif self.deadline is not None and now >= self.deadline:
            self.retries.fail()
            self._pausing, self._allowed, self.deadline = False, 1, None
            self.send_anew()
            return True
        return False

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` has work."""
        if self.until == float("-inf"):
            return None
        due = self.until if self.deadline is None else min(self.until, self.deadline)
        return due if self._throttled_until == float("-inf") else min(due, self._throttled_until)

    def unchain(self) -> Row | None:
        """Return the oldest row, to begin the chain anew after its log was given up; `unchained` follows the commit.

        Until then requests still name that log: from the name a server detects again that the log was given up. The
        result is None if that row begins the chain already, or there is no row.
        """
        self.send_anew()
        self._pausing = False
        return self.rows[0] if self.rows and self.rows[0].previous else None

    def unchained(self, row: Row) -> None:
        """Accept the commit that lets this row begin the chain."""
        row.previous = 0
        if self.rows and self.rows[0] is row:
            self.log = ""

    def renew(self) -> None:
        """Continue as another publisher: the oldest row begins the chain, without marks of earlier power cuts."""
        self.finished = self.cleared = 0
        for row in self.rows:
            row.sole_owner = 0
        self.failure, self.trouble = None, ""
        self.log = self.avoid = ""
        if self.rows:
            self.rows[0].previous = 0
        else:
            self.previous = 0
        self.send_anew()
