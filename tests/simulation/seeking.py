"""Clients that seek in a run, readers along the history, and the judgement on both.

A seeker takes by handlers that write into a table of its own, each message with the number of its replay. So the
messages of a replay are on the disk, in the commit of the position, after each death.

    1   within a replay each message comes once, in the order of its publisher, and nothing of an earlier one follows
    2   nothing comes that is before the start
    3   everything that is owed from the start on comes in the last replay
    4   a start at the last N begins at exactly so many of the records that the server shows
    5   no position is said to be gone that a server holds
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import apsw
from msgspec.structs import replace

from pubsub.client.core.subscription import PURGED
from pubsub.client.errors import StartGone
from pubsub.errors import DataLoss, StorageError, Unavailable
from pubsub.protocol import Position
from pubsub.protocol.batch import decode_batch
from pubsub.protocol.names import EARLIEST, Start, last_records, parse_position
from pubsub.protocol.topic_settings import EVER
from pubsub.server.topic.start import cursor_at
from tests.simulation.clients import ClientNode
from tests.simulation.configuring import Configured
from tests.simulation.disk import NAME
from tests.simulation.history import ACKED, History, Put
from tests.simulation.looking import Looker
from tests.simulation.purged import lost_range
from tests.simulation.world import EPOCH, World

if TYPE_CHECKING:
    from tests.simulation.fate import Fate
    from tests.simulation.members import Server

SOUGHT = 0.2
"""Share of runs with seekers."""

UNSOUND = {"abandon", "put back", "flip", "clock", "full", "fail"}
"""Faults that lose records or break the bound on clocks."""


def sought(fate: Fate, seed: int) -> Fate:
    """Have some runs seek; drawn apart, so that the other runs stay the same."""
    random = Random(f"seekers of {seed}")
    if random.random() < SOUGHT and not (
        UNSOUND & fate.faults.keys() or fate.older or fate.older_members or fate.tight or fate.purgers
    ):
        fate.seekers = random.choice((1, 1, 2))
    return fate


@dataclass
class Seek:
    """One replay.

    Attributes:
        stamp, put: of the record at its start, if that is a position.
        answered: time of its confirmation; None: it was not noticed yet.
        drained: time from which on it may lack messages, because another seek followed; None: it was not drained.
    """

    start: Start
    stamp: int = 0
    put: Put | None = None
    asked: float = 0.0
    answered: float | None = None
    drained: float | None = None


@dataclass
class Row:
    body: str
    log: str
    offset: int
    stamp: int
    replay: int


class Seeker:
    """A program that subscribes to one topic, and seeks again and again, also after its restarts."""

    def __init__(self, world: World, node: ClientNode, history: History, topic: str) -> None:
        self.world, self.node, self.history, self.topic = world, node, history, topic
        self.seeks: dict[int, Seek] = {0: Seek("latest")}
        self.rows: list[Row] = []
        self.places: dict[str, set[Position]] = {}
        """Of each message that a server has in the end, by its body."""
        self.known: list[tuple[Position, int, str]] = []
        """Positions that it has seen, each with its stamp and body."""
        self.servers: list[Server] = []
        self.finishing = self.quiet = False
        self.lost = 0
        self.dropped: list[tuple[str, int, int]] = []
        """Records that it was told are lost, by a purge or a limit on unacknowledged messages."""
        self.left = world.random.choice((0, 0, 4))
        """Seeks to positions that follow when there are no faults any more, each of them drained."""
        self._pending: Seek | None = None
        self._drained = 0.0
        node.on_start = self._started

    def _started(self) -> None:
        self.quiet = False
        self.node.session.store.db.execute(
            "create table if not exists replayed (n integer primary key, body, id, stamp, replay)"
        )
        self._note()
        self.node.later(0.01, self._go)

    def _intent(self) -> Any:
        sub = self.node.session.core.subscriptions.get(self.topic)
        return None if sub is None else sub.intent

    def _note(self) -> None:
        """See which replay is the present one: a kill or a power cut may have taken the last."""
        intent = self._intent()
        if intent is None:
            return
        for number in [number for number in self.seeks if number > intent.replay]:
            del self.seeks[number]
        if intent.replay not in self.seeks:
            assert self._pending is not None
            self.seeks[intent.replay] = self._pending
        if intent.settled and self.seeks[intent.replay].answered is None:
            self.seeks[intent.replay].answered = self.world.now

    def _next(self) -> None:
        self._note()
        seconds = 0.05 if self.finishing else self.world.random.expovariate(1 / self.world.fate.think)
        self.node.later(seconds, self._go)

    def _go(self) -> None:
        random, intent = self.world.random, self._intent()
        if intent is None or not intent.on:
            self.node.call(self.node.calls.subscribing.intend(self.topic, True, None), self._done)
        elif not self.finishing and random.random() < 0.25:
            self._seek(self._drawn())
        elif self.finishing and self.quiet and self.left and self.known and self._holders() == 1:
            self.left, self.quiet = self.left - 1, False
            present = self.seeks[intent.replay]
            if present.answered is not None:
                present.drained = self._drained
            # The first records of each log have later records of other logs beside them.
            log = random.choice(sorted({position[0] for position, _, _ in self.known}))
            position, stamp, body = random.choice(sorted(one for one in self.known if one[0][0] == log)[:5])
            last = Seek(f"last:{random.randrange(1, 30)}")
            self._seek(last if random.random() < 0.4 else Seek(position, stamp, self.history.puts.get(body)))
        else:
            self._process()

    def _holders(self) -> int:
        return sum(self.topic in server.core.state.topics for server in self.servers if server.alive)

    def _has_all(self) -> bool:
        """Return True if no server has anything left for it: the answer to a call without messages may be lost."""
        intent = self._intent()
        for server in self.servers:
            if not server.alive:
                return False
            topic = server.core.state.topics.get(self.topic)
            if topic is None:
                continue
            mine = topic.subscriptions.get(self.node.client)
            if mine is None or mine.number < intent.number:
                return False
            below = mine.cursor.expired_below  # Messages that `expire` leaves out stay in the backlog.
            left = (replace(span, low=max(span.low, below.get(span.log, 0))) for span in mine.cursor.backlog)
            if topic.waiting(left):
                return False
        return True

    def _drawn(self) -> Seek:
        random = self.world.random
        kind = random.choice(("earliest", "stamp", "stamp", "position", "position", "last"))
        if kind == "stamp":
            return Seek(int((EPOCH + random.uniform(0, self.world.now)) * 1e6))
        if kind == "position" and self.known:
            position, stamp, body = random.choice(self.known[-40:])
            return Seek(position, stamp, self.history.puts.get(body))
        return Seek(f"last:{random.randrange(1, 30)}") if kind == "last" else Seek(EARLIEST)

    def _seek(self, seek: Seek) -> None:
        seek.asked, self._pending, self.quiet = self.world.now, seek, False
        self.history.counters["seeks"] += 1
        random = self.world.random
        if random.random() < 0.1:
            self.node.host.disk.kill_in = random.randrange(8)
        elif random.random() < 0.1:
            self.world.after(random.uniform(0, 0.05), self._killed)
        self.node.call(self.node.calls.subscribing.seek(self.topic, seek.start, None), self._sought)
        self._note()

    def _killed(self) -> None:
        if not self.world.over:
            self.node.end("killed")

    def _sought(self, result: Any, error: Exception | None) -> None:
        if isinstance(error, StartGone):
            self._gone()
            self._note()
            self._seek(Seek(EARLIEST))
            return
        self._done(result, error)

    def _gone(self) -> None:
        start = self._pending.start if self._pending else ""
        for server in self.servers:
            topic = server.core.state.topics.get(self.topic) if server.alive else None
            if (
                topic is not None
                and isinstance(start, tuple)
                and cursor_at(topic, start, 0, 0, server.core.state.reader)
            ):
                self.history.violate(f"{self.node.name}: {start} is said to be gone, and {server.name} holds it")

    def _process(self) -> None:
        random = self.world.random
        timeout = 0.6 if self.finishing else random.choice((0.0, 0.1, 1.0))
        most, began = 50 if self.finishing else random.choice((1, 3, 20)), self.node.session.now

        def then(taken: Any, error: Exception | None) -> None:
            sub = self.node.session.core.subscriptions.get(self.topic)
            heard = sub is not None and sub.intent.settled and not sub.unconfirmed_since(began)
            self.quiet = error is None and not taken and heard and self._has_all()
            self._drained = self.world.now
            self._sought(taken, error) if isinstance(error, StartGone) else self._done(taken, error)

        self.node.call(self.node.processing.process(self.topic, self._handle, timeout, most), then)

    def _handle(self, message: Any, transaction: Any) -> None:
        self.node.operations += 1
        body = message.body.decode()
        transaction.execute(
            "insert into replayed (body, id, stamp, replay) values (?, ?, ?, ?)",
            (body, message.id, message.stamp, message.replay),
        )
        position = parse_position(message.id)
        assert position is not None
        self.known.append((position, message.stamp, body))

    def _done(self, result: Any, error: Exception | None) -> None:
        explained = isinstance(error, StorageError) and self.node.host.disk.explains(error)
        explained = explained or (isinstance(error, DataLoss) and self._lacks(error))
        if not (error is None or explained or isinstance(error, Unavailable)):
            self.history.violate(f"{self.node.name}: {type(error).__name__} {error}")
        self._next()

    def _lacks(self, error: DataLoss) -> bool:
        """Count the records of a loss that it was told; return False if nobody has caused it."""
        first, last = (int(place.partition(".")[2]) for place in (error.first, error.last))
        self.lost += last - first + 1
        self.history.counters["losses that seekers were told"] += 1
        if error.reason == PURGED:
            return self.history.purges.covers(error)
        self.dropped.append(lost_range(error))
        return self.topic in self.history.dropping

    def settled(self) -> str:
        return (
            ""
            if self.node.alive and self.quiet and not (self.left and self.known)
            else f"{self.node.name} has not taken all of {self.topic}"
        )

    def collect(self) -> None:
        """Read its table, as it is on the disk."""
        path = f"/{self.node.name}/{self.node.name}.db"
        if path not in self.node.host.disk.files:
            return
        db = apsw.Connection(path, vfs=NAME)
        db.pragma("locking_mode", "exclusive")
        try:
            for body, place, stamp, replay in db.execute("select body, id, stamp, replay from replayed order by n"):
                log, _, offset = place.partition(".")
                self.rows.append(Row(body, log, int(offset), stamp, replay))
        except apsw.SQLError:  # It never got that far.
            return
        finally:
            db.close()

    # Judgement

    def judge(self, kept_since: float, skew: float, *, alone: bool) -> None:
        """Judge all replays; `kept_since`: acknowledged puts from then on are kept."""
        violate, name, before = self.history.violate, self.node.name, 0
        for row in self.rows:
            if row.replay < before:
                violate(f"{name} got {row.body} of replay {row.replay} after one of {before}")
            before = max(before, row.replay)
        for number, seek in self.seeks.items():
            rows = [row for row in self.rows if row.replay == number]
            self._judge_rows(f"{name}, replay {number} from {seek.start}", seek, rows, skew)
        for number, seek in self.seeks.items():
            if seek.answered is not None and (seek.drained is not None or number == max(self.seeks)):
                self._judge_all(number, seek, kept_since, skew, alone=alone)

    def _judge_all(self, number: int, seek: Seek, kept_since: float, skew: float, *, alone: bool) -> None:
        """Judge a replay of which all messages were taken."""
        if self.topic in self.history.given_up:  # It is owed nothing.
            return
        history, violate, name = self.history, self.history.violate, self.node.name
        got = {row.body for row in self.rows if row.replay == number}
        until = float("inf") if seek.drained is None else seek.drained
        acked = [
            put
            for put in history.states((ACKED,))
            if put.topic == self.topic and (float("inf") if put.acked_at is None else put.acked_at) <= until
            if not put.due or seek.drained is None  # It may have waited longer.
        ]
        skipped = {body for one, topic, body in history.passed | history.expired if (one, topic) == (name, self.topic)}
        missing = [put for put in acked if put.body not in got | skipped]
        missing = [put for put in missing if self._is_owed(put, seek, kept_since, skew)]
        dropped = history.dropped(self.dropped)
        missing = [put for put in missing if put.body not in dropped]
        may_lack = [put for put in missing if put.invoked <= history.purges.last(self.topic, unread=True)]
        told = may_lack if len(may_lack) <= self.lost else []
        for put in missing:
            if put not in told:
                violate(f"{name}, replay {number} from {seek.start}, never got {put.body}, put at {put.invoked:.3f}")
        count = last_records(seek.start)
        early = (put for put in acked if put.invoked > kept_since and not put.due)
        sure = [put for put in early if (put.acked_at or seek.asked) < seek.asked]
        if alone and count and len(got) + len(skipped) + self.lost < min(count, len(sure)):
            violate(f"{name} got {len(got)} messages of {seek.start}, of {len(sure)}")

    def _judge_rows(self, name: str, seek: Seek, rows: list[Row], skew: float) -> None:
        newest: dict[tuple[str, int, str], Put] = {}
        bodies: set[str] = set()
        for row in rows:
            put = self.history.puts.get(row.body)
            if put is None or put.topic != self.topic:
                self.history.violate(f"{name} got {row.body!r}, which nobody put there")
                continue
            if row.body in bodies:
                self.history.violate(f"{name} got {row.body} twice")
            bodies.add(row.body)
            earlier = newest.get(put.source)
            if earlier is not None and not (put.due or earlier.due) and earlier.index > put.index:
                self.history.violate(f"{name} got {put.body} after {earlier.body}, which was put later")
            newest[put.source] = put
            if self._is_early(row, seek, skew):
                self.history.violate(f"{name} got {row.body} of {row.stamp} at {row.log}.{row.offset}")

    @staticmethod
    def _is_early(row: Row, seek: Seek, skew: float) -> bool:
        if isinstance(seek.start, int):
            return row.stamp < seek.start
        if isinstance(seek.start, tuple):
            if row.log == seek.start[0]:
                return row.offset < seek.start[1]
            return row.stamp < seek.stamp - skew * 1e6
        return False

    def _is_owed(self, put: Put, seek: Seek, kept_since: float, skew: float) -> bool:
        assert seek.answered is not None
        if put.invoked > seek.answered:
            return True
        if put.invoked <= kept_since:
            return False
        if seek.start == EARLIEST or put is seek.put:
            return True
        if isinstance(seek.start, int):
            return put.invoked - skew > seek.start / 1e6 - EPOCH
        if not isinstance(seek.start, tuple):
            return False
        if any(log == seek.start[0] and offset < seek.start[1] for log, offset in self.places.get(put.body, ())):
            return False
        # A server's clock is within half the skew of true time, and its stamps never fall below its clock.
        return put.invoked > seek.stamp / 1e6 - EPOCH - skew / 2


def judge(seekers: list[Seeker], lookers: list[Looker], known: Configured, servers: list[Server], skew: float) -> None:
    """Judge all of them; the run is over."""
    for seeker in seekers:
        seeker.node.end("over")
        for line in seeker.node.found:
            seeker.history.violate(line)
        seeker.collect()
        for server in servers:
            _find_places(server, seeker.topic, seeker.places)
        seeker.judge(_kept_since(known, seeker.topic), skew, alone=len(servers) == 1)
    for looker in lookers:
        if looker.topic not in looker.history.given_up:
            looker.judge(_kept_since(known, looker.topic))


def _find_places(server: Server, name: str, places: dict[str, set[Position]]) -> None:
    topic, reader = server.core.state.topics.get(name), server.core.state.reader
    for log in [] if topic is None else topic.logs.values():
        for batch in reader.batches(log.number, log.low, log.end):
            for at, body in enumerate(decode_batch(batch.body) if batch.body is not None else ()):
                places.setdefault(bytes(body).decode(), set()).add((log.id, batch.offset + at))


def _kept_since(known: Configured, topic: str) -> float:
    changes = [change for change in known.changes.values() if change.topic == topic]
    purged = known.history.purges.last(topic, unread=False)
    if any(change.keep != EVER or change.drop != EVER for change in changes):
        return float("inf")
    return max(purged, min((change.answered_at for change in changes if change.answered), default=float("inf")))
