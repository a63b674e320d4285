"""Write the record of a client: puts, deliveries and subscriptions, as one JSON object a line.

The record allows a check of the service from outside: `pubsub pipeline audit` joins the records of all clients and
reports messages that were lost, duplicated, reordered or never put. So the order of writes matters, and each kind of
line has a rule about gaps:

    put            written before its first transmission, so no delivered message is missing from the records
    answered, …    outcome of a put, written before its outbox row can go; after a kill in between the put is
                   unfinished, and the next start of the client writes it again
    delivered      written after the commit that takes the message, at the end of the call. A kill in between leaves
                   deliveries out, so each start first writes the taken counters of the client's state (`before`)
    subscribing    asked: written before the commit of the intent; answered: after the commit of the answer

A line reaches the operating system at once, and survives SIGKILL from then on. Lines are not fsynced, so a power cut
may destroy the last ones. Each line is complete in itself: client, session (a number that rises with each start), its
place `n` in the session, and the time. Consecutive messages share one line with their number.

A failed write, for example on a full disk, does not stop the client. Its lines are kept in memory and written with the
next ones. Above KEPT_BYTES_MAX lines are dropped, and a `gap` line lists the missing ones when writing works again.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pubsub.client.core.changes import Change, Confirmed, Intended
from pubsub.errors import ConfigurationError, StorageError
from pubsub.protocol.names import LATEST, format_start

if TYPE_CHECKING:
    from pubsub.base.clock import Clock
    from pubsub.client.core.chain import Chain, Row
    from pubsub.client.core.chunk import Chunk
    from pubsub.client.core.core import ClientCore
    from pubsub.client.core.message import RunSlice
    from pubsub.client.core.prefetch import Loss
    from pubsub.client.core.subscription import Subscription
    from pubsub.protocol import Position

KEPT_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of unwritten lines that are kept."""

DRAINED_SECONDS: Final = 1.0
"""Least time between two `drained` lines of a topic without messages; one more is written at the end."""

VERSION: Final = 1
PARQUET: Final = ".parquet"
_PARQUET_MODULE: Final = "pubsub.spark.records"
"""Imported at its first use, since only a Parquet record needs Arrow."""

_log: Final = logging.getLogger("pubsub.client")


class RecordSink(Protocol):
    """A destination of lines."""

    def write(self, lines: bytes | bytearray) -> int:
        """Write complete lines from the front of `lines`; return their number of bytes, at least one line.

        Raises:
            OSError: not even one line could be written.
        """

    def close(self) -> None:
        """Close the sink; no more lines come."""


