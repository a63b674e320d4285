"""The acts and observations of the applications, and the judgement on them, from the guarantees alone.

    1   an acknowledged put reaches every earlier subscriber
    2   no message reaches a subscriber twice; of a client with several directories: no message without the mark
    3   a put in doubt reaches all of them or none; a discarded one, or one whose row a power cut took, reaches some
    4   a publisher's messages arrive in the order of its puts, from directory to directory too, except the marked ones
    5   within one log all subscribers see one order, for as long as they stay subscribed
    6   a put from long before a subscription does not reach it, and an unsubscribed client gets no messages
    7   no message arrives without a put, or on another topic; a sink's batch is published once, all of it
    8   the puts of a transaction, and its rows, happen all or not at all; a handler's put, exactly with its message
    9   losses by operators are reported to each subscriber, once, and once more to a process that was started since;
        nothing else is ever lost
    10  a put after an answered subscribe comes to that directory without the mark
    11  a delayed message does not come before its due time, by the clock of its server; 4 does not hold for it

The checks know nothing of logs' joins, counters or positions; only 5 takes message IDs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.purged import Purges

if TYPE_CHECKING:
    from tests.simulation.deleting import Deletion, Told

ASKED, KEPT, ACKED, EXCUSED, ABORTED = "asked", "kept", "acked", "excused", "aborted"


@dataclass(slots=True, eq=False)
class Put:
    """One message of a put.

    Attributes:
        source: client, life of its directory and thread; order holds within it.
        state: asked (in doubt, maybe not even written), kept (in doubt, and written), acked; excused: any outcome is
            allowed; aborted: it must not be seen.
        group: of a transaction.
        follows: the message in the handler that put this one.
        acked_at: time of the known acknowledgement; None: none.
        counter: the counter that the caller got, which subscribers see; 0: none.
        due: before this time it must not come; 0: at once. Such messages have no order.
        ttl: its time to live, in seconds; 0: it does not expire.
        key: its message key, if a client may keep the order of keys alone.
    """

    body: str
    source: tuple[str, int, str]
    index: int
    topic: str
    invoked: float
    state: str = ASKED
    group: str = ""
    follows: tuple[str, str] | None = None
    acked_at: float | None = None
    counter: int = 0
    due: float = 0.0
    ttl: float = 0.0
    key: bytes = b""


@dataclass(slots=True)
class Seen:
    """One message that somebody got; `stamp` in virtual seconds.

    Attributes:
        doubtful: whether it was marked; line: see `Reading`; directory: which one of the client's got it.
    """

    topic: str
    body: str
    id: str
    stamp: float
    subscribed: float = 0.0
    doubtful: bool = False
    line: int = -1
    directory: int = 0


@dataclass(slots=True, eq=False)
class Reading:
    """A subscriber's topic.

    Attributes:
        asked: time of the request for the present subscription; confirmed: time of the return of that call. None: there
            is none.
        parts: received messages; within one part no message comes twice, and order holds.
        lost: positions from which on a loss was reported, and the life in which it was.
        handled: rows of the application's own table, which handlers write.
        excused: number of messages that a kill inside `get`, or of an iteration, may have taken.
        purged: whether it was told of a purge.
        dropped: ranges that it was told are lost by `drop`: log, first and last offset.
        shared: a copy of the subscriber takes some of them.
        line: number of the subscription, which continues from directory to directory until it begins at the end.
        began: time of the request for each line.
        directory: number of the client's directory, of the lost ones.
        settled: time of the last confirmation to this directory; None while it asks.
        unsure: whether it is unknown if the subscription was made, or left.
        open_since: time of the request for the earliest subscription that may still be active; None: there is none.
        promised: time of the confirmation to a lost directory: since then no message may be lost.
        carries: how the next directory continues: with the "line", "either" way if that was unknown, "": in neither.
    """

    client: str
    topic: str
    by_get: bool
    asked: float | None = None
    confirmed: float | None = None
    wanted: bool = False
    parts: list[list[Seen]] = field(default_factory=lambda: [[]])
    handled: list[Seen] = field(default_factory=list)
    excused: int = 0
    purged: bool = False
    dropped: list[tuple[str, int, int]] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    shared: bool = False
    line: int = 0
    began: dict[int, float] = field(default_factory=lambda: {0: 0.0})
    directory: int = 0
    settled: float | None = None
    unsure: bool = False
    open_since: float | None = None
    promised: float | None = None
    carries: str = ""

    def begin_line(self, now: float) -> None:
        """It is to begin at the end."""
        self.line += 1
        self.began[self.line] = now
        self.promised, self.unsure, self.carries = None, True, ""

    def lose_directory(self, *, strict: bool) -> None:
        """An empty directory continues under the client's ID; `strict`: the promises for that case can be demanded."""
        if self.wanted and not self.unsure:
            self.promised = self.confirmed if self.confirmed is not None else self.promised
            self.carries = "line"
        elif self.wanted or self.unsure:
            self.carries = "either"
        if self.carries == "either" or (self.carries and not strict):
            self.carries, self.promised = "either", None
        if not strict:  # A server that is put back may have any earlier subscription, which then goes on.
            self.open_since = 0.0
        self.directory += 1
        self.unsure, self.settled = False, None

    def confirm(self, now: float, deletions: Iterable[Deletion]) -> None:
        """Record an answered subscribe of its client."""
        self.take_over(now, deletions)
        self.settled = now
        self.confirmed = now if self.promised is None else self.promised

    def promise(self) -> None:
        """Have the next confirmation count since the present one: the subscription continues."""
        self.promised = self.confirmed if self.promised is None else self.promised

    def take_over(self, now: float, deletions: Iterable[Deletion]) -> None:
        """Record that a directory has a confirmed subscription, which continues that of an earlier directory.

        A deletion ends the earlier subscription, so messages put before this confirmation then need not arrive
        (docs/explanation/deletion.md, *Limits*).
        """
        since = self.confirmed if self.promised is None else self.promised
        if since is not None and any(one.is_after(since, self.topic) for one in deletions):
            self.promised = now

    def make_anew(self, now: float) -> None:
        """Record a reported loss of the subscription, which the client has made anew: later messages must arrive."""
        if self.confirmed is not None:
            self.confirmed = now
            self.promised = None if self.promised is None else now

    def all(self) -> Iterator[list[Seen]]:
        """All parts."""
        yield from self.parts
        yield self.handled

    def begin_part(self, *, emptied: bool = False) -> None:
        """Earlier messages may come again; also the ones of handlers, if their table is another one from now on."""
        self.parts.append([])
        if emptied:
            self.parts.insert(-1, self.handled)
            self.handled = []


