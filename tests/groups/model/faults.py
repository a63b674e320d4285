"""Faults of servers, and operators: silence, restarts, failovers, moves, releases, ends, restored copies."""

from __future__ import annotations

from copy import deepcopy

from tests.groups.model.group import Span, cut, larger
from tests.groups.model.holder import Holder
from tests.groups.model.messages import Content, MemberID
from tests.groups.model.network import LateRequest, Network
from tests.groups.model.topic import Topic


class Faults(Network):
    """All that happens to servers."""

    operated: bool
    failing: bool
    restoring: bool
    ending: bool
    retaining: bool
    released: set[tuple[int, Content]]
    lost: set[Content]
    ends: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.backup: tuple[Holder, Topic] | None = None
        self.away: tuple[Holder, Topic] | None = None

    def draw_number(self) -> int:
        raise NotImplementedError

    def forget_closed(self) -> None:
        """Expect no more that members who closed have nothing."""
        raise NotImplementedError

    def era(self, number: int) -> int:
        raise NotImplementedError

    def operate(self) -> None:
        """Let one thing happen at a server."""
        chance, server = self.random.random(), self.random.choice(self.servers)
        topic = server.serving
        if chance < 0.35:
            self._at_a_member(server, chance)
        elif chance < 0.4:
            server.forget_memory()
        elif chance < 0.47 and self.failing:
            self.fail_over(server)
        elif chance < 0.5:
            self.deposed = None
        elif chance < 0.58 and server.live is not None and topic is not None:
            server.redrive(topic)
            if server.live.suspended:
                self.figures["resumed"] += 1
                server.resume(topic, skip=self.random.random() < 0.2)
        elif chance < 0.62:
            sole = self.sole()
            if self.retaining and sole is not None and sole.topic is not None and self.away is None:
                before = sum(sole.topic.low.values())
                sole.topic.retain(self.rules)
                self.figures["let go of"] += sum(sole.topic.low.values()) - before
        elif chance < 0.7:
            self._end_or_restore(server)
        elif self.split and chance < 0.87:
            self.merge()
        elif self.split and self.random.random() < 0.5:
            self._move()

    def _at_a_member(self, server: Holder, chance: float) -> None:
        group, topic = server.live, server.serving
        keys = list(group.members) if group is not None else []
        if topic is None or not keys:
            return
        if chance < 0.2:
            server.silent(self.random.choice([key for key, some in server.offers.items() if some] or keys))
        elif chance < 0.25 and self.operated:
            server.release(topic, self.random.choice(keys))
        elif chance < 0.3:
            server.copy_doubted(topic, self.random.choice(keys))
        else:
            self._forget(server, topic, self.random.choice(keys))

    def _forget(self, server: Holder, topic: Topic, key: MemberID) -> None:
        senders = {server.key(one.request.sender) for one in self.late if isinstance(one, LateRequest)}
        if key not in senders or not self.rules["under_way"]:
            server.forget(topic, key)

    # Processes and stores

    def fail_over(self, server: Holder) -> None:
        """Let the standby serve; the deposed primary goes on for a while without knowing."""
        if server.live is None or server.topic is None:
            return
        self.figures["failovers"] += 1
        self.deposed = type(server)(self.rules, self.random, lambda *_: None)
        self.deposed.topic, self.deposed.offers = deepcopy(server.topic), deepcopy(server.offers)
        server.forget_memory()
        if not self.rules["failover"]:
            for row in server.live.members.values():
                held = list(row.held)
                row.held.clear()
                for position in held:
                    server.topic.give_back(position)

    def _end_or_restore(self, server: Holder) -> None:
        draw = self.random.random()
        group, topic = server.live, server.serving
        if self.away is not None:
            self.come_back()
        elif group is None or topic is None:
            return
        elif self.restoring and (draw < 0.5 or self.backup is None):
            self.backup = (server, deepcopy(topic))
        elif self.restoring and self.backup is not None and self.backup[0] is server:
            self.restore(server, self.backup[1])
        elif self.ending and draw < 0.7:
            self.figures["ends"] += 1
            self.ends.append(self.draw_number())
            server.end(topic, self.ends[-1])
            self.backup = None
        elif self.ending and self.split:
            self.abandon(server, topic)

    def abandon(self, server: Holder, topic: Topic) -> None:
        """Give a server up that is away; the group is made anew elsewhere."""
        self.figures["abandoned"] += 1
        self.away, self.backup, self.deposed = (server, topic), None, None
        server.topic = None
        server.forget_memory()
        self.ends.append(0)
        self.late = [one for one in self.late if not isinstance(one, LateRequest)]
        self.forget_closed()

    def come_back(self) -> None:
        if self.away is None:
            return
        server, topic = self.away
        self.away = None
        for (
            log,
            records,
        ) in topic.logs.items():  # A group that was made meanwhile gets no such rows.
            self.lost |= {record.content for record in records[: topic.low[log] - 1]}
        if server.topic is None:
            server.topic = topic
        else:
            server.topic.merge(topic, self.rules)
            server.forget_memory()

    def restore(self, server: Holder, copy: Topic) -> None:
        """Put an older copy of a store back."""
        original, self.backup, self.deposed = server.topic, None, None
        if original is None or original.own.number != copy.own.number or copy.own.ended:
            return
        self.figures["restored"] += 1
        self.lost |= {record.content for log in original.logs.values() for record in log}
        self.lost -= {record.content for log in copy.logs.values() for record in log}
        self.logs += 1
        end, tail = copy.end, Span(f"L{self.logs}", 1)
        for part in copy.own.parts:
            part.spans = [*cut(part.spans, copy.open, end), tail]
        copy.history = [*cut(copy.history, copy.open, end), tail]
        copy.open = tail.log
        copy.logs[tail.log], copy.low[tail.log] = [], 1
        copy.last = larger(copy.last, original.last)
        open_ = [position for n in range(len(copy.own.parts)) for position in copy.waiting(n)]
        open_ += [*copy.own.claimed(), *copy.own.dead]
        era = self.era(copy.own.number)
        self.released |= {(era, copy.record(position).content) for position in open_}
        server.topic = copy
        server.suspend(copy)
        self.forget_closed()

    # Moves

    def _move(self) -> None:
        owners = [server for server in self.servers if server.serving is not None]
        if owners:
            giver = self.random.choice(owners)
            receiver = 1 - self.servers.index(giver)
            if self.servers[receiver].to is None:
                giver.to = receiver

    def merge(self) -> None:
        """Let each move that has begun end."""
        for server in self.servers:
            if server.to is None or server.topic is None:
                continue
            receiver = self.servers[server.to]
            (receiver.topic or self.begin_topic(receiver)).merge(server.topic, self.rules)
            self.figures["merges"] += 1
            server.topic, server.to = None, None
            server.forget_memory()
            receiver.forget_memory()
