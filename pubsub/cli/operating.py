"""Shared by the operator commands: ask proxies and servers, find a topic, and wait for a visible result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import typer

from pubsub.client.requests import Answer, NoAnswer, Proxies
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import naming_default
from pubsub.errors import NotAllowed, NotKnown, NotNow, PubsubError, ServerSilent, Unavailable
from pubsub.protocol.messages import Operate, Outcome, Report, Status

SENDER: Final = "pubsub-operator"
POLL_SECONDS: Final = 0.1
"""Pause between two looks at the proxies' reports."""

REPEAT_SECONDS: Final = 2.0
"""Interval at which an order to a server is repeated while its effect is not visible."""


class NotConfirmed(PubsubError):
    """The operator did not confirm; nothing was done."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of a topic, as a proxy reports it."""

    server: str
    store: str
    log: str


class Operator:
    """The proxies, and the servers that are connected to them.

    Args:
        patience: seconds for one answer.
        seconds: time limit until a result is visible.
    """

    def __init__(self, proxies: Proxies, patience: float, seconds: float) -> None:
        self._proxies, self.patience, self.seconds = proxies, patience, seconds

    def look(self, topic: str = "") -> View:
        """Return the proxies' present knowledge of one topic, or of all.

        Raises:
            Unavailable, KeyRefused, NotAllowed: no proxy answered.
        """
        return View(self._proxies.reports("report", SENDER, self.patience, topic))

    def server_report(self, server: str, view: View, topic: str = "") -> dict[str, Any]:
        """Return a server's own report, on one topic or on as many as fit.

        Raises:
            ServerSilent: it does not answer through any connected proxy.
        """
        through = view.proxies_of(server)
        questions = [(address, Report(SENDER, server, topic)) for address in through]
        answers = self._proxies.read_each(questions, self.patience)
        found = next((answer for answer in answers if isinstance(answer, dict)), None)
        if found is None:
            raise ServerSilent(
                f"server {server} does not answer: {'; '.join(map(str, answers)) or 'no proxy is connected to it'}"
            )
        return found

    def operate(self, target: str, view: View, action: str, **facts: Any) -> Status:
        """Send an order to a server, through the first proxy that gets an answer from it.

        Raises:
            ServerSilent: it does not answer through any connected proxy.
            NotAllowed: our key has no right to operate.
        """
        for address in view.proxies_of(target):
            (answer,) = self._proxies.ask_each([(address, Operate(SENDER, target, action, **facts))], self.patience)
            _check_allowed([answer], facts)
            if isinstance(answer, Status) and answer.outcome is not Outcome.UNAVAILABLE:
                return answer
        raise ServerSilent(f"server {target} is not connected to any proxy; start it, then repeat this command")

    def operate_all(self, action: str, **facts: Any) -> dict[str, Status | NoAnswer]:
        """Send an order to every proxy; return each answer, or the reason why there is none.

        Raises:
            NotAllowed: no proxy allows our key to operate. If only some refuse, their answers say so.
        """
        message = Operate(SENDER, "-", action, **facts)
        addresses = self._proxies.addresses
        answers = self._proxies.ask_each([(address, message) for address in addresses], self.patience)
        _check_allowed(answers, facts)
        return dict(zip(addresses, answers, strict=True))

    def wait(
        self, done: Callable[[], bool], what: str, subject: str, again: Callable[[], object] | None = None
    ) -> None:
        """Poll until `done` returns True.

        Args:
            what: name of the command, for the error.
            again: called every REPEAT_SECONDS meanwhile.

        Raises:
            Unavailable: `done` did not return True in time.
        """
        deadline = time.monotonic() + self.seconds
        repeat_at = time.monotonic() + REPEAT_SECONDS
        while not done():
            now = time.monotonic()
            if now >= deadline:
                raise Unavailable(what, subject, self.seconds, "it may still happen; repeat the command to check")
            if again is not None and now >= repeat_at:
                repeat_at = now + REPEAT_SECONDS
                again()
            time.sleep(POLL_SECONDS)


def _check_allowed(answers: Sequence[Status | NoAnswer], facts: dict[str, Any]) -> None:
    if answers and all(isinstance(answer, NoAnswer) and answer.error is NotAllowed for answer in answers):
        raise NotAllowed("operate", str(facts.get("topic", "")), str(answers[0]))


