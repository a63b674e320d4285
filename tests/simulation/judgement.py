"""The judgement on one run: the open work after the end of the faults, and the violations found at the end."""

from __future__ import annotations

from tests.simulation import compacting, configuring, deleting, retaining, seeking
from tests.simulation.applications.application import Application
from tests.simulation.cast import Cast
from tests.simulation.pairs import Pairs


class Judgement:
    """Looks at everybody of one run."""

    def __init__(self, cast: Cast, pairs: Pairs) -> None:
        self.cast, self.pairs, self.history = cast, pairs, cast.history

    # Open work

    def open_end(self) -> str:
        """The unsettled parts, "" if there are none."""
        absence = self.cast.audit.absence
        for node in self.cast.nodes:
            if not node.alive and node is not absence.absent:
                return f"{node.name} does not run"
        if what := absence.open_end():
            return what
        return self.pairs.open_end() or deleting.open_end(self.cast) or self._open_topics() or self._open_users()

    def _open_topics(self) -> str:
        """Each topic is held by one server, as all proxies know."""
        servers = self.cast.servers
        for topic in sorted({name for server in servers for name in server.core.state.topics}):
            holders = [server.name for server in servers if topic in server.core.state.topics]
            if len(holders) > 1:
                return f"{topic} is held by {' and '.join(holders)}"
            if self.cast.server(holders[0]).core.state.topics[topic].frozen:
                return f"{topic} is frozen at {holders[0]}"
            if self.cast.server(holders[0]).core.state.topics[topic].delayed:
                return f"{topic} has delayed messages at {holders[0]}"
            for proxy in self.cast.proxies:
                known = [holder.id for holder in proxy.core.table.holders(topic)]
                if known != holders:
                    return f"{topic} is held by {holders[0]}, and {proxy.name} believes by {known}"
        return ""

    def _open_users(self) -> str:
        """Publishers have flushed, and readers have all messages."""
        cast = self.cast
        operators = *cast.configurers, *cast.purgers, *cast.deleters, *cast.creators, *cast.seekers, *cast.lookers
        readers = *cast.families, *cast.tasks, *cast.talkers, *cast.tables
        for party in (*cast.applications, *cast.calls.parties, *readers, *operators):
            if what := party.settled():
                return what
        return cast.audit.open_end() if cast.workers else ""

    # Violations

    def judge(self) -> list[str]:
        """End the clients, and say all that was found in the whole run."""
        for replica in self.cast.replicas:
            replica.end()
        for application in self.cast.applications:
            application.node.end("over")
            application.records.collect()
            application.records.settle_letters()
            self._check_left(application)
        self.cast.calls.judge()
        for family in self.cast.families:
            family.judge()
            self._add(family.found)
        self.cast.audit.judge()
        for client in (*self.cast.clients, *(usurper.node for usurper in self.cast.usurpers)):
            self._add(client.found)
        self._add(list(self.pairs.differences()))
        compacting.judge(self.cast.compacted, self.cast.configured, self.cast.servers, self.history)
        for table in self.cast.tables:
            table.judge(self.cast.compacted)
        if self.cast.fate.letters:
            self.cast.letters.judge(self.cast.applications, self.cast.servers, self.history)
        if "defaults" in self.cast.fate.faults:
            retaining.judge_defaults(self.cast, self.history)
        configuring.judge(self.cast.configured, self.cast.servers, self.history, "flip" in self.cast.fate.faults)
        for server in self.cast.servers:
            server.compare()
            self._add(server.found)
        if len(self.cast.servers) == 1:
            for twin in self.cast.twins:
                twin.judge()
        deleting.judge(self.history, self.cast.servers, self.cast.ends)
        self.history.judge()
        cast = self.cast
        seeking.judge(cast.seekers, cast.lookers, cast.configured, cast.servers, cast.fate.skew)
        return self.history.violations

    def _add(self, found: list[str]) -> None:
        for line in found:
            self.history.violate(line)

    def _check_left(self, application: Application) -> None:
        """A client that unsubscribed is subscribed nowhere."""
        for server in self.cast.servers:
            for topic in server.core.state.topics.values():
                subscription = topic.subscriptions.get(application.name)
                reading = self.history.readings.get((application.name, topic.name))
                left = reading is not None and not reading.wanted and reading.asked is not None
                if (
                    left
                    and topic.name in application.subscriber.drained
                    and subscription is not None
                    and subscription.on
                    and not (application.program.life or application.program.replicas)
                    and topic.name not in self.history.given_up  # It may have left an abandoned part.
                ):
                    self.history.violate(f"{application.name} left {topic.name}, and is subscribed at {server.name}")
