"""The puts of one publisher on one topic that are not finished, in order (docs/architecture.md, *Put: the chain*).

Batches are sent in order, a window of them at a time. An answer tells the highest counter, `last`, that the log holds:
every row up to it is finished, whichever transmission the answer belongs to, however late it comes, and whatever it
says of the rest. A gap means that a row before was lost on the way: the chain goes back to the row after `last`, once
for each value of it; where that does not help, this holder cannot be the right one and another is asked. A row ends by
success or by `discard`, by nothing else.

While MESSAGES_MAX messages are in flight light rows wait, and go together when one of them is answered: a train. One
that is refused is sent again row by row, since the server may be of a release without trains; after a while trains are
tried again. Rows wait for nothing but that: whenever all are to be sent anew, no message counts as in flight any more.
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
from pubsub.protocol.train import ROW_BYTES

UNSURE: Final = -1
"""In place of a power cut: below all of them."""

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes of batches in flight per topic; one batch is always allowed."""

MESSAGES_MAX: Final = 2
"""Messages with light rows in flight per topic; one is taken in while the server commits the other."""

LIGHT_BYTES: Final = 16 * 1024
"""Bytes of a row up to which it goes with others: to copy a larger one costs more than a message."""

SINGLY_SECONDS: Final = 60.0
"""How long rows go one by one after a train was refused: the server is of an earlier release, until it is upgraded."""

UNFINISHED, DONE, DISCARDED = 0, 1, 2


class Row:
    """One put batch in the outbox.

    Attributes:
        counter, count, last: of its first record, how many there are, and of its last one.
        previous: the chain's counter before it; 0: none.
        whole: 0, or marked: taken only while no other server holds any of the topic; then one more than the power cuts
            that the client had come through when it was made.
        body: the encoded batch; None: it is on the disk only.
        size: of the body in bytes.
        state: UNFINISHED, DONE or DISCARDED.
        held: committed and not fsynced yet though it must be; not to be sent.
        tokens: of its transmissions that may still be answered.
    """

    __slots__ = (
        "body", "checksum", "count", "counter", "held", "last", "previous", "size", "state", "tokens", "topic", "whole",
    )  # fmt: skip

    def __init__(
        self, topic: str, counter: int, previous: int, count: int, whole: int, checksum: int, body: bytes | None,
        size: int,
    ) -> None:  # fmt: skip
        self.topic, self.counter, self.previous, self.count, self.whole = topic, counter, previous, count, whole
        self.checksum, self.body, self.size, self.last = checksum, body, size, counter + count - 1
        self.state = UNFINISHED
        self.held = False
        self.tokens: list[int] = []

    def loaded(self, stored: Row) -> Row:
        """Be as the store has it: nothing of it is on its way."""
        self.previous, self.whole, self.body, self.held, self.tokens = stored.previous, stored.whole, None, False, []
        return self

    def added(self) -> RowAdded:
        """What the commit is to hold for it."""
        return RowAdded(
            self.topic, self.counter, self.previous, self.count, self.whole, self.checksum, self.body or b""
        )

    @property
    def light(self) -> bool:
        """Whether it may go with others; what is marked is asked about by itself."""
        return self.size <= LIGHT_BYTES and not self.whole


