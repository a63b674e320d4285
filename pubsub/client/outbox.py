"""Puts on their way: the chain of one publisher's batches on each topic (docs/architecture.md, *Put: the chain*).

A batch gets its counter and `previous`, the counter before it that was not discarded, in the commit of its outbox row;
so the rows of a topic are a chain, and what a log holds of a publisher is always a prefix of it. Batches are sent in
order, a window of them at a time. An answer tells the highest counter, `last`, that the log holds: every row up to it
is finished, whichever transmission the answer belongs to and however late it comes. A gap means that a row before was
lost on the way: the chain goes back to the row after `last`, once for each value of it; where that does not help, this
holder cannot be the right one and another is asked. A row ends by success or by `discard`, by nothing else.

`Draft` is what a commit is about to hold; nothing here changes until the commit has succeeded and it is accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final
from zlib import crc32

from pubsub.client.changes import ChainMoved, Change, RowAdded, RowsRemoved, RowUnchained
from pubsub.client.numbers import Numbers
from pubsub.client.tries import Tries
from pubsub.errors import PubsubError, TooLarge
from pubsub.protocol import Outcome, Status, encode_batch

UNSURE: Final = -1
"""In place of a power cut: below all of them."""

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes of batches in flight per topic; one batch is always allowed."""

REMOVE_ROWS: Final = 64
"""Finished rows that are taken out of the outbox together; sent again after a crash, they are recognised."""

REMOVE_BYTES: Final = 4 * 1024 * 1024
"""Their bytes beyond which they are not waited for."""

UNFINISHED, DONE, DISCARDED = 0, 1, 2


class Row:
    """One put batch in the outbox.

    Attributes:
        counter, count: of its first record, and how many there are.
        previous: the chain's counter before it; 0: none.
        whole: 1: taken only while no other server holds any of the topic.
        body: the encoded batch; None: it is on the disk only.
        size: of the body in bytes.
        state: UNFINISHED, DONE or DISCARDED.
        held: committed and not fsynced yet though it must be; not to be sent.
        tokens: of its transmissions that may still be answered.
    """

    __slots__ = (
        "body", "checksum", "count", "counter", "held", "previous", "size", "state", "tokens", "topic", "whole",
    )  # fmt: skip

    def __init__(
        self, topic: str, counter: int, previous: int, count: int, whole: int, checksum: int, body: bytes | None,
        size: int,
    ) -> None:  # fmt: skip
        self.topic, self.counter, self.previous, self.count, self.whole = topic, counter, previous, count, whole
        self.checksum, self.body, self.size = checksum, body, size
        self.state = UNFINISHED
        self.held = False
        self.tokens: list[int] = []

    @property
    def last(self) -> int:
        """The counter of its last record."""
        return self.counter + self.count - 1


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
        generation: rises whenever rows are sent anew; a gap or a retry answers only for its own generation.
        until: nothing is sent after it: the latest deadline of the calls that wait.
        trouble: what to tell them at their deadline; failure: what to raise at once.
    """

    def __init__(self, topic: str, tries: Tries, window: int) -> None:
        self.topic, self.tries, self._window = topic, tries, window
        self.rows: deque[Row] = deque()
        self.previous = self.finished = self.cleared = self.loaded = 0
        self.log = self.avoid = ""
        self.size = self.sent = self._flying = self.generation = 0
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

    def add(self, row: Row) -> None:
        """One more row at the end."""
        self.rows.append(row)
        self.size += row.size

    def wake(self, until: float, proxy: int) -> None:
        """Somebody waits until `until`: finish what is here, in order."""
        if self.until == float("-inf"):
            self.tries.renew(proxy)
            self._allowed, self._pausing, self.trouble = self._window, False, ""
            self.send_anew()
        self.failure = None
        self.until = max(self.until, until)

    def sendable(self, now: float) -> list[Row]:
        """The rows to send now, which count as in flight from here on."""
        if self._pausing or now >= self.until or self.sent >= min(len(self.rows), self._allowed):
            return []
        out = []
        while self.sent < min(len(self.rows), self._allowed):
            row = self.rows[self.sent]
            if row.held or (self.sent and self._flying + row.size > WINDOW_BYTES):
                break
            out.append(row)
            self.sent += 1
            self._flying += row.size
        if out and self.deadline is None:
            self.deadline = now + self.tries.patience
        return out

    def answered(self, status: Status, generation: int, proxy: int, now: float) -> list[Row]:
        """Take an answer to one of its rows.

        Returns:
            The rows that are done by it.
        """
        outcome, current = status.outcome, generation == self.generation
        if outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            return self._progress(status, proxy, now)
        if not current:
            return []
        if outcome is Outcome.GAP:
            self._go_back(status, now)
        else:
            self.trouble = status.reason.replace("_", " ") or outcome.value
            self._pause(now)
        return []

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
        # A late answer from a log that lacks what another one acknowledged since is no reason to go there: a log
        # that is named as ours, and lacks the put before, is taken for an older copy of itself.
        if status.log and status.last >= self.finished:
            self.log = status.log
        if done:
            self.tries.restart(proxy)
            self._allowed, self._pausing, self._gap, self.avoid, self.trouble = self._window, False, None, "", ""
            self.deadline = now + self.tries.patience if self.sent else None
            if not self.rows:
                self.until = float("-inf")
        return done

    def _go_back(self, status: Status, now: float) -> None:
        index = next((i for i, row in enumerate(self.rows) if row.last > status.last), None)
        if index is not None and self.rows[index].previous <= status.last and self._gap != status.last:
            self._gap = status.last
            self.send_anew(index)
            self._allowed, self.deadline = self._window, now + self.tries.patience
        else:
            self._gap, self.avoid = None, status.log
            self.trouble = "the server that answered does not hold the puts before this one"
            self._pause(now)

    def send_anew(self, index: int = 0) -> None:
        """From this row on all are to be sent, whether they were before or not."""
        self.sent = index
        self._flying = sum([row.size for row in islice(self.rows, index)])
        self.generation += 1

    def _pause(self, now: float) -> None:
        """Nothing more in this try; the next one begins when its time is over."""
        self._pausing = True
        self.send_anew()
        if self.deadline is None:
            self.deadline = now + self.tries.patience

    def tick(self, now: float) -> bool:
        """Begin the next try where the present one is over; stop where nobody waits any more.

        Returns:
            Whether a try came to nothing.
        """
        if self.rows and now >= self.until and self.until != float("-inf"):
            self.until = float("-inf")
            self.deadline = None
        elif self.deadline is not None and now >= self.deadline:
            self.tries.fail()
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

        None where it does already, or there is none.
        """
        self.log = ""
        self.send_anew()
        self._pausing = False
        return self.rows[0] if self.rows and self.rows[0].previous else None

    @staticmethod
    def unchained(row: Row) -> None:
        """The commit that makes this row begin the chain succeeded."""
        row.previous = 0

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