class View:
    """The proxies' knowledge at one moment.

    Attributes:
        reports: by address; a NoAnswer with the reason for a proxy that did not answer.
    """

    def __init__(self, reports: dict[str, Answer]) -> None:
        self.reports = reports

    @property
    def answered(self) -> dict[str, dict[str, Any]]:
        return {address: report for address, report in self.reports.items() if isinstance(report, dict)}

    @property
    def silent(self) -> dict[str, str]:
        """The proxies that did not answer -> the reason."""
        return {address: one.reason for address, one in self.reports.items() if isinstance(one, NoAnswer)}

    def _servers(self, server: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for address, report in self.answered.items():
            for facts in report["servers"]:
                if facts["id"] == server:
                    yield address, facts

    def away(self, server: str) -> dict[str, dict[str, Any]]:
        """Return the stores of a server (by server ID or store ID) that no proxy is connected to, with a proxy's
        report of each.

        If proxies differ, the report with the most topics counts.
        """
        found: dict[str, dict[str, Any]] = {}
        connected = set()
        for report in self.answered.values():
            for facts in report["servers"]:
                if server in {facts["id"], facts["store"]}:
                    connected |= {facts["store"]} if facts["alive"] else set()
                    if facts["topics"] >= found.get(facts["store"], facts)["topics"]:
                        found[facts["store"]] = facts
        return {store: facts for store, facts in found.items() if store not in connected}

    def proxies_of(self, server: str) -> list[str]:
        """Return the proxies that receive a server's heartbeats."""
        return [address for address, facts in self._servers(server) if facts["alive"]]

    def address_of(self, server: str) -> str:
        """Return the address at which other servers reach a server.

        Raises:
            NotKnown, ServerSilent: no proxy knows the server, or is connected to it.
        """
        if not any(True for _ in self._servers(server)):
            raise NotKnown(f"server {server} is not known to any proxy; pubsub status lists the servers")
        found = next((str(facts["address"]) for _, facts in self._servers(server) if facts["alive"]), "")
        if not found:
            raise ServerSilent(f"server {server} is not connected to any proxy; start it first")
        return found

    def addresses(self, server: str) -> set[str]:
        """Return the addresses at which other servers reached a server, connected or not."""
        return {str(facts["address"]) for _, facts in self._servers(server)} - {""}

    def address_of_store(self, store: str) -> str:
        """Return the last known address of a store's server, "" if no proxy knows it."""
        servers = (facts for report in self.answered.values() for facts in report["servers"])
        return next((str(facts["address"]) for facts in servers if facts["store"] == store), "")

    def given_up(self, topic: str, server: str) -> set[Holder]:
        """Return the holders of a topic at a server that were abandoned, as far as a proxy remembers."""
        return {
            Holder(row["server"], row["store"], row["log"])
            for report in self.answered.values()
            for row in report["abandoned"]
            if row["topic"] == topic and row["server"] == server
        }

    def doubted(self, topic: str, server: str) -> bool:
        """Return True if a server may hold a topic that it has not announced."""
        doubts = (row for report in self.answered.values() for row in report["doubts"])
        return any(row["topic"] == topic and server in row["servers"] for row in doubts)

    def live(self) -> list[str]:
        """Return the servers that are connected to any proxy."""
        servers = {facts["id"] for report in self.answered.values() for facts in report["servers"] if facts["alive"]}
        return sorted(servers)

    def draining(self, server: str) -> bool:
        return any(facts["draining"] for _, facts in self._servers(server))

    def receivers(self) -> dict[str, int]:
        """Return the connected servers that take topics, with the number of topics that each holds."""
        found: dict[str, int] = {}
        for report in self.answered.values():
            for facts in report["servers"]:
                if facts["alive"] and not self.draining(facts["id"]):
                    found[facts["id"]] = max(found.get(facts["id"], 0), facts["topics"] + facts["assigned"])
        return found

    def holders(self, topic: str) -> set[Holder]:
        """Return every holder of a topic that any proxy knows, including dead ones."""
        return {
            Holder(holder["server"], holder["store"], holder["log"])
            for report in self.answered.values()
            for row in report["topics"]
            if row["topic"] == topic
            for holder in row["holders"]
        }

    def held_by(self, topic: str, server: str) -> bool:
        """Return True if every proxy that answers knows this server as the only holder of a topic."""
        each = [
            {holder["server"] for row in report["topics"] if row["topic"] == topic for holder in row["holders"]}
            for report in self.answered.values()
        ]
        return bool(each) and all(names == {server} for names in each)

    def owner(self, topic: str) -> str:
        """Return the one server that holds a topic.

        Raises:
            NotKnown, NotNow, ServerSilent: no server holds it, several do, or it is not connected.
        """
        names = sorted({holder.server for holder in self.holders(topic)})
        if not names:
            raise NotKnown(f"topic {topic} is not known to any proxy")
        if len(names) > 1:
            raise NotNow(f"topic {topic} is held by {', '.join(names)}; they merge it once all of them are connected")
        if not self.proxies_of(names[0]):
            raise ServerSilent(
                f"server {names[0]}, the owner of topic {topic}, is not connected to any proxy; start it first"
            )
        return names[0]


@contextmanager
def cluster(loaded: Loaded[ClientSettings], patience: float, seconds: float) -> Iterator[Operator]:
    """Connect to the cluster that the command line, the environment or the configuration file names.

    Raises:
        ConfigurationError: only one of the two sides, the cluster or this command, has keys.
    """
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        yield Operator(proxies, patience, seconds)


def confirm(gives_up: str, yes: bool, word: str = "") -> None:
    """Print the consequences and ask to continue, unless `yes`.

    Args:
        gives_up: the consequences.
        word: must be typed in addition, against a hasty yes.

    Raises:
        NotConfirmed: the answer was no, or there was no terminal to ask at.
    """
    if yes:
        return
    typer.echo(gives_up, err=True)
    try:
        agreed = typer.confirm("Continue?", err=True)
        if agreed and word:
            agreed = typer.prompt(f"This cannot be undone. Type {word} to continue", err=True) == word
    except (typer.Abort, OSError):  # Standard input is at its end, or closed, so nobody can confirm.
        typer.echo(err=True)
        agreed = False
    if not agreed:
        raise NotConfirmed("not confirmed, nothing was done; --yes confirms")
