"""Faults of members of consumer groups: their processes, directories and links."""

from __future__ import annotations

from functools import partial

from tests.simulation.cast import Cast
from tests.simulation.database.plan import KILLED_LATE
from tests.simulation.faults.kinds import Fault
from tests.simulation.grouping.worker import CLAIMED, COMMITTED, IN_HANDLER, Worker
from tests.simulation.supervisor import Supervisor


class Groups:
    """The faults of the members of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "member killed in handler": partial(self.killed, IN_HANDLER),
            "member killed between claim and commit": partial(self.killed, CLAIMED),
            "member killed between commit and done": partial(self.killed, COMMITTED),
            "member power cut": self.power_cut,
            "member power cut when told": self.power_cut_when_told,
            "member directory lost": self.directory_lost,
            "member paused": self.paused,
            "member closed": self.closed,
            "member cut off": self.cut_off,
            "work late": self.work_late,
            "member loses a commit": partial(self.loses_commit, "never", "done", "late"),
            KILLED_LATE: partial(self.loses_commit, "late, killed"),
        }

    def _any(self) -> Worker:
        return self.random.choice(self.cast.workers)

    def killed(self, place: str) -> None:
        """A member is killed at the next record that comes to this place."""
        self._any().kill_at = place

    def loses_commit(self, *endings: str) -> None:
        """The next commit of a member in its database gets no answer, and the member may be killed meanwhile."""
        worker = self._any()
        if worker.database:
            self.world.databases.endings[worker.name] = self.random.choice(endings)

    def power_cut(self) -> None:
        """A member's host loses power."""
        worker = self._any()
        worker.lose_power()
        self.supervisor.restart(worker)

    def power_cut_when_told(self) -> None:
        """A member's host loses power just after the member has told that something is done."""
        self._any().when_told = self._cut

    def _cut(self, worker: Worker) -> None:
        if worker.alive and not self.world.over:
            worker.lose_power()
            self.supervisor.restart(worker)

    def directory_lost(self) -> None:
        """A member's disk is lost, and it begins anew."""
        worker = self._any()
        if worker.database or worker.blocked or not worker.life or not hasattr(worker, "session"):
            return
        worker.end("killed")
        self.world.note(f"{worker.name} loses its directory")
        worker.lose_directory()
        self.supervisor.restart(worker)

    def paused(self) -> None:
        """A member is paused, mostly for longer than its liveness."""
        self._any().pause(self.world.fate.member_liveness * self.random.choice((0.5, 1.5, 3.0)))

    def closed(self) -> None:
        """A member ends in good order."""
        worker = self._any()
        if worker.alive and not worker.paused and not worker.blocked and not self.cast.crews.blocked:
            well = self._is_well()
            worker.close()
            if well and worker.closed and self._is_well():
                self._check_closed(worker)
            self.supervisor.restart(worker)

    def _is_well(self) -> bool:
        """Whether all processes run and hear each other, and each topic is whole."""
        fate, network = self.world.fate, self.world.network
        cuts = [*network.cuts.values(), *(until for until, _ in network.slow.values())]
        reached = not (fate.loss or fate.late or any(until > self.world.now for until in cuts))
        nodes = (*self.cast.voters, *self.cast.processes())
        return reached and not fate.divided and all(node.alive and not node.paused for node in nodes)

    def _check_closed(self, worker: Worker) -> None:
        for server in self.cast.servers:
            for crew in self.cast.crews.all:
                topic = server.core.state.topics.get(crew.plan.topic)
                group = topic.groups.get(crew.plan.name) if topic else None
                member = group.members.get((worker.client, worker.store_id)) if group else None
                if member is not None and member.held:
                    found = f"{list(member.pieces())!r:.100} of {crew.plan.name}"
                    self.cast.history.violate(f"{worker.name} was closed in order, and holds {found}")

    def cut_off(self) -> None:
        """A member is not heard for a while, but works on, and hears the service in some cases."""
        worker, seconds = self._any(), self.world.fate.member_liveness * self.random.choice((0.5, 2.0))
        for proxy in self.cast.proxies:
            self.world.network.cut(worker.name, proxy.name, seconds)
            if self.random.random() < 0.5:
                self.world.network.cut(proxy.name, worker.name, seconds)

    def work_late(self) -> None:
        """For a while the messages of a member, or their answers, are late."""
        worker, seconds = self._any(), 1.0 + 2.0 * self.random.random()
        for proxy in self.cast.proxies:
            ways = ((worker.name, proxy.name), (proxy.name, worker.name))
            self.world.network.clog(*self.random.choice(ways), seconds, self.random.choice((0.1, 1.0)))