class Draft:
    """Rows that a commit is about to hold.

    Attributes:
        outbox: whose they will be.
        rows: in order.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._tails: dict[str, int] = {}
        self.rows: list[Row] = []
        self._bytes = 0

    def add(self, topic: str, bodies: Sequence[bytes]) -> Row:
        """One more batch, of at most BATCH_RECORDS_MAX records and BATCH_BYTES_MAX bytes.

        Raises:
            TooLarge: the batch is, or the outbox would be.
            StorageError: new numbers were needed and the disk refused.
        """
        outbox = self.outbox
        body = encode_batch(bodies)
        held = outbox.bytes + self._bytes + len(body)
        if held > outbox.bytes_max:
            raise TooLarge("outbox of unfinished puts", held, outbox.bytes_max, "outbox_bytes_max")
        chain = outbox.chain(topic)
        counter = outbox.numbers.take(len(bodies))
        previous = self._tails.get(topic, chain.previous)
        whole = int(chain.cleared < outbox.cuts)
        row = Row(topic, counter, previous, len(bodies), whole, crc32(body), body, len(body))
        self._tails[topic] = row.last
        self._bytes += row.size
        self.rows.append(row)
        return row

    def changes(self) -> list[Change]:
        """What the commit is to hold for it."""
        return [
            RowAdded(r.topic, r.counter, r.previous, r.count, r.whole, r.checksum, r.body or b"") for r in self.rows
        ]


def _cleared(chain: Chain) -> int:
    """What is known of a chain of which all rows are discarded.

    An acknowledged row leaves the store a little later. One that an earlier life left may be such a row, and then what
    is put next must not go where that is not: or a join would take it for known there.
    """
    return UNSURE if chain.rows[0].counter <= chain.loaded else chain.cleared


class Outbox:
    """All chains of a client.

    Args:
        numbers: where counters come from.
        cuts: power cuts that this state came through.
        tries: makes the tries of a chain.
        window: batches in flight per topic.
        bytes_max: of unfinished rows.

    Attributes:
        on_done: told the rows that are done; None: nobody wants to know.
    """

    def __init__(self, numbers: Numbers, cuts: int, tries: Callable[[], Tries], window: int, bytes_max: int) -> None:
        self.numbers, self.cuts, self.bytes_max = numbers, cuts, bytes_max
        self._tries, self._window = tries, window
        self.chains: dict[str, Chain] = {}
        self.active: dict[str, Chain] = {}
        self.bytes = 0
        self._finished: list[Row] = []
        self._finished_bytes = 0
        self._held: list[Row] = []
        self.on_done: Callable[[Sequence[Row]], None] | None = None

    def chain(self, topic: str) -> Chain:
        """The chain of a topic; a new one where nothing was put to it."""
        found = self.chains.get(topic)
        if found is None:
            found = self.chains[topic] = Chain(topic, self._tries(), self._window)
        return found

    def load(
        self,
        chains: Iterable[tuple[str, int, int, str]],
        rows: Iterable[tuple[int, str, int, int, int, int, int]],
    ) -> None:
        """What the store holds: chains (topic, previous, cleared, log) and rows, as `Store` gives them."""
        for topic, previous, cleared, log in chains:
            chain = self.chain(topic)
            chain.previous = chain.finished = previous
            chain.cleared, chain.log = cleared, log
        for counter, topic, previous, count, whole, checksum, size in rows:
            chain = self.chain(topic)
            row = Row(topic, counter, previous, count, whole, checksum, None, size)
            chain.add(row)
            chain.previous = chain.loaded = max(chain.previous, row.last)
            self.bytes += size

    def accept(self, draft: Draft, *, held: bool = False) -> None:
        """The commit of a draft succeeded. `held`: its rows may be sent only after `release`, that is an fsync."""
        for row in draft.rows:
            chain = self.chain(row.topic)
            chain.add(row)
            chain.previous = row.last
            self.bytes += row.size
            row.held = held
            if held:
                self._held.append(row)

    def release(self) -> None:
        """An fsync covered every commit so far."""
        for row in self._held:
            row.held = False
        self._held.clear()

    def wake(self, topic: str, until: float, proxy: int) -> Chain:
        """Send what is unfinished on a topic until `until`."""
        chain = self.chain(topic)
        if chain.rows:
            chain.wake(until, proxy)
            self.active[topic] = chain
        return chain

    def answered(self, chain: Chain, status: Status, generation: int, proxy: int, now: float) -> list[Row]:
        """Hand an answer to its chain; the rows that are done by it."""
        done = chain.answered(status, generation, proxy, now)
        for row in done:
            self.bytes -= row.size
            self._finished_bytes += row.size
            if row.whole and not self._cut_since(chain, row):
                chain.cleared = self.cuts
        if done:
            self._finished += done
            if self.on_done is not None:
                self.on_done(done)
        return done

    def evidence(self, chain: Chain, last: int) -> str:
        """Why an answer's `last` shows that a copy of this state was used elsewhere; "" where it does not.

        What would finish rows here has to be the last counter of one of them, since they are all that was put since
        the oldest. That it lies below other numbers of this client says nothing: a copy opened under an earlier clock
        gives its puts numbers below those of the original's, and may go above these before the answer comes.
        """
        never = f"{chain.topic} holds put {last}, which was never made here"
        if last > self.numbers.highest:
            return never
        if not chain.rows or last < chain.rows[0].counter:
            return ""
        row = next((row for row in chain.rows if row.last >= last), None)
        if row is not None and row.counter <= last:
            return "" if row.last == last else f"{chain.topic} ends at put {last}, inside a batch made here"
        # Between two rows, or behind them all: never put here, unless a power cut took the row since.
        before = chain.rows[-1] if row is None else chain.rows[chain.rows.index(row) - 1]
        return "" if self._cut_since(chain, before) else never

    def _cut_since(self, chain: Chain, row: Row) -> bool:
        """Whether a power cut, for all we know, came after a row was made, and may have taken those behind it.

        One that is not marked was made before the first cut that its chain has not cleared, one that is after it.
        """
        return row.last <= chain.loaded and self.cuts - chain.cleared > row.whole

    def discard(self, topic: str) -> tuple[list[Change], list[Row]]:
        """What makes a topic's unfinished rows forgotten, fsynced; `discarded` follows the commit."""
        chain = self.chain(topic)
        rows = list(chain.rows)
        if not rows:
            return [], []
        removed = RowsRemoved([row.counter for row in rows])
        return [*self.removals(), removed, ChainMoved(topic, rows[0].previous, _cleared(chain), chain.log)], rows

    def discarded(self, topic: str) -> None:
        """The commit of `discard` succeeded."""
        chain = self.chain(topic)
        chain.cleared = _cleared(chain)
        chain.previous = chain.finished = chain.rows[0].previous
        for row in chain.rows:
            row.state, row.body = DISCARDED, None
            self.bytes -= row.size
        self._held = [row for row in self._held if row.topic != topic]
        chain.rows.clear()
        chain.size, chain.until, chain.deadline, chain.failure = 0, float("-inf"), None, None
        chain.send_anew()
        self.active.pop(topic, None)

    def removals(self) -> list[Change]:
        """What takes finished rows out of the store; `removed` follows the commit."""
        moved: list[Change] = [
            ChainMoved(chain.topic, chain.finished, chain.cleared, chain.log)
            for chain in {row.topic: self.chains[row.topic] for row in self._finished}.values()
        ]
        return [RowsRemoved([row.counter for row in self._finished]), *moved] if moved else []

    def removed(self) -> None:
        """The commit of `removals` succeeded."""
        self._finished.clear()
        self._finished_bytes = 0

    @property
    def finished_rows(self) -> int:
        """Rows that are done and still in the store."""
        return len(self._finished)

    @property
    def is_untidy(self) -> bool:
        """Whether so many are that they are worth a commit."""
        return len(self._finished) >= REMOVE_ROWS or self._finished_bytes >= REMOVE_BYTES

    def renewal(self) -> list[Change]:
        """What makes each chain begin anew, under a new publisher; `renewed` follows the commit."""
        return [RowUnchained(chain.rows[0].counter) for chain in self.chains.values() if chain.rows]

    def renewed(self) -> None:
        """The commit of `renewal` succeeded: nothing is known of this publisher anywhere."""
        self.cuts = 0
        for chain in self.chains.values():
            chain.renew()
