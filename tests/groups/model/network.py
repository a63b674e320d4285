"""The way of messages: lost, late, doubled, overtaken, and to a holder without the group."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

from tests.groups.model.holder import Holder
from tests.groups.model.member import Member
from tests.groups.model.messages import Answer, Record, Request
from tests.groups.model.rules import Rules
from tests.groups.model.topic import Topic


class LateRequest(NamedTuple):
    server: Holder
    request: Request
    member: Member


class LateAnswer(NamedTuple):
    answer: Answer
    member: Member


class Network:
    """Two servers, and the way to them."""

    random: Random
    rules: Rules
    servers: list[Holder]
    figures: Counter[str]
    trouble: float
    split: float
    keyed: bool
    healthy = False
    clock = 0
    logs = 0

    def __init__(self) -> None:
        self.late: list[LateRequest | LateAnswer] = []
        self.deposed: Holder | None = None

    def say(self, *what: object) -> None:
        """Print an event, if this is asked for."""

    def object_to(self, kind: str, what: object) -> None:
        raise NotImplementedError

    # To a server

    def begin_topic(self, server: Holder) -> Topic:
        self.logs += 1
        server.topic = Topic(f"L{self.logs}")
        return server.topic

    def holders(self) -> list[Holder]:
        return [server for server in self.servers if server.topic is not None]

    def sole(self) -> Holder | None:
        """Return the sole owner of the topic."""
        holders = self.holders()
        return holders[0] if len(holders) == 1 and holders[0].to is None else None

    def route(self, avoid: frozenset[str]) -> Holder:
        """Return the server that a proxy chooses for a member: a holder, and rather one that is not avoided."""
        serving = [server for server in self.servers if server.serving is not None]
        if not self.healthy and (not serving or self.random.random() < self.split):
            return self.random.choice(self.servers)
        rather = [server for server in serving if server.topic and server.topic.open not in avoid]
        return (rather or serving)[0]

    def put(self, record: Record, previous: int) -> int | None:
        """Put a record and return the last counter that was taken; None without an answer."""
        server = self.holders()[0] if self.healthy else self._route_put()
        if server.to is not None:
            return None
        topic = server.topic or self.begin_topic(server)
        last = topic.last.get(record.publisher, 0)
        if record.counter > last:
            if previous > last:
                return None
            topic.append(record)
            self.answer_waiting()
        return record.counter if self.healthy or self.random.random() > self.trouble else None

    def _route_put(self) -> Holder:
        serving = [server for server in self.servers if server.serving is not None]
        if not serving or self.random.random() < self.split:
            return self.random.choice(self.servers)
        return self.random.choice([server for server in serving if server.live] or serving)

    def send(self, request: Request, member: Member) -> None:
        """Send a member's request; its answer comes soon, late or never."""
        if self.healthy:
            self.deliver(self.serve(self.route(request.avoid), request), member)
            return
        server, fate = self.route(request.avoid), self.random.random()
        if self.deposed is not None and self.random.random() < 0.5:
            self._ask_deposed(self.deposed, request, member)
            return
        if fate < self.trouble:
            self.late.append(LateRequest(server, request, member))
            return
        if fate < 1.3 * self.trouble:
            return
        if fate < 1.6 * self.trouble:
            self.late.append(LateRequest(server, request, member))
        self.answer(self.serve(server, request), member)

    def _ask_deposed(self, server: Holder, request: Request, member: Member) -> None:
        answer = server.handle(request, self.clock, sole=False, keyed=self.keyed)
        if not self.rules["deposed"]:
            self.answer(answer, member)

    def serve(self, server: Holder, request: Request) -> Answer | None:
        """Let a server handle a request; perhaps it ends before the commit."""
        raise NotImplementedError

    # To a member

    def answer(self, answer: Answer | None, member: Member) -> None:
        if answer is None:
            return
        fate = self.random.random()
        if fate < 0.7 * self.trouble:
            self.late.append(LateAnswer(answer, member))
        elif self.healthy or fate > self.trouble:
            self.deliver(answer, member)
            if fate > 1 - 0.3 * self.trouble:
                self.late.append(LateAnswer(answer, member))

    def answer_waiting(self) -> None:
        """Let the servers answer the requests that wait."""
        for server in self.servers:
            for work, answer in server.answer_waiting(self.clock):
                self.figures["waited"] += 1
                member = self.member(work)
                if answer.held.keys() - work.keep and (not member.up or member.process != work.process):
                    self.object_to("claimed for a process that ended", work.sender)
                self.answer(answer, member)

    def member(self, request: Request) -> Member:
        raise NotImplementedError

    def deliver(self, answer: Answer | None, member: Member) -> None:
        if answer is not None:
            member.receive(answer)

    def deliver_late(self) -> None:
        what = self.late.pop(self.random.randrange(len(self.late)))
        if isinstance(what, LateRequest):
            self.answer(self.serve(what.server, what.request), what.member)
        else:
            self.deliver(what.answer, what.member)
