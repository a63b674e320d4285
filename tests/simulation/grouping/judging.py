"""The judgement on consumer groups: an auditor compares the tables of all members.

1   of several effects of one message all but one have the mark doubtful; without a release, an operator's or the
    policy's, there is neither a second effect nor a mark
2   each message put after the group was made has an effect once all members are back, and the operator has released
    what lost directories had claimed and redriven the dead letters
3   keyed: the messages of a publisher, or of its key, have their effects in their order, but after a dead letter,
    a release, or a store that was put back
4   no later message is answered with a record that was told as done (`record`)
5   with claim before, a first attempt without a mark is the first one of all (`worker`)
6   at the end nothing is claimed, nothing waits, and no dead letter is left; before that, others get what an absent
    member was offered, and logs let go of dead letters (`absence`)
7   a message that kills its process does so no more often than its attempts allow (`worker`)
8   a request that waits is not answered for nothing (`record`)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pubsub.protocol.group_bodies import REDELIVER
from tests.simulation.fate import Fate
from tests.simulation.grouping.absence import Absence
from tests.simulation.grouping.plan import is_poison
from tests.simulation.grouping.record import FOR_NOTHING, Crew, Crews, Effect
from tests.simulation.history import ACKED, Put

if TYPE_CHECKING:
    from tests.simulation.grouping.overseer import Overseer
    from tests.simulation.grouping.worker import Worker
    from tests.simulation.members import Server

SHOWN_MAX = 3
FOR_NOTHING_LEAST = 20
"""Answers for nothing that a run may have besides one for each fourth put."""


class Audit:
    """The auditor of a run's groups."""

    def __init__(
        self, crews: Crews, workers: list[Worker], overseers: list[Overseer], servers: list[Server], fate: Fate
    ) -> None:
        self.crews, self.workers, self.overseers, self.servers = crews, workers, overseers, servers
        self.history = crews.history
        self.exacting = fate.exacting
        self.absence = Absence(crews.all, workers, servers, fate)

    # Open work

    def open_end(self) -> str:
        """The unsettled parts, "" if there are none."""
        if what := self.absence.letters():
            return what
        for overseer in self.overseers:
            if what := overseer.settled():
                return what
        for crew in self.crews.all:
            if what := self._open(crew):
                return f"group {crew.plan.name} of {crew.plan.topic} {what}"
        return ""

    def _open(self, crew: Crew) -> str:
        for worker in self.workers:
            for membership in worker.memberships:
                if membership.crew is crew and not membership.joined:
                    return f"was not joined by {worker.name}"
                if membership.crew is crew and membership.empty < 2:
                    return f"gives messages to {worker.name}"
        for server in self.servers:
            topic = server.core.state.topics.get(crew.plan.topic) if server.alive else None
            group = topic.groups.get(crew.plan.name) if topic else None
            if group is not None and group.row.on:
                held = {key[0]: list(member.pieces()) for key, member in group.members.items() if member.held}
                if held:
                    return f"has claims of {held!r:.200}"
                if group.dead:
                    return f"has {group.dead} dead letters"
        if crew.resumed:
            return ""
        known = {effect.body for effect in self.effects(crew)}
        missing = sorted(put.body for put in self.expected(crew) if put.body not in known)
        return f"misses {missing[:SHOWN_MAX]} of {len(missing)}" if len(missing) > crew.lost_gets else ""

    def expected(self, crew: Crew) -> Iterable[Put]:
        """The puts that must have an effect."""
        made = crew.made
        if made is None:
            return
        for put in self.history.puts.values():
            asked = put.topic == crew.plan.topic and put.state == ACKED and put.invoked > made
            if asked and not put.ttl and not is_poison(crew.plan, put.body):
                yield put

    def effects(self, crew: Crew) -> list[Effect]:
        """All effects in a group."""
        found = list(crew.effects)
        for worker in self.workers:
            found += [effect for key, effect in worker.effects() if key == crew.key]
        return found

    # Violations

    def judge(self) -> None:
        """Name what is wrong; the members have ended."""
        for worker in self.workers:
            worker.end("over")
            for line in worker.found:
                self.history.violate(line)
        for crew in self.crews.all:
            self._judge(crew)
        self._judge_answers()
        self.history.counters.update(self.crews.counters)

    def _judge_answers(self) -> None:
        """Object if puts end the waits of members that get nothing; a loop that is undone, or a merge, may do so."""
        puts = sum(put.topic == crew.plan.topic for put in self.history.puts.values() for crew in self.crews.all)
        number = self.crews.counters[FOR_NOTHING]
        if self.exacting and number > FOR_NOTHING_LEAST + puts / 4:
            self.history.violate(f"{number} requests of members were answered for nothing, with {puts} puts")

    def _judge(self, crew: Crew) -> None:
        effects: dict[str, list[Effect]] = defaultdict(list)
        name = f"group {crew.plan.name} of {crew.plan.topic}"
        for effect in sorted(self.effects(crew), key=lambda effect: effect.turn):
            effects[effect.body].append(effect)
        self.history.counters["group effects"] += sum(map(len, effects.values()))
        marks = crew.released or crew.resumed or crew.plan.wish.on_lost == REDELIVER
        wrong = []
        for body, mine in effects.items():
            put = self.history.puts.get(body)
            if put is None or put.topic != crew.plan.topic:
                wrong.append(f"{name}: {body} was never put there")
            if crew.ended:
                continue
            if crew.cut_gets and any(effect.store == "get" for effect in mine):
                continue
            if sum(not effect.doubtful for effect in mine) > 1:
                wrong.append(f"{name}: {body} has {len(mine)} effects, untold: {mine}")
            elif len(mine) > 1:
                self.history.counters["group messages done twice, and told"] += 1
            if not marks and any(effect.doubtful for effect in mine):
                wrong.append(f"{name}: {body} was doubtful, and nothing was given up")
        if crew.plan.wish.mode == "keyed" and not crew.ended and not marks and not crew.redriven:
            wrong += self._disorder(crew, name, effects)
        for line in wrong[:SHOWN_MAX]:
            self.history.violate(line)

    def _disorder(self, crew: Crew, name: str, effects: dict[str, list[Effect]]) -> Iterable[str]:
        last: dict[tuple[object, bytes], tuple[int, str]] = {}
        order = sorted((effect for mine in effects.values() for effect in mine), key=lambda effect: effect.turn)
        for effect in order:
            put = self.history.puts.get(effect.body)
            if put is None or put.due or effect.store == "get":
                continue
            lane = put.source, put.key
            if lane in last and last[lane][0] > put.index:
                yield f"{name}: {effect.body} came after {last[lane][1]}"
            last[lane] = max(last.get(lane, (0, "")), (put.index, effect.body))