class Chain:
    """The unfinished rows of one topic, in order, and how far they are sent.

    Attributes:
        previous: the last counter that was not discarded: the `previous` of the next row.
        finished: the last counter of the newest row that is done.
        cleared: the power cut up to which a put marked `whole` has succeeded; UNSURE: the next one is to be marked.
        loaded: the last counter that an earlier life of the client left: rows up to there may be done for all we know.
        log: the log that has all that is done, of those that answered; avoid: one whose holder could not serve us.
        size: bytes of the rows.
        sent: how many rows from the front are in flight.
        messages: the counter with which each of the messages ends that they are in.
        generation: rises whenever rows are sent anew; a gap or a retry answers only for its own generation.
        until: nothing is sent after it: the latest deadline of the calls that wait.
        trouble: what to tell them at their deadline; failure: what to raise at once, until somebody puts or flushes.
    """

    def __init__(self, topic: str, retries: Retries, window: int) -> None:
        self.topic, self.retries, self._window = topic, retries, window
        self.rows: deque[Row] = deque()
        self.previous = self.finished = self.cleared = self.loaded = 0
        self.log = self.avoid = ""
        self.size = self.sent = self._flying = self.generation = 0
        self.messages: deque[int] = deque()
        self._singly_until = float("-inf")
        self._allowed = window
        self._gap: int | None = None
        self._pausing = False
        self.deadline: float | None = None
        self.until = float("-inf")
        self.trouble = ""
        self.failure: PubsubError | None = None

    @property
    def crowded(self) -> bool:
        """Whether twice a window is unfinished: who does not wait for his puts has to wait for room."""
        return len(self.rows) >= 2 * self._window or self.size >= 2 * WINDOW_BYTES

    @property
    def roomy(self) -> bool:
        """Whether there is room again for more than one or two: who waited for it then puts many at once."""
        return len(self.rows) <= self._window and self.size <= WINDOW_BYTES

    @property
    def is_busy(self) -> bool:
        """Whether as many messages are in flight as light rows may be in: an answer will have the next one sent."""
        return len(self.messages) >= MESSAGES_MAX and self.until != float("-inf")

    def holds_back(self, row: Row) -> bool:
        """Whether its last row certainly cannot be sent now: an answer, or the next try, will have it sent."""
        waits = self.is_busy and row.light and self._singly_until == float("-inf")
        return waits or self._pausing or self.sent >= self._allowed

    def add(self, row: Row) -> None:
        """One more row at the end."""
        self.rows.append(row)
        self.size += row.size

    def wake(self, until: float, proxy: int) -> None:
        """Somebody waits until `until`: finish what is here, in order."""
        if self.until == float("-inf"):
            self.retries.renew(proxy)
            self._allowed, self._pausing, self.trouble = self._window, False, ""
            self.send_anew()
        self.failure = None
        self.until = max(self.until, until)

    def sendable(self, now: float) -> list[list[Row]]:
        """The rows to send now, those of each message together; they count as in flight from here on."""
        out: list[list[Row]] = []
        if self._pausing or now >= self.until:
            return out
        end, singly = min(len(self.rows), self._allowed), now < self._singly_until
        while self.sent < end and (rows := self._next_message(end, singly=singly)):
            out.append(rows)
            self.sent += len(rows)
            self._flying += sum([row.size for row in rows])
            self.messages.append(rows[-1].last)
        if out and self.deadline is None:
            self.deadline = now + self.retries.patience
        return out

    def _next_message(self, end: int, *, singly: bool) -> list[Row]:
        """The rows of the next message; none where they have to wait.

        Args:
            end: the place of the first row that may not be in flight now.
            singly: whether each goes alone.
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
        """The service says that it cannot be: who waits is told, and nothing is sent until somebody puts or flushes."""
        self.failure = error
        self.until, self.deadline = float("-inf"), None

    def answered(self, status: Status, generation: int, proxy: int, now: float) -> list[Row]:
        """Take an answer to one of its rows.

        Returns:
            The rows that are done by it.
        """
        outcome, current = status.outcome, generation == self.generation
        successful = outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}
        # A train that ended early was taken up to `last` all the same.
        reached = bool(self.rows) and self.rows[0].last <= status.last
        done = self._progress(status, proxy, now) if successful or reached else []
        if successful or not current or not self.rows:
            return done
        if outcome is Outcome.GAP:
            self._go_back(status, now)
        elif outcome is Outcome.REFUSED:
            self._go_singly(now)
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
        # A late answer from a log that lacks what another one acknowledged since is no reason to go there: a log
        # that is named as ours, and lacks the put before, is taken for an older copy of itself.
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
        if self.rows[0].previous <= status.last and self._gap != status.last:
            self._gap = status.last
            self.send_anew()
            self._allowed, self.deadline = self._window, now + self.retries.patience
        else:
            self._gap, self.avoid = None, status.log
            self.trouble = "the server that answered does not hold the puts before this one"
            self._pause(now)

    def _go_singly(self, now: float) -> None:
        """A train was refused: at once the same row by row, of which each is told for itself."""
        self._singly_until = now + SINGLY_SECONDS
        self.send_anew()
        self.deadline = now + self.retries.patience

    def send_anew(self) -> None:
        """All rows are to be sent, whether they were before or not."""
        self.sent = self._flying = 0
        self.messages.clear()
        self.generation += 1

    def _pause(self, now: float) -> None:
        """Nothing more in this try; the next one begins when its time is over."""
        self._pausing = True
        self.send_anew()
        if self.deadline is None:
            self.deadline = now + self.retries.patience

    def try_now(self) -> None:
        """The present try comes to nothing, or is waited for no longer: begin anew at once."""
        self._pausing, self.deadline = False, None
        self.send_anew()

    def tick(self, now: float) -> bool:
        """Begin the next try where the present one is over; stop where nobody waits any more.

        Returns:
            Whether a try came to nothing.
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
        """When `tick` has something to do."""
        if self.until == float("-inf"):
            return None
        return self.until if self.deadline is None else min(self.until, self.deadline)

    def unchain(self) -> Row | None:
        """The log was given up: the oldest row, which is to begin the chain anew; `unchained` follows the commit.

        Until then the log is named as before: by it a server finds out, and says again, that it was given up.

        None where it does already, or there is none.
        """
        self.send_anew()
        self._pausing = False
        return self.rows[0] if self.rows and self.rows[0].previous else None

    def unchained(self, row: Row) -> None:
        """The commit that makes this row begin the chain succeeded."""
        row.previous = 0
        if self.rows and self.rows[0] is row:
            self.log = ""

    def renew(self) -> None:
        """Another publisher from now on: the oldest row begins the chain, and no power cut took anything of it."""
        self.finished = self.cleared = 0
        for row in self.rows:
            row.whole = 0
        self.failure, self.trouble = None, ""
        self.log = self.avoid = ""
        if self.rows:
            self.rows[0].previous = 0
        else:
            self.previous = 0
        self.send_anew()
