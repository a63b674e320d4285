"""The outbox: what a client has put and the service has not acknowledged, a chain a topic (see `chain`).

A batch gets its counter and `previous`, the counter before it that was not discarded, in the commit of its outbox row;
so the rows of a topic are a chain, and what a log holds of a publisher is always a prefix of it. `Draft` is what a
commit is about to hold; nothing here changes until the commit has succeeded and it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from zlib import crc32

from pubsub.client.core.chain import DISCARDED, UNSURE, Chain, Row
from pubsub.client.core.changes import ChainMoved, Change, RowsRemoved, RowUnchained
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.retries import Retries
from pubsub.errors import TooLarge
from pubsub.protocol import Status, encode_batch

REMOVE_ROWS: Final = 64
"""Finished rows that are taken out of the outbox together; sent again after a crash, they are recognised."""

REMOVE_BYTES: Final = 4 * 1024 * 1024
"""Their bytes beyond which they are not waited for."""


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

    def add(
        self, topic: str, bodies: Sequence[bytes], keys: Sequence[bytes] = (), headers: Sequence[bytes] = ()
    ) -> Row:
        """One more batch, of at most BATCH_RECORDS_MAX records and BATCH_BYTES_MAX bytes; arguments as of `Contents`.

        Raises:
            TooLarge: the batch is, or the outbox would be.
            StorageError: new numbers were needed and the disk refused.
        """
        chain = self.outbox.chain(topic)
        row = self.outbox.row(chain, bodies, keys, headers, previous=self._tails.get(topic), beside=self._bytes)
        self._tails[topic] = row.last
        self._bytes += row.size
        self.rows.append(row)
        return row

    def cut(self, count: int) -> None:
        """Only the first `count` rows stay."""
        self._bytes -= sum([row.size for row in self.rows[count:]])
        del self.rows[count:]
        self._tails = {row.topic: row.last for row in self.rows}

    def changes(self) -> list[Change]:
        """What the commit is to hold for it."""
        return [row.added() for row in self.rows]


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
        retries: makes the retries of a chain.
        window: batches in flight per topic.
        bytes_max: of unfinished rows.

    Attributes:
        on_done: told the rows that are done; None: nobody wants to know.
    """

    def __init__(
        self, numbers: Numbers, cuts: int, retries: Callable[[], Retries], window: int, bytes_max: int
    ) -> None:
        self.numbers, self.cuts, self.bytes_max = numbers, cuts, bytes_max
        self._retries, self._window = retries, window
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
            found = self.chains[topic] = Chain(topic, self._retries(), self._window)
        return found

    def load(
        self,
        chains: Iterable[tuple[str, int, int, str]],
        rows: Iterable[tuple[int, str, int, int, int, int, int]],
        known: Mapping[int, Row] = MappingProxyType({}),
    ) -> None:
        """Take over the store's chains (topic, previous, cleared, log) and rows, as `Store` gives them.

        Args:
            known: by counter, rows that stand for those of the store, because callers look at them.
        """
        for topic, previous, cleared, log in chains:
            chain = self.chain(topic)
            chain.previous = chain.finished = previous
            chain.cleared, chain.log = cleared, log
        for counter, topic, previous, count, whole, checksum, size in rows:
            chain = self.chain(topic)
            row = Row(topic, counter, previous, count, whole, checksum, None, size)
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
        beside: int = 0,
    ) -> Row:
        """One batch as a row that a commit is about to hold; `enter` follows that. Raises as `Draft.add`.

        Args:
            chain: of its topic.
            bodies, keys, headers: as of `Contents`.
            previous: the counter before it, where that is of the same commit; None: the chain's.
            beside: bytes of the rows that the same commit holds.
        """
        body = encode_batch(bodies, keys, headers)
        size = len(body)
        if (held := self.bytes + beside + size) > self.bytes_max:
            raise TooLarge("outbox of unfinished puts", held, self.bytes_max, "outbox_bytes_max")
        counter = self.numbers.take(len(bodies))
        whole = self.cuts + 1 if chain.cleared < self.cuts else 0
        before = chain.previous if previous is None else previous
        return Row(chain.topic, counter, before, len(bodies), whole, crc32(body), body, size)

    def enter(self, chain: Chain, row: Row) -> None:
        """The commit of a row succeeded."""
        chain.add(row)
        chain.previous = row.last
        self.bytes += row.size

    def accept(self, draft: Draft, *, held: bool = False) -> None:
        """The commit of a draft succeeded. `held`: its rows may be sent only after `release`, that is an fsync."""
        for row in draft.rows:
            self.enter(self.chain(row.topic), row)
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
            if row.whole:
                chain.cleared = max(chain.cleared, row.whole - 1)
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
        return "" if self._cut_since(chain, before) and not self.numbers.never_gave(last) else never

    def _cut_since(self, chain: Chain, row: Row) -> bool:
        """Whether a power cut came after a row was made, and may have taken those behind it.

        One that is not marked was made before the first cut that its chain has not cleared.
        """
        return row.last <= chain.loaded and self.cuts > (row.whole - 1 if row.whole else chain.cleared)

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


def counters(rows: Sequence[Row]) -> Sequence[int]:
    """The counters of the messages in outbox rows, in order."""
    if not rows:
        return range(0)
    if rows[-1].last - rows[0].counter == sum([row.count for row in rows]) - 1:
        return range(rows[0].counter, rows[-1].last + 1)
    return [counter for row in rows for counter in range(row.counter, row.last + 1)]