class History:
    """Everything that happened at the clients of one run.

    Args:
        skew: bound on the difference of two servers' clocks, in seconds.
        alone: whether there is one server.
    """

    def __init__(self, skew: float, alone: bool = False) -> None:
        self.skew, self.alone = skew, alone
        self.puts: dict[str, Put] = {}
        self.readings: dict[tuple[str, str], Reading] = {}
        self.rows: dict[str, set[str]] = {}
        self.groups: dict[str, list[Put]] = {}
        self.violations: list[str] = []
        self.damaged: dict[str, set[str]] = {}
        """Bodies of batches of which a bit flipped at some server, by topic."""
        self.counters: Counter[str] = Counter()
        self.given_up: dict[str, list[tuple[float, Collection[str]]]] = {}
        self.losses: dict[str, int] = {}
        self.purges = Purges()
        self.deletions: list[Deletion] = []
        self.told_deletions: list[Told] = []
        self.dropping: set[str] = set()
        """Topics that were told to drop unacknowledged messages."""
        self.bare: dict[tuple[str, int], str] = {}
        """By log and offset, messages of batches that lost their bodies at some server by `drop` or a limit."""
        self.expired: set[tuple[str, str, str]] = set()
        """Subscription, topic and body of messages that servers left out as too old."""
        self.passed: set[tuple[str, str, str]] = set()
        """Client, topic and body of messages that a client passed over after their time to live."""
        self.told: Counter[tuple[str, str]] = Counter()
        self._told: dict[tuple[str, str, str], int] = {}

    def violate(self, text: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(text)

    def put(self, put: Put) -> Put:
        self.puts[put.body] = put
        if put.group:
            self.groups.setdefault(put.group, []).append(put)
        return put

    def check_counter(self, client: str, body: str, counter: int) -> None:
        """Somebody got a message under this counter."""
        put = self.puts.get(body)
        if put is not None and put.counter not in {0, counter}:
            self.violate(f"{client} got {body} as {counter}, and who put it was told that it is {put.counter}")

    def reading(self, client: str, topic: str, *, by_get: bool) -> Reading:
        key = (client, topic)
        if key not in self.readings:
            self.readings[key] = Reading(client, topic, by_get)
        return self.readings[key]

    # Losses by operators

    def give_up(self, topic: str, until: float, *, but: Collection[str] = (), losses: int = 0) -> None:
        """Allow any outcome of puts to a topic before a time, except some; readers may get this number of reports.

        Args:
            until: infinity for an act under way; called again with the time at its end.
        """
        spans = self.given_up.setdefault(topic, [])
        if spans and spans[-1][0] == float("inf"):
            spans.pop()
        spans.append((until, but))
        self.losses[topic] = self.losses.get(topic, 0) + losses

    def tell(self, client: str, topic: str, place: str, life: int) -> bool:
        """A reader gets a report of a loss in one of its processes; judges whether that is allowed.

        Args:
            place: the first lost position; "": it is told of a deletion, and of no lost record.
        """
        before = self._told.get((client, topic, place)) if place else None
        self._told[client, topic, place] = life
        if before is not None and before != life:
            return True  # The earlier process may have ended on the way to its user.
        self.told[client, topic] += 1
        return self.told[client, topic] <= self.losses.get(topic, 0)

    def _forgive(self) -> None:
        for put in self.puts.values():
            for until, but in self.given_up.get(put.topic, ()):
                if put.invoked <= until and put.body not in but and put.state != ABORTED:
                    put.state = EXCUSED

    # Judgement

    def judge(self) -> list[str]:
        places: dict[str, str] = {}
        self._forgive()
        self._judge_handled()
        self._judge_groups()
        for reading in self.readings.values():
            for part in reading.all():
                self._judge_part(reading, part, places)
            for body in sorted({seen.body for seen in reading.parts[-1]} & {seen.body for seen in reading.handled}):
                self.violate(f"{reading.client} on {reading.topic} got {body} and handled it")
            self._judge_directories(reading)
        self._judge_deliveries()
        return self.violations

    def _judge_part(self, reading: Reading, part: list[Seen], places: dict[str, str]) -> None:
        who = f"{reading.client} on {reading.topic}"
        bodies: set[str] = set()
        newest: dict[tuple[str, int, str], Put] = {}
        offsets: dict[str, int] = {}
        subscribed = 0.0
        for seen in part:
            put = self.puts.get(seen.body)
            if put is None or put.topic != reading.topic or put.state == ABORTED:
                self.violate(f"{who} got {seen.body!r}, which nobody put there")
                continue
            # Its publisher may send it again after the holder that delivered it was abandoned.
            again = (bool(put.due) and reading.topic in self.given_up) or self._may_be_in_both(put)
            if seen.body in bodies and not again:
                self.violate(f"{who} got {seen.body} twice")
            bodies.add(seen.body)
            before = newest.get(put.source)
            if put.due or again:
                before = None
                if seen.stamp < put.due - 1e-4:
                    self.violate(f"{who} got {seen.body} with the stamp {seen.stamp:.6f}, due at {put.due:.6f}")
            if before is not None and before.index > put.index:
                self.violate(f"{who} got {put.body} after {before.body}, which was put later")
            if not (put.due or again):
                newest[put.source] = put
            if (
                seen.subscribed != subscribed
            ):  # Within the clocks' skew another subscription may begin a little earlier.
                subscribed = seen.subscribed
                offsets.clear()
            log, _, offset = seen.id.partition(".")
            if int(offset) <= offsets.get(log, 0):
                self.violate(f"{who} got {seen.id} after {log}.{offsets[log]}")
            offsets[log] = int(offset)
            if places.setdefault(seen.id, seen.body) != seen.body:
                self.violate(f"{seen.id} is {seen.body} to {who} and {places[seen.id]} to others")
            early = seen.subscribed - 2 * self.skew - 0.05
            if seen.stamp < put.invoked - self.skew:
                self.violate(f"{who} got {seen.body} with the stamp {seen.stamp:.3f}, put at {put.invoked:.3f}")
            # Where there are two servers, a request may reach the second one late, and be new there.
            acked_at = put.acked_at if self.alone and reading.topic not in self.given_up and not put.due else None
            if acked_at is not None and acked_at < early:
                self.violate(
                    f"{who} got {seen.body}, acknowledged at {acked_at:.3f}, though it asked to subscribe at"
                    f" {seen.subscribed:.3f}"
                )
            if seen.stamp < early and not again:
                self.violate(
                    f"{who} got {seen.body} of {seen.stamp:.3f}, though it asked to subscribe at {seen.subscribed:.3f}"
                )

    def _may_be_in_both(self, put: Put) -> bool:
        """Return True if a put may be in a deleted topic and, sent again, in the one that began anew."""
        return any(
            one.topic == put.topic
            and put.invoked <= (one.answered or float("inf"))
            and (put.acked_at is None or put.acked_at >= one.began)
            for one in self.deletions
        )

    def _judge_directories(self, reading: Reading) -> None:
        """Unmarked messages must go to one directory of a line only, and in order from one to the next."""
        who = f"{reading.client} on {reading.topic}"
        known: dict[tuple[int, str], int] = {}
        newest: dict[tuple[int, tuple[str, int, str]], dict[int, int]] = {}
        found = [(seen, self.puts[seen.body]) for part in reading.all() for seen in part if seen.body in self.puts]
        for seen, put in found:
            # A put from before the beginning of a line may come again by a merge, within the bound on clocks.
            if seen.line < 0 or max(put.invoked, put.due) < reading.began.get(seen.line, 0.0) + 2 * self.skew:
                continue
            last = newest.setdefault((seen.line, put.source), {})
            last[seen.directory] = max(0 if put.due else put.index, last.get(seen.directory, 0))
            if not seen.doubtful and known.setdefault((seen.line, seen.body), seen.directory) != seen.directory:
                self.violate(f"{who} got {seen.body} in two directories, and in neither with the mark")
        for seen, put in found:
            last = newest.get((seen.line, put.source), {})
            before = [index for directory, index in last.items() if 0 <= directory < seen.directory]
            if before and not (seen.doubtful or put.due) and max(before) > put.index:
                self.violate(f"{who} got {seen.body} after one that was put later and came to a directory that is lost")

    def check_mark(self, reading: Reading, body: str, settled: float | None) -> None:
        """A marked message came to a directory with a confirmed subscription."""
        put = self.puts.get(body)
        if put is not None and settled is not None and max(put.invoked, put.due) > settled + self.skew * bool(put.due):
            self.violate(f"{reading.client} on {reading.topic} got {body} with a mark, put after it was subscribed")

    def _judge_handled(self) -> None:
        """The put of a handler happens exactly if the handled message is recorded: by its last attempt."""
        following = [put for put in self.puts.values() if put.follows is not None and put.state != EXCUSED]
        last = {put.follows: put for put in sorted(following, key=lambda put: put.index)}
        for put in following:
            assert put.follows is not None
            client, body = put.follows
            handled = last[put.follows] is put and body in self.rows.get(client, set())
            put.state = ACKED if handled else ABORTED
            if put.state == ABORTED and any(put.body in self._bodies(reading) for reading in self.readings.values()):
                self.violate(f"{put.body} was put with {body}, which {client} has not recorded, and it arrived")

    def _judge_groups(self) -> None:
        """A transaction's row in the application's table says whether its puts happened."""
        for group, puts in self.groups.items():
            if any(put.state == EXCUSED for put in puts):
                continue
            client = puts[0].source[0]
            there = group in self.rows.get(client, set())
            for put in puts:
                if put.state == ABORTED:
                    continue
                if put.state == ACKED and not there:
                    self.violate(f"{put.body} of transaction {group} is acknowledged, and the row beside it is gone")
                put.state = ACKED if there else ABORTED

    @staticmethod
    def _bodies(reading: Reading) -> set[str]:
        return {seen.body for part in reading.all() for seen in part}

    def _judge_deliveries(self) -> None:
        current = [r for r in self.readings.values() if r.wanted and r.confirmed is not None and not r.shared]
        got = {(r.client, r.topic): self._bodies(r) for r in current}
        missing: dict[tuple[str, str], list[Put]] = {}
        for put in self.puts.values():
            if put.state in {EXCUSED, ABORTED}:
                continue
            begin = max(put.invoked, put.due - 2 * self.skew - 0.05) if put.due else put.invoked
            due = [r for r in current if r.topic == put.topic and r.confirmed is not None and r.confirmed < begin]
            without = [r for r in due if put.body not in got[r.client, r.topic]]
            if put.state == ACKED or len(without) < len([r for r in due if not r.by_get or not r.excused]):
                for reading in without:
                    missing.setdefault((reading.client, reading.topic), []).append(put)
        for (client, topic), puts in missing.items():
            reading = self.readings[client, topic]
            # The loss report names exactly the damaged messages.
            damaged = self.damaged.get(topic, set()) if reading.lost else set()
            without = [put for put in puts if put.body not in damaged | self.dropped(reading.dropped)]
            without = [put for put in without if (client, topic, put.body) not in self.passed | self.expired]
            if reading.purged and (beyond := self.purges.beyond(topic, without)):
                without = beyond if len(without) <= reading.excused else without
                self.violate(f"{client} on {topic} lost {without[0].body} to a purge that was asked before it was put")
            if len(without) > reading.excused:
                for put in without[:3]:
                    self.violate(f"{client} on {topic} never got {put.body}, put at {put.invoked:.3f} ({put.state})")

    def dropped(self, ranges: Iterable[tuple[str, int, int]]) -> set[str]:
        """The messages that these reports of a loss cover, and whose bodies `drop` or a limit took at some server."""
        places = [(log, at) for log, first, last in ranges for at in range(first, last + 1)]
        return {self.bare[place] for place in places if place in self.bare}

    @property
    def delivered(self) -> int:
        """How many messages reached somebody."""
        return sum(len(part) for reading in self.readings.values() for part in reading.all())

    def states(self, states: Iterable[str]) -> list[Put]:
        """The puts in one of these states."""
        wanted = set(states)
        return [put for put in self.puts.values() if put.state in wanted]
