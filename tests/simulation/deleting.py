"""Operators that delete topics in a run, also topics with subscribers, and the judgement on returning messages.

    1   a server that has stored a deletion has no message that was acknowledged before it began
    2   it does not enter a log after the answer either
    3   a message put after the answer is delivered as ever, and a subscriber is told of each deletion at most once,
        of the loss of no record that it received, and that it received everything only if it did
    4   in the end all proxies and servers know the same deletions

The operator asks each proxy, as the client does, and continues after faults of any process. A put during a deletion may
be on either side of it. Sinks, readers of ranges, seekers and changes of settings are not in these runs: their own
judgement knows no topic that begins anew. Clients of the topics are not killed: a client that is killed sends finished
puts of its outbox again, and after a deletion they are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from pubsub.client.core.loss_reports import DELETED_AFTER_ALL
from pubsub.errors import DataLoss, StoreDamaged
from pubsub.messenger.framing import pack
from pubsub.protocol import Outcome, Status, encode
from pubsub.protocol.deletions import Delete
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate
from tests.simulation.purged import COPIES, lost_range, read_all
from tests.simulation.tasks import Task, Then, _Asked

if TYPE_CHECKING:
    from tests.simulation.cast import Cast
    from tests.simulation.history import History, Put, Reading
    from tests.simulation.members import Server
    from tests.simulation.world import Host, World

Ends = Mapping[str, Sequence[float]]

DELETING = 0.08
"""Share of runs with deletions."""

CUT_OFF = ("client power", "reopen", "close midway")
"""Faults that cut a client off. Its outbox then sends finished puts again."""

EXCUSES = frozenset({*COPIES, *CUT_OFF, "twin", "wrong clock", "clock"}) - {"lose routes"}
"""Faults with losses of their own, and those that cut a client off."""

SOME = {
    "move": 1.0,
    "kill": 0.5,
    "churn": 1.0,
    "pause": 0.5,
    "kill in commit": 0.5,
    "outage": 0.3,
    "cut": 2.0,
    "one way": 1.0,
}
"""Faults, half of which come in a run made for deletions."""


def deleting(fate: Fate, seed: int) -> Fate:
    """Have some runs delete topics; drawn apart, so that the other runs stay the same."""
    random = Random(f"deletions of {seed}")
    others: tuple[object, ...] = (
        fate.configurers,
        fate.seekers,
        fate.sinks,
        fate.ranges,
        fate.purgers,
        fate.families,
        fate.callers,
    )
    others += fate.older, fate.older_members, fate.tight, fate.retries, fate.latest, fate.quotas
    if random.random() >= DELETING or any(others):
        return fate
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in EXCUSES}
    fate.deleters = random.choice((1, 1, 2))
    return fate


def deleted_split(seed: int) -> Fate:
    """A topic that two servers hold again and again, moved and deleted, with late and doubled messages."""
    random = Random(f"deletions {seed}")
    return Fate(
        servers=random.choice((2, 2, 3)),
        proxies=random.choice((2, 2, 3)),
        clients=random.choice((2, 3)),
        topics=1,
        seconds=random.choice((6.0, 10.0)),
        think=random.choice((0.02, 0.1)),
        divided=random.random() < 0.6,
        delay=random.choice((0.002, 0.05)),
        late=random.choice((0.0, 0.02, 0.1)),
        duplicate=random.choice((0.0, 0.1)),
        skew=0.1,
        heartbeat=0.2,
        deleters=random.choice((1, 1, 2)),
        faults=drawn_faults(
            random,
            some={
                "move": 1.0,
                "kill": 0.5,
                "churn": 1.0,
                "pause": 0.5,
                "kill in commit": 0.5,
                "outage": 0.3,
                "cut": 2.0,
                "one way": 1.0,
            },
            detour=random.choice((0.3, 1.0)),
        ),
    )


@dataclass
class Deletion:
    """A deletion.

    Attributes:
        began: time of its first request; answered: time of the last answer that it needs.
    """

    topic: str
    began: float
    number: int = 0
    answered: float | None = None

    def is_after(self, time: float, topic: str) -> bool:
        """Return True if it may have ended a subscription of a topic that was confirmed at a time."""
        return self.topic == topic and (self.answered is None or self.answered > time)


@dataclass
class Told:
    """A subscriber that was told of a deletion.

    Attributes:
        since: time of the confirmation of its subscription.
        began: time at which the deletion began.
    """

    reading: Reading
    error: DataLoss
    since: float
    began: float

    def judge(self, history: History) -> None:
        """Object if it was told that it received everything and it did not, or of the loss of received records."""
        topic, name = self.reading.topic, f"{self.reading.client} on {self.reading.topic}"
        seen = [one for part in self.reading.all() for one in part]
        if self.error.reason == DELETED_AFTER_ALL and history.alone:  # Another holder may have messages of its own.
            bodies = {one.body for one in seen}
            passed = {body for _, one, body in history.passed | history.expired if one == topic}
            puts = [put for put in history.puts.values() if put.topic == topic and not put.due]
            due = [put for put in puts if put.invoked > self.since and (put.acked_at or self.began) < self.began]
            lacks = [put.body for put in due if put.body not in bodies | passed]
            if len(lacks) > self.reading.excused:
                history.violate(f"{name} was told that it had received everything, and lacks {lacks[0]}")
        elif self.error.first:
            log, first, _ = lost_range(self.error)
            for one in seen:
                if one.id.startswith(f"{log}.") and int(one.id.partition(".")[2]) >= first:
                    history.violate(f"{name} was told of the loss of {one.id}, and had received it")


def note_told(history: History, reading: Reading, error: DataLoss) -> None:
    """Record that a subscriber is told of a deletion."""
    since = reading.promised if reading.confirmed is None else reading.confirmed
    if since is None:
        return
    after = [one for one in history.deletions if one.is_after(since, reading.topic)]
    if after:
        history.told_deletions.append(Told(reading, error, since, after[0].began))


class _OneProxy:
    """The tries of a request to one proxy alone; in the form of `Retries`."""

    patience = 0.3

    def __init__(self, proxy: int) -> None:
        self.proxy = proxy

    def fail(self) -> None:
        """Try the same proxy again."""


class Deleter(Task):
    """Deletes a topic from time to time."""

    def __init__(
        self,
        world: World,
        host: Host,
        proxies: tuple[str, ...],
        history: History,
        topic: str,
        look: Callable[[], None],
    ) -> None:
        super().__init__(world, host, proxies, history, topic)
        self._look = look
        self.think = world.random.choice((0.3, 1.0))
        self.present: Deletion | None = None

    def go(self) -> None:
        self._look()
        if self.present is not None:
            self._delete()
        elif self.finishing:
            self.finished = True
        else:
            self._ask_all(Delete(self.name, self.topic), partial(self._numbered, self.world.now))

    def _ask_all(self, request: Delete, then: Callable[[list[Status]], None]) -> None:
        answers: dict[int, Status] = {}

        def answered(proxy: int, status: Status) -> None:
            answers[proxy] = status
            if len(answers) == len(self._peers):
                then(list(answers.values()))

        for proxy in range(len(self._peers)):
            self._ask_one(Delete(request.sender, request.topic, request.number), proxy, partial(answered, proxy))

    def _ask_one(self, request: Delete, proxy: int, then: Then) -> None:
        self.operations += 1
        self._send(_Asked(request, then, _OneProxy(proxy)))  # type: ignore[arg-type]

    def _send(self, asked: _Asked) -> None:
        """Send to the proxy of the request; a DELETE names no log."""
        self._token += 1
        self._asked[self._token] = asked
        asked.again_at = self.host.monotonic() + asked.retries.patience
        head, _ = encode(asked.request)
        self.world.network.to_router(self._peers[asked.retries.proxy], (pack(0, self._token, 0) + head,))

    def _numbered(self, began: float, answers: list[Status]) -> None:
        if self._refused(answers):
            return
        number = max(max(status.number + 1, status.stamp) for status in answers)
        self.present = Deletion(self.topic, began, number)
        self.history.deletions.append(self.present)
        self.history.give_up(self.topic, float("inf"), losses=1)
        self._delete()

    def _delete(self) -> None:
        assert self.present is not None
        self._ask_all(Delete(self.name, self.topic, self.present.number), self._deleted)

    def _deleted(self, answers: list[Status]) -> None:
        assert self.present is not None
        if self._refused(answers):
            return
        later = max((status.number for status in answers if status.outcome is Outcome.SUPERSEDED), default=0)
        if later:
            self.present.number = later
            self._delete()
            return
        self.present.answered = self.world.now
        for pause in (0.0, 0.1, 0.3):
            self.soon(pause, self._look)
        self.history.give_up(self.topic, self.world.now)
        if any(one.topic == self.topic and one.answered is None for one in self.history.deletions):
            self.history.give_up(self.topic, float("inf"))
        self.world.note(f"{self.name} has deleted {self.topic}: {self.present.number}")
        self.history.counters["topics that an operator deleted"] += 1
        self.present = None
        self.soon(self.world.random.expovariate(1 / self.think), self.go)

    def _refused(self, answers: list[Status]) -> bool:
        bad = [status for status in answers if status.outcome not in {Outcome.SUCCESS, Outcome.SUPERSEDED}]
        if bad:
            self.history.violate(f"{self.name} cannot delete {self.topic}: {bad[0].outcome} {bad[0].reason}")
            self.finished = True
        return bool(bad)

    def settled(self) -> str:
        """Return the unfinished work as text, "" if there is none."""
        return "" if self.finished else f"{self.name} has not finished to delete {self.topic}"


def open_end(cast: Cast) -> str:
    """Return the difference between the deletions that proxies and servers know; "" if there is none."""
    if not cast.deleters:
        return ""
    known: dict[str, str] = {node.name: node.core.deletions.known.digest for node in cast.voters}
    known |= {server.name: server.core.state.deletions.digest for server in cast.servers}
    return f"deletions are known differently: {known}" if len(set(known.values())) > 1 else ""


def look(history: History, servers: Iterable[Server], ends: Ends, topic: str) -> None:
    """Say which messages servers have that were acknowledged before a deletion which they have stored."""
    firm = _Firm(ends)
    for server in servers:
        held = server.core.state.topics.get(topic) if server.alive else None
        if held is None:
            continue
        number = server.core.state.deletions.number(topic)
        known = [one.began for one in history.deletions if one.topic == topic and one.number <= number]
        try:
            bodies, _ = read_all(held, server.core.state)
        except StoreDamaged:
            continue
        for body in sorted(bodies & history.puts.keys()):
            if firm.before(history.puts[body], max(known, default=-1.0)):
                history.violate(f"{body} of {topic} is at {server.name}, though it was deleted")


def judge(history: History, servers: Sequence[Server], ends: Ends) -> None:
    """Say which deleted messages are back.

    Args:
        ends: by client, the times at which its process ended.
    """
    for topic in sorted({one.topic for one in history.deletions}):
        look(history, servers, ends, topic)
    for told in history.told_deletions:
        told.judge(history)
    firm = _Firm(ends)
    for reading in history.readings.values():
        done = [one for one in history.deletions if one.topic == reading.topic and one.answered is not None]
        for seen in [seen for part in reading.all() for seen in part if seen.body in history.puts]:
            put = history.puts[seen.body]
            past = [one for one in done if (one.answered or 0) + 2 * history.skew < seen.stamp]
            if firm.before(put, max((one.began for one in past), default=-1.0)) and not put.due:
                history.violate(f"{reading.client} got {put.body}, which was acknowledged, deleted, and stored again")


class _Firm:
    """The puts that no outbox sends again.

    A client deletes finished puts from its outbox with a later commit. A client that ends before sends them again.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def before(self, put: Put, began: float) -> bool:
        """Return True if a put was acknowledged before this time, and its client has not ended since."""
        if put.acked_at is None or put.acked_at >= began:
            return False
        return not any(end >= put.acked_at for end in self._ends.get(put.source[0], ()))