class RecordFile:
    """Appends lines to a file that several clients and processes may share.

    Raises:
        StorageError: it cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(self.path, f"cannot be recorded to: {error.strerror}") from None
        self._lock = threading.Lock()
        self._torn = self._ends_torn()

    def _ends_torn(self) -> bool:
        """Return True if the last line has no end, since its writer was killed or the disk was full."""
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return False
        return os.pread(self._file, 1, found.st_size - 1) != b"\n"

    def write(self, lines: bytes | bytearray) -> int:
        """Append lines; see `RecordSink`."""
        with self._lock:
            begin = b"\n" if self._torn else b""
            done = max(0, os.write(self._file, begin + lines if begin else lines) - len(begin))
            whole = lines.rfind(b"\n", 0, done) + 1 if done < len(lines) else done
            self._torn = whole != done
        if not whole:
            raise OSError(f"{self.path}: a line could be written in part only")
        return whole

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_record(path: Path | str) -> RecordSink:
    """Open the record at a path: JSON lines, or Parquet if the path ends in `.parquet`.

    Raises:
        StorageError: it cannot be opened.
        ConfigurationError: Parquet is asked for, and pyarrow is not installed.
    """
    if Path(path).suffix != PARQUET:
        return RecordFile(path)
    try:
        made: RecordSink = import_module(_PARQUET_MODULE).ParquetRecord(Path(path))
    except ImportError:
        raise ConfigurationError(f"{path}: a record in Parquet needs: pip install '.[spark]' in a clone") from None
    return made


class Recorder:
    """The record of one open client. Every call is made with the session's lock held.

    Args:
        name: the client ID.
        core: the client's core.
        clock: source of the time.
        boot: identifies this start of the operating system; times of one boot are of one clock.
        sink: destination of the lines.
        owned: close the sink at the end.

    Attributes:
        missing: number of lines that are not written so far.
        problem: cause; "" if none is missing.
    """

    def __init__(self, name: str, core: ClientCore, clock: Clock, boot: str, sink: RecordSink, *, owned: bool) -> None:
        self._name, self._core, self._clock, self._boot = name, core, clock, boot
        self._sink, self._owned = sink, owned
        self._head = f'{{"client":{json.dumps(name)},"session":{core.numbers.epoch},'
        self._n = 0
        self._lines: list[dict[str, Any]] = []
        self._kept = bytearray()
        self._kept_lines = 0
        self._dropped = 0
        self._dropped_puts: dict[tuple[str, str], tuple[int, int]] = {}
        self._drained: dict[str, tuple[float, float]] = {}
        self._chunks: dict[int, tuple[str, Chunk]] = {}
        self.problem = ""

    @property
    def missing(self) -> int:
        """Number of lines that are not written so far."""
        return self._kept_lines + self._dropped

    @property
    def _publisher(self) -> str:
        return f"{self._name}/{self._core.publisher}"

    def _at(self) -> int:
        return int(self._clock.wall() * 1_000_000)

    def _number(self) -> int:
        self._n += 1
        return self._n

    def _line(self, kind: str, topic: str = "", **facts: Any) -> dict[str, Any]:
        line = {"n": self._number(), "at": self._at(), "kind": kind}
        if topic:
            line["topic"] = topic
        self._lines.append(line | facts)
        return line

    # The client's start and its state

    def opened(self) -> None:
        """Write the client's identity and the state from before this start."""
        self._line("open", version=VERSION, boot=self._boot, publisher=self._publisher)
        self._state()
        self.flush()

    def renewed(self) -> None:
        """Write the new publisher and the state."""
        self._line("renewed", publisher=self._publisher)
        self._state()
        self.flush()

    def _state(self) -> None:
        for topic, sub in self._core.subscriptions.items():
            settled = sub.intent.settled
            place = _place(sub.cursor.position) if settled else {}
            self._line("subscription", topic, on=sub.intent.on, result="known" if settled else "unsettled", **place)
        self._taken_before()
        for topic, chain in self._core.outbox.chains.items():
            if chain.previous:
                self._line("put_before", topic, publisher=self._publisher, first=chain.previous, count=1)
            self._puts("unfinished", chain.rows)

    def _taken_before(self) -> None:
        for topic, sub in self._core.subscriptions.items():
            if sub.intent.on:
                for publisher, counter in sub.cursor.taken.items():
                    self._line("taken_before", topic, publisher=publisher, first=counter, count=1)

    # Puts

    def begun(self, rows: Sequence[Row]) -> None:
        """Write rows that are in the outbox and not sent yet."""
        self._puts("begun", rows)
        self.flush()

    def acknowledged(self, rows: Sequence[Row]) -> None:
        """Write rows that the service has; `flush` must follow before they can leave the outbox."""
        self._puts("acknowledged", rows)

    def discarded(self, rows: Sequence[Row]) -> None:
        """Write discarded rows."""
        self._puts("discarded", rows)
        self.flush()

    def unfinished(self, chain: Chain, result: str) -> None:
        """Write the rows of a chain after a call without success; `result` is `in_doubt` or `refused`."""
        self._puts(result, tuple(chain.rows))
        self.flush()

    def _puts(self, result: str, rows: Iterable[Row]) -> None:
        for row in rows:
            last = self._lines[-1] if self._lines else None
            if (
                last is not None
                and last["kind"] == "put"
                and (last["result"], last["topic"]) == (result, row.topic)
                and last["first"] + last["count"] == row.counter
            ):
                last["count"] += row.count
            else:
                self._line(
                    "put", row.topic, publisher=self._publisher, first=row.counter, count=row.count, result=result
                )

    # Subscriptions

    def intending(self, changes: Iterable[Change]) -> None:
        """Write changes that are about to be committed."""
        for change in changes:
            if isinstance(change, Intended):
                more: dict[str, Any] = {"continues": True} if change.on and not change.fresh else {}
                if change.on and change.start != LATEST:
                    more["start"] = format_start(change.start)
                self._line("subscription", change.topic, on=change.on, result="asked", **more)
                self.flush()

    def committed(self, changes: Iterable[Change]) -> None:
        """Write committed changes."""
        for change in changes:
            if isinstance(change, Confirmed):
                on = self._core.subscriptions[change.topic].intent.on
                self._line("subscription", change.topic, on=on, result="answered", **_place(change.position))
                self.flush()

    def idle(self, sub: Subscription, *, last: bool = False) -> None:
        """Write, now and then, that the service has no messages for a waiting call."""
        at, written = self._drained.get(sub.topic, (float("-inf"), float("-inf")))
        now = self._clock.monotonic()
        if sub.drained > at and (last or now - written >= DRAINED_SECONDS):
            self._drained[sub.topic] = sub.drained, now
            self._line("drained", sub.topic)
            self._lines[-1]["at"] -= int((now - sub.drained) * 1_000_000)
            self.flush()

    def lost(self, topic: str, loss: Loss) -> None:
        """Write records that the service has lost."""
        self._line("loss", topic, log=loss.first[0], offset=loss.first[1])

    # Deliveries

    def delivered(self, topic: str, pieces: Sequence[RunSlice], *, handler: bool, result: str = "taken") -> None:
        """Write taken messages; `flush` must follow at the end of the call."""
        for piece in pieces:
            self._delivery(topic, piece, piece.stop - piece.start, handler=handler, result=result)

    def _delivery(
        self, topic: str, piece: RunSlice, count: int, *, handler: bool, result: str, since: int = 0, n: int = 0
    ) -> None:
        run, offset = piece.run, piece.run.offset + piece.start
        publisher, counter = piece.put_by, piece.put_as
        last = self._lines[-1] if self._lines else None
        if (
            last is not None
            and last["kind"] == "delivery"
            and last["topic"] == topic
            and (last["log"], last["publisher"]) == (run.log, publisher)
            and last["offset"] + last["count"] == offset
            and last["first"] + last["count"] == counter
            and (last["handler"], last["result"]) == (handler, result)
            and (last.get("doubtful", False), last.get("replay", 0)) == (piece.doubtful, piece.replay)
            and (since <= last["n"] < n if n else last["n"] == self._n)
        ):
            last["count"] += count
            last["at"] = self._at()
            return
        self._line(
            "delivery", topic, publisher=publisher, first=counter, count=count, log=run.log, offset=offset,
            handler=handler, result=result, **({"doubtful": True} if piece.doubtful else {}),
            **({"replay": piece.replay} if piece.replay else {}),
        )  # fmt: skip
        if n:
            self._lines[-1]["n"] = n

    def handing_out(self, topic: str, chunk: Chunk) -> None:
        """Reserve the place in the session of messages that will be yielded one by one."""
        if not chunk.pieces:
            return
        chunk.recorded = self._n + 1
        self._n += len(chunk.pieces)
        self._chunks[chunk.recorded] = topic, chunk

    def handed_out(self, chunk: Chunk) -> None:
        """Write the yielded messages of an ended iteration as delivered."""
        found = self._chunks.pop(chunk.recorded, None)
        if found is None:
            return
        topic, left = found[0], chunk.handed
        for place, piece in enumerate(chunk.pieces):
            count = min(left, piece.stop - piece.start)
            if not count:
                break
            left -= count
            self._delivery(
                topic, piece, count, handler=False, result="taken", since=chunk.recorded, n=chunk.recorded + place
            )
        self.flush()

    # Writing

    def flush(self) -> None:
        """Write all lines; lines that cannot be written are kept, and the failure is logged once."""
        if self._lines:
            self._keep(self._lines)
            self._lines = []
        if not self._kept:
            return
        try:
            while self._kept:
                done = self._sink.write(self._kept)
                self._kept_lines -= self._kept.count(b"\n", 0, done)
                del self._kept[:done]
        except Exception as error:  # noqa: BLE001 - an error of the caller's sink must not fail the client.
            if not self.problem:
                _log.warning("client %s: its record cannot be written, and will be tried again: %s", self._name, error)
            self.problem = str(error)
            return
        if self._dropped:
            self._say_what_is_missing()
        elif self.problem:
            _log.warning("client %s: its record is written again, and is complete", self._name)
            self.problem = ""

    def _keep(self, lines: Sequence[dict[str, Any]]) -> None:
        if self._dropped or len(self._kept) > KEPT_BYTES_MAX:
            for line in lines:
                self._drop(line)
            return
        text = [f"{self._head}{json.dumps(line, separators=(',', ':'))[1:]}\n" for line in lines]
        self._kept += "".join(text).encode()
        self._kept_lines += len(lines)

    def _drop(self, line: dict[str, Any]) -> None:
        self._dropped += 1
        if line["kind"] == "put" and line["result"] in {"begun", "unfinished"}:
            key = line["topic"], line["publisher"]
            first, last = self._dropped_puts.get(key, (line["first"], 0))
            self._dropped_puts[key] = min(first, line["first"]), max(last, line["first"] + line["count"] - 1)

    def _say_what_is_missing(self) -> None:
        _log.error("client %s: its record is written again; %d lines are missing", self._name, self._dropped)
        self._line("gap", count=self._dropped)
        for (topic, publisher), (first, last) in self._dropped_puts.items():
            self._line("gap", topic, publisher=publisher, first=first, count=last - first + 1)
        self._state()
        self._dropped, self._dropped_puts, self.problem = 0, {}, ""
        self.flush()

    def close(self) -> None:
        """Write the end of the session."""
        for _, chunk in list(self._chunks.values()):
            self.handed_out(chunk)
        for chain in self._core.outbox.chains.values():
            self._puts("in_doubt", chain.rows)
        for sub in self._core.subscriptions.values():
            if sub.intent.subscribed:
                self.idle(sub, last=True)
        self._line("close")
        self.flush()
        if self.missing:
            self.problem = f"{self.problem}: {self.missing} lines are missing"
            _log.error("client %s: its record lacks %d lines: %s", self._name, self.missing, self.problem)
        if self._owned:
            self._sink.close()


def _place(position: Position | None) -> dict[str, Any]:
    return {} if position is None else {"log": position[0], "offset": position[1]}
