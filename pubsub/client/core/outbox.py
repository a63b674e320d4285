"""Keep the outbox: puts without the service's acknowledgement, one chain for each topic (see `chain`).

A batch gets its counter and `previous`, the last counter before it that was not discarded, in the commit of its outbox
row. So the rows of a topic form a chain, and the records of a publisher in a log are always a prefix of that chain. A
`Draft` holds the rows of the next commit. The outbox changes only after the commit succeeds and the draft is accepted.

The rules are those of docs/explanation/put.md, P4, P7, P10 and P11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, overload
from zlib import crc32

from pubsub.client.core.chain import DISCARDED, UNSURE, Chain, Row
from pubsub.client.core.changes import ChainMoved, Change, RowsRemoved, RowUnchained
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.retries import Retries
from pubsub.errors import TooLarge
from pubsub.protocol import Status, encode_batch

REMOVE_ROWS: Final = 64
"""Finished rows that leave the outbox together. After a crash they may be sent again, and servers recognise them."""

REMOVE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of finished rows above which they leave the outbox earlier."""


class Draft:
    """Rows of the next commit.

    Attributes:
        outbox: the outbox that accepts them.
        rows: the rows in order.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._tails: dict[str, int] = {}
        self.rows: list[Row] = []
        self._bytes = 0

    def add(
        self,
        topic: str,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] = (),
        headers: Sequence[bytes] = (),
        due: int = 0,
    ) -> Row:
        """Add a batch of at most BATCH_RECORDS_MAX records and BATCH_BYTES_MAX bytes; arguments as for `Contents`.

        Raises:
            TooLarge: the batch is too large, or the outbox would be.
            StorageError: the disk refused to reserve new numbers.
        """
        chain = self.outbox.chain(topic)
        row = self.outbox.row(chain, bodies, keys, headers, self._tails.get(topic), self._bytes, due)
        self._tails[topic] = row.last
        self._bytes += row.size
        self.rows.append(row)
        return row

    def cut(self, count: int) -> None:
        """Keep only the first `count` rows."""
        self._bytes -= sum([row.size for row in self.rows[count:]])
        del self.rows[count:]
        self._tails = {row.topic: row.last for row in self.rows}

    def changes(self) -> list[Change]:
        return [row.added() for row in self.rows]


class LateDraft(Draft):
    """Rows that get their counters just before their commit, since other rows may be committed before that.

    A counter is 0 until then. So is that of the row before, which the row gets at the same time.
    """

    def add(
        self,
        topic: str,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] = (),
        headers: Sequence[bytes] = (),
        due: int = 0,
    ) -> Row:
        """Add a batch. Raises as `Draft.add`; the outbox may be too large at `number`, too."""
        body = encode_batch(bodies, keys, headers, due)
        self.outbox.check_room(self._bytes + len(body))
        row = Row(topic, 0, 0, len(bodies), 0, crc32(body), body, len(body))
        self._bytes += row.size
        self.rows.append(row)
        return row

    def cut(self, count: int) -> None:
        """Keep only the first `count` rows."""
        self._bytes -= sum([row.size for row in self.rows[count:]])
        del self.rows[count:]

    def changes(self) -> list[Change]:
        """Give the rows their counters, and return their changes. Raises as `Draft.add`."""
        self.outbox.check_room(self._bytes)
        tails: dict[str, int] = {}
        for row in self.rows:
            self.outbox.number(row, tails.get(row.topic))
            tails[row.topic] = row.last
        return super().changes()


def _cleared(chain: Chain) -> int:
    """Return `cleared` for a chain after the discard of all its rows.

    An acknowledged row leaves the store a little later, so a row from before the present start may be acknowledged.
    Then a later put must not go to a log without that row, because a merge would assume that the log holds it.
    """
    return UNSURE if chain.rows[0].counter <= chain.loaded else chain.cleared


class LateCounters(Sequence[int]):
    """The counters of rows of a `LateDraft`; each is 0 until the commit.

    Args:
        rows: the rows.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def _all(self) -> list[int]:
        late = [row for row in self._rows if not row.counter]
        return [0] * sum([row.count for row in self._rows]) if late else [*counters(self._rows)]

    def __len__(self) -> int:
        return sum([row.count for row in self._rows])

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._all()[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<counters {self._all()}>"


class Outbox:
    """All chains of a client.

    Args:
        numbers: source of counters.
        cuts: number of power cuts in the history of this state.
        retries: makes the retries of a chain.
        window: batches in flight for each topic.
        bytes_max: most bytes of unfinished rows.
        database: ID of the database with this state; "": a file, from which a power cut may take rows.

    Attributes:
        on_done: called with finished rows; None: no call.
    """

    def __init__(
        self, numbers: Numbers, cuts: int, retries: Callable[[], Retries], window: int, bytes_max: int,
        database: str = "",
    ) -> None:  # fmt: skip
        self.numbers, self.cuts, self.bytes_max = numbers, cuts, bytes_max
        self._retries, self._window, self._exact = retries, window, bool(database)
        self.chains: dict[str, Chain] = {}
        self.active: dict[str, Chain] = {}
        self.bytes = 0
        self._finished: list[Row] = []
        self._finished_bytes = 0
        self._held: list[Row] = []
        self.on_done: Callable[[Sequence[Row]], None] | None = None

    def chain(self, topic: str) -> Chain:
        """Return the chain of a topic, and make one if there is none."""
        found = self.chains.get(topic)
        if found is None:
            found = self.chains[topic] = Chain(topic, self._retries(), self._window, exact=self._exact)
        return found

    def load(
        self,
        chains: Iterable[tuple[str, int, int, str]],
        rows: Iterable[tuple[int, str, int, int, int, int, int]],
        known: Mapping[int, Row] = MappingProxyType({}),
    ) -> None:
        """Load the chains (topic, previous, cleared, log) and rows in the form of `Store`.

        Args:
            known: by counter, existing rows to use in place of the store's, because callers hold them.
        """
        for topic, previous, cleared, log in chains:
            chain = self.chain(topic)
            chain.previous = chain.finished = previous
            chain.cleared, chain.log = cleared, log
        for counter, topic, previous, count, sole_owner, checksum, size in rows:
            chain = self.chain(topic)
            row = Row(topic, counter, previous, count, sole_owner, checksum, None, size)
            if (before := known.get(counter)) is not None:
                row = before.loaded(row)
            chain.add(row)
            chain.previous = chain.loaded = max(chain.previous, row.last)
            self.bytes += size

    def row(
        self,
        chain: Chain,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] = (),
        headers: Sequence[bytes] = (),
        previous: int | None = None,
        metadata: int = 0,
        due: int = 0,
    ) -> Row:
        """Build a row for the next commit; `enter` follows the commit. Raises as `Draft.add`.

        Args:
            chain: the chain of its topic.
            bodies, keys, headers, due: as for `BatchContents`. The body has the due time, so that the row keeps it.
            previous: the counter before it, if that is in the same commit; None: the chain's.
            beside: bytes of other rows in the same commit.
        """
        body = encode_batch(bodies, keys, headers, due)
        size = len(body)
        self.check_room(metadata + size)
        counter = self.numbers.take(len(bodies))
        sole_owner = self.cuts + 1 if chain.cleared < self.cuts else 0
        before = chain.previous if previous is None else previous
        return Row(chain.topic, counter, before, len(bodies), sole_owner, crc32(body), body, size)

    def check_room(self, size: int) -> None:
        """Check that the outbox has room for so many further bytes.

        Raises:
            TooLarge: it has not.
        """
        if (held := self.bytes + size) > self.bytes_max:
            raise TooLarge("outbox of unfinished puts", held, self.bytes_max, "outbox_bytes_max")

    def number(self, row: Row, previous: int | None) -> None:
        """Give a row of a `LateDraft` its counter, for the next commit. `previous`: as for `row`."""
        chain = self.chain(row.topic)
        counter = self.numbers.take(row.count)
        before = chain.previous if previous is None else previous
        row.numbered(counter, before, self.cuts + 1 if chain.cleared < self.cuts else 0)

    def enter(self, chain: Chain, row: Row) -> None:
        """Accept the commit of a row."""
        chain.add(row)
        chain.previous = row.last
        self.bytes += row.size

    def accept(self, draft: Draft, *, held: bool = False) -> None:
        """Accept the commit of a draft. `held`: its rows may be sent only after `release`, which follows an fsync."""
        for row in draft.rows:
            self.enter(self.chain(row.topic), row)
            row.held = held
            if held:
                self._held.append(row)

    def release(self) -> None:
        """Allow the sending of held rows after an fsync of all commits so far."""
        for row in self._held:
            row.held = False
        self._held.clear()

    def wake(self, topic: str, until: float, proxy: int) -> Chain:
        """Send the unfinished rows of a topic until `until`."""
        chain = self.chain(topic)
        if chain.rows:
            chain.wake(until, proxy)
            self.active[topic] = chain
        return chain

    def answered(self, chain: Chain, status: Status, generation: int, proxy: int, now: float) -> list[Row]:
        """Pass an answer to its chain; return the rows that it finishes."""
        done = chain.answered(status, generation, proxy, now)
        for row in done:
            self.bytes -= row.size
            self._finished_bytes += row.size
            if row.sole_owner:
                chain.cleared = max(chain.cleared, row.sole_owner - 1)
        if done:
            self._finished += done
            if self.on_done is not None:
                self.on_done(done)
        return done

    def evidence(self, chain: Chain, last: int) -> str:
        """Return the evidence in an answer's `last` that a copy of this state was used elsewhere; "" if none.

        An answer finishes rows only up to the last counter of one of them, since the rows are all puts from the oldest
        on. Any other `last` in this range was put by a copy. It proves nothing that `last` is below other numbers of
        this client. A copy opened with a slow clock gives its puts lower numbers than the original's, and its numbers
        may have risen above the original's before the answer comes.
        """
        never = f"{chain.topic} holds put {last}, which was never made here"
        if last > self.numbers.highest:
            return never
        if chain.asks and chain.rows[0].previous < last < chain.rows[0].counter:
            return f"{chain.topic} has put {last}, and the last one here is {chain.rows[0].previous}"
        if not chain.rows or last < chain.rows[0].counter:
            return ""
        row = next((row for row in chain.rows if row.last >= last), None)
        if row is not None and row.counter <= last:
            return "" if row.last == last else f"{chain.topic} ends at put {last}, inside a batch made here"
        # Between two rows, or after all of them: never put here, unless a power cut destroyed the row since.
        before = chain.rows[-1] if row is None else chain.rows[chain.rows.index(row) - 1]
        return "" if self._cut_since(chain, before) and not self.numbers.never_gave(last) else never

    def _cut_since(self, chain: Chain, row: Row) -> bool:
        """Return True if a power cut came after a row was made, and may have destroyed the rows after it.

        A row without a mark was made before the first power cut that its chain has not cleared. A power cut takes no
        row from a database.
        """
        cleared = row.sole_owner - 1 if row.sole_owner else chain.cleared
        return not chain.exact and row.last <= chain.loaded and self.cuts > cleared

    def discard(self, topic: str) -> tuple[list[Change], list[Row]]:
        """Return the changes that drop a topic's unfinished rows, and the rows; `discarded` follows the commit.

        The commit must be fsynced.
        """
        chain = self.chain(topic)
        rows = list(chain.rows)
        if not rows:
            return [], []
        removed = RowsRemoved([row.counter for row in rows])
        return [*self.removals(), removed, ChainMoved(topic, rows[0].previous, _cleared(chain), chain.log)], rows

    def discarded(self, topic: str) -> None:
        """Accept the commit of `discard`."""
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
        """Return the changes that remove finished rows from the store; `removed` follows the commit."""
        moved: list[Change] = [
            ChainMoved(chain.topic, chain.finished, chain.cleared, chain.log)
            for chain in {row.topic: self.chains[row.topic] for row in self._finished}.values()
        ]
        return [RowsRemoved([row.counter for row in self._finished]), *moved] if moved else []

    def removed(self) -> None:
        """Accept the commit of `removals`."""
        self._finished.clear()
        self._finished_bytes = 0

    @property
    def finished_rows(self) -> int:
        """Number of finished rows that are still in the store."""
        return len(self._finished)

    @property
    def is_untidy(self) -> bool:
        """True if there are enough finished rows for a commit of their own."""
        return len(self._finished) >= REMOVE_ROWS or self._finished_bytes >= REMOVE_BYTES

    def renewal(self) -> list[Change]:
        """Return the changes that begin each chain anew under a new publisher; `renewed` follows the commit."""
        return [RowUnchained(chain.rows[0].counter) for chain in self.chains.values() if chain.rows]

    def renewed(self) -> None:
        """Accept the commit of `renewal`: no server knows the new publisher."""
        self.cuts = 0
        for chain in self.chains.values():
            chain.renew()


def counters(rows: Sequence[Row]) -> Sequence[int]:
    if not rows:
        return range(0)
    if not rows[0].counter:
        return LateCounters(rows)
    if rows[-1].last - rows[0].counter == sum([row.count for row in rows]) - 1:
        return range(rows[0].counter, rows[-1].last + 1)
    return [counter for row in rows for counter in range(row.counter, row.last + 1)]
