"""Publishers and a subscriber, whose own history is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standby.model.node import Node
from tests.standby.model.rules import Answer, Request
from tests.standby.model.topic import Topic

if TYPE_CHECKING:
    from tests.standby.model.world import World


class Client(Node):
    def start(self, first: bool = False) -> None:
        self.up, self.asked, self.stopped, self.tries = True, {}, False, 0
        self.proxy = self.world.random.randrange(len(self.world.proxies))
        self.numbers = 0
        self.world.timer(self, 1 + self.world.random.randrange(8), self.step)

    def stop(self) -> None:
        self.stopped = True

    def ask(self, request: Request) -> None:
        self.numbers += 1
        self.asked[self.numbers] = self.world.end, request
        if len(self.asked) > 12:
            del self.asked[min(self.asked)]
        self.tries += 1
        if self.tries > 4:
            self.tries, self.proxy = 0, (self.proxy + 1) % len(self.world.proxies)
        self.send(f"p{self.proxy}", "request", self.numbers, request)

    def on_answer(self, source: str, number: int, answer: Answer) -> None:
        before, request = self.asked.get(number, (0, None))
        if request is None:
            return
        if answer[0] in ("taken", "subscribed", "records"):
            self.tries = 0
            if answer[-1] < before:
                self.world.object("went back", self.name, request, answer, before)
            self.world.end = max(self.world.end, answer[-1])
        if answer[0] == "behind":
            self.world.object("behind", self.name, request)
        self.take(request, answer)


class Publisher(Client):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.counter, self.previous, self.outbox, self.acked = 0, 0, [], []

    def busy(self) -> bool:
        return bool(self.outbox)

    def step(self) -> None:
        r = self.world.random
        if len(self.outbox) < 3 and r.random() > max(0.5, self.world.idle) and not self.stopped:
            self.counter += r.randrange(1, 3)
            self.outbox.append((self.counter, self.previous))
            self.previous = self.counter
        for row in self.outbox:
            if r.random() < 0.7:
                self.ask(("put", self.name, *row))
        self.world.timer(self, r.choice((4, 9, 15)), self.step)

    def take(self, request: Request, answer: Answer) -> None:
        if answer[0] != "taken":
            return
        for row in [row for row in self.outbox if row[0] <= answer[1]]:
            self.outbox.remove(row)
            self.acked.append(row[0])
            self.world.say(self.name, "has put", row[0])

    def check(self, log: list[tuple[str, int]], state: Topic) -> None:
        mine = [counter for name, counter in log if name == self.name]
        if len(set(mine)) < len(mine):
            self.world.object("doubled", self.name, mine)
        elif mine != sorted(mine):
            self.world.object("order", self.name, mine)
        if set(self.acked) - set(mine):
            self.world.object("lost", self.name, set(self.acked) - set(mine))


class Subscriber(Client):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.number, self.wants, self.settled, self.position, self.got = 0, False, True, 0, []
        self.counters = self.begun = 0

    def busy(self) -> bool:
        return not self.settled or (self.wants and self.position < self.world.end)

    def step(self) -> None:
        r = self.world.random
        if not self.settled:
            self.transmit()
        elif not self.stopped and r.random() < (0.06 if self.wants else 0.3):
            self.wants, self.settled, self.got = not self.wants, False, []
            self.transmit()
        elif self.wants:
            self.ask(("get", self.name, self.number, self.position))
        self.world.timer(self, r.choice((4, 9, 15)), self.step)

    def transmit(self) -> None:
        self.counters += 1
        self.number = self.counters
        self.ask(("sub", self.name, self.number, self.wants))

    def take(self, request: Request, answer: Answer) -> None:
        if answer[0] == "subscribed" and answer[1] == self.number and not self.settled:
            self.settled, self.position, self.begun, self.got = True, answer[2], answer[2], []
            self.world.say(self.name, "subscribed" if self.wants else "left", answer)
        elif answer[0] == "records" and self.wants and self.settled and answer[1:3] == (self.number, self.position):
            self.got += answer[3]
            self.position += len(answer[3])

    def check(self, log: list[tuple[str, int]], state: Topic) -> None:
        if not self.settled:
            return
        entry = state.subs.get(self.name)
        if self.number and (not entry or entry[:2] != (self.number, self.wants)):
            self.world.object("subscription", self.name, self.number, self.wants, entry)
        if self.wants and self.got != log[self.begun : self.position]:
            self.world.object("received", self.got, log[self.begun : self.position])
        elif self.wants and self.position < len(log):
            self.world.object("not received", self.position, len(log))
