"""Clients that subscribe to all topics by a pattern, end that, and begin anew; and the judgement on their messages.

    1   a message that was put after a subscription was answered is received, if the pattern is on in the end
    2   within one subscription no message comes twice, and a publisher's messages come in the order of its puts
    3   no message comes that was acknowledged and stored long before the subscription was asked for
    4   no server holds an entry of an ended pattern in the end

Topics begin during the run, also at several servers at once (*topic begins twice*: runs that are divided).
Proxies lose their files (*lose routes*), and ends come late. Faults with losses of their own are not in these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from pubsub.client.core.message import Message
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import PubsubError
from pubsub.server.topic.consumers import pattern_key
from tests.simulation.clients import ClientNode
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate
from tests.simulation.history import ACKED, History
from tests.simulation.world import EPOCH, Host, World

if TYPE_CHECKING:
    from tests.simulation.members import Server

FAMILIES = 0.08
"""Share of runs with patterns."""

PATTERN = ">"
EXCUSES = frozenset({"abandon", "put back", "flip", "old copy", "copy", "empty", "twin", "replace"})
"""Faults after which messages may be lost, or come again."""


def families(fate: Fate, seed: int) -> Fate:
    """Have some runs subscribe to a pattern; drawn apart, so that the others stay what they were.

    These runs go without the faults that excuse losses.
    """
    random = Random(f"families of {seed}")
    excused = fate.older or fate.older_members or fate.drops or fate.purgers or fate.tight
    if random.random() >= FAMILIES or excused:
        return fate
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in EXCUSES}
    fate.families = random.choice((1, 1, 2))
    return fate


def families_split(seed: int) -> Fate:
    """Topics that begin one after the other, also at two servers at once, under clients with a pattern."""
    random = Random(f"families {seed}")
    return Fate(
        servers=2,
        proxies=random.choice((2, 2, 3)),
        clients=2,
        topics=random.choice((3, 12)),
        seconds=random.choice((6.0, 10.0)),
        think=random.choice((0.02, 0.1)),
        divided=True,
        delay=random.choice((0.002, 0.05)),
        skew=0.1,
        heartbeat=0.2,
        late=random.choice((0.0, 0.02)),
        families=random.choice((1, 2, 3)),
        faults=drawn_faults(
            random,
            some={"move": 1.0, "kill": 0.5, "churn": 1.0, "pause": 0.5, "lose routes": 0.5, "outage": 0.3},
            detour=random.choice((0.5, 1.5)),
        ),
    )


class Family(ClientNode):
    """A client with a pattern, and its application.

    Attributes:
        wish: number of its present wish; on: whether that is to be subscribed.
        asked, answered: times of the request and of the first answer; None: not yet.
        got: by wish the messages, in their order.
    """

    def __init__(
        self,
        world: World,
        host: Host,
        proxies: tuple[str, ...],
        history: History,
        servers: Callable[[], Iterable[Server]],
        *,
        power_safe: bool,
    ) -> None:
        super().__init__(world, host, proxies, power_safe=power_safe)
        self.history, self.servers = history, servers
        self.wish, self.on = 0, False
        self.asked = 0.0
        self.answered: float | None = None
        self.finishing = False
        self._empty = 0
        self.on_start = self._started

    def _started(self) -> None:
        self.session.store.db.execute(
            "create table if not exists family (n integer primary key, wish, topic, body, stamp)"
        )
        self.later(self.world.random.random() * 0.3, self._step)

    def _step(self) -> None:
        if self.answered is None or (self.world.random.random() < 0.03 and not self.finishing):
            self._ask()
        elif self.on:
            flow = self.processing.process(PATTERN, self._handle, 0.4, 20)
            self.call(flow, self._processed)
        else:
            self.later(0.2, self._step)

    def _ask(self) -> None:
        """Repeat an unanswered wish, or turn it round."""
        if self.answered is not None or not self.wish:
            self.wish, self.on, self.answered = self.wish + 1, not self.on, None
            self.asked = self.world.now
        self.call(self.calls.subscribing.intend(PATTERN, self.on, 1.0), self._confirmed)

    def _confirmed(self, result: Any, error: Exception | None) -> None:
        if error is None:
            self.answered = self.world.now
        self.later(0.05, self._step)

    def _processed(self, taken: int | None, error: Exception | None) -> None:
        self._empty = self._empty + 1 if error is None and not taken else 0
        if error is not None and not isinstance(error, PubsubError):
            self.history.violate(f"{self.name}: {error!r}")
        self.later(self.world.random.random() * self.world.fate.think, self._step)

    def _handle(self, message: Message, transaction: Transaction) -> None:
        row = (self.wish, message.topic, message.body.decode(), message.stamp)
        transaction.execute("insert into family (wish, topic, body, stamp) values (?, ?, ?, ?)", row)

    # The end

    def settled(self) -> str:
        """The open work, "" if there is none."""
        if self.answered is None:
            return f"{self.name} has no answer about its pattern"
        for server in self.servers():
            for topic in server.core.state.topics.values():
                entry = topic.subscriptions.get(pattern_key(self.client, PATTERN))
                if not self.on and entry is not None and entry.on:
                    return f"{self.name} has ended its pattern, and {server.name} holds {topic.name} for it"
                joined = self.session.core.subscriptions.get(topic.name)
                if self.on and topic.name[0] == "t" and (joined is None or not joined.intent.subscribed):
                    return f"{self.name} has not joined {topic.name}"
        return f"{self.name} takes messages" if self.on and self._empty < 2 else ""

    def judge(self) -> None:
        """Name the fault; call it while the process runs."""
        puts = self.history.puts
        got: dict[int, dict[tuple[str, str], float]] = {}
        last: dict[tuple[int, str, Any], int] = {}
        for wish, topic, body, stamp in self.session.store.db.execute(
            "select wish, topic, body, stamp from family order by n"
        ):
            mine, put = got.setdefault(wish, {}), puts.get(body)
            if (topic, body) in mine:
                self.history.violate(f"{self.name} got {body} of {topic} twice by its pattern")
            mine[topic, body] = stamp
            if put is not None and not put.due:  # Delayed messages have no order.
                place = wish, topic, put.source
                if put.index < last.get(place, -1):
                    self.history.violate(f"{self.name} got {body} of {topic} out of order by its pattern")
                last[place] = put.index
                self._check_early(put.acked_at, stamp / 1e6 - EPOCH, wish, body)
        if self.on and self.answered is not None:
            for put in puts.values():
                due = put.state == ACKED and put.invoked > self.answered and put.topic[0] == "t"
                passed = (self.client, put.topic, put.body) in self.history.passed
                names = self.client, pattern_key(self.client, PATTERN)
                passed = passed or any((name, put.topic, put.body) in self.history.expired for name in names)
                if due and not passed and (put.topic, put.body) not in got.get(self.wish, {}):
                    self.history.violate(f"{self.name} lost {put.body} of {put.topic}, put after its pattern counted")

    def _check_early(self, acked_at: float | None, stored_at: float, wish: int, body: str) -> None:
        """Check the time of a message; a copy of a put that a cut link held for long may be stored in another log."""
        since = self.asked - 2 * self.world.fate.skew - 3.0
        if acked_at is not None and wish == self.wish and acked_at < since and stored_at < since:
            self.history.violate(f"{self.name} got {body} from long before its pattern")
