"""What the operators' commands share: ask proxies and servers, see where a topic is, wait until something is seen."""

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
from pubsub.errors import NotAllowed, NotHeard, NotKnown, NotNow, PubsubError, Unavailable
from pubsub.protocol.messages import Operate, Outcome, Report, Status

SENDER: Final = "pubsub-operator"
POLL_SECONDS: Final = 0.1
"""Between looks at the proxies' reports."""

REPEAT_SECONDS: Final = 2.0
"""What a server was told, and is not seen to have done, is told again after so long."""


class NotConfirmed(PubsubError):
    """The operator did not say yes; nothing was done."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a topic, as some proxy sees it."""

    server: str
    store: str
    log: str


class Operator:
    """The proxies, and the servers that they hear.

    Args:
        proxies: to ask.
        patience: seconds for one answer.
        seconds: for what was asked for to be seen done.
    """

    def __init__(self, proxies: Proxies, patience: float, seconds: float) -> None:
        self._proxies, self.patience, self.seconds = proxies, patience, seconds

    def look(self, topic: str = "") -> View:
        """What the proxies know now, of one topic or of all.

        Raises:
            Unavailable, NotLetIn, NotAllowed: none of them answered.
        """
        return View(self._proxies.reports("report", SENDER, self.patience, topic))

    def server_report(self, server: str, view: View, topic: str = "") -> dict[str, Any]:
        """What a server says of itself, and of one topic, or of as many as fit into a report.

        Raises:
            NotHeard: it does not answer through any proxy that hears it.
        """
        through = view.hearing(server)
        questions = [(address, Report(SENDER, server, topic)) for address in through]
        answers = self._proxies.read_each(questions, self.patience)
        found = next((answer for answer in answers if isinstance(answer, dict)), None)
        if found is None:
            raise NotHeard(f"server {server} is not heard: {'; '.join(map(str, answers)) or 'by no proxy'}")
        return found

    def operate(self, target: str, view: View, action: str, **facts: Any) -> Status:
        """Have a server do something, through the first proxy that gets an answer from it.

        Raises:
            NotHeard: it does not answer through any proxy that hears it.
            NotAllowed: we may not operate.
        """
        for address in view.hearing(target):
            (answer,) = self._proxies.ask_each([(address, Operate(SENDER, target, action, **facts))], self.patience)
            _check_allowed([answer], facts)
            if isinstance(answer, Status) and answer.outcome is not Outcome.UNAVAILABLE:
                return answer
        raise NotHeard(f"server {target} is not heard by any proxy: start it, then repeat this")

    def operate_all(self, action: str, **facts: Any) -> dict[str, Status | NoAnswer]:
        """Have every proxy do something itself; each one's answer, or why there is none.

        Raises:
            NotAllowed: we may not operate at any of them; where some have done it the others' answers say so.
        """
        message = Operate(SENDER, "-", action, **facts)
        addresses = self._proxies.addresses
        answers = self._proxies.ask_each([(address, message) for address in addresses], self.patience)
        _check_allowed(answers, facts)
        return dict(zip(addresses, answers, strict=True))

    def wait(
        self, done: Callable[[], bool], what: str, subject: str, again: Callable[[], object] | None = None
    ) -> None:
        """Look until something is so.

        Args:
            again: called every REPEAT_SECONDS meanwhile.

        Raises:
            Unavailable: it was not so in time.
        """
        deadline = time.monotonic() + self.seconds
        repeat_at = time.monotonic() + REPEAT_SECONDS
        while not done():
            now = time.monotonic()
            if now >= deadline:
                raise Unavailable(what, subject, self.seconds, "it may still come about; repeat the command to see")
            if again is not None and now >= repeat_at:
                repeat_at = now + REPEAT_SECONDS
                again()
            time.sleep(POLL_SECONDS)


def _check_allowed(answers: Sequence[Status | NoAnswer], facts: dict[str, Any]) -> None:
    if answers and all(isinstance(answer, NoAnswer) and answer.error is NotAllowed for answer in answers):
        raise NotAllowed("operate", str(facts.get("topic", "")), str(answers[0]))


class View:
    """What the proxies know at one moment.

    Attributes:
        reports: by address; why there is none, where a proxy did not answer.
    """

    def __init__(self, reports: dict[str, Answer]) -> None:
        self.reports = reports

    @property
    def answered(self) -> dict[str, dict[str, Any]]:
        """The reports that came."""
        return {address: report for address, report in self.reports.items() if isinstance(report, dict)}

    @property
    def silent(self) -> dict[str, str]:
        """The proxies that did not answer, and why."""
        return {address: one.reason for address, one in self.reports.items() if isinstance(one, NoAnswer)}

    def _servers(self, server: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for address, report in self.answered.items():
            for facts in report["servers"]:
                if facts["id"] == server:
                    yield address, facts

    def away(self, server: str) -> dict[str, dict[str, Any]]:
        """The stores of a server (or the one of this ID) that no proxy hears, with what a proxy says of each.

        Where proxies differ it is the one that knows of the most topics.
        """
        found: dict[str, dict[str, Any]] = {}
        heard = set()
        for report in self.answered.values():
            for facts in report["servers"]:
                if server in {facts["id"], facts["store"]}:
                    heard |= {facts["store"]} if facts["alive"] else set()
                    if facts["topics"] >= found.get(facts["store"], facts)["topics"]:
                        found[facts["store"]] = facts
        return {store: facts for store, facts in found.items() if store not in heard}

    def hearing(self, server: str) -> list[str]:
        """The proxies that hear a server."""
        return [address for address, facts in self._servers(server) if facts["alive"]]

    def address_of(self, server: str) -> str:
        """Where other servers reach a server.

        Raises:
            NotKnown, NotHeard: no proxy knows it, or hears it.
        """
        if not any(True for _ in self._servers(server)):
            raise NotKnown(f"server {server} is not known to any proxy; pubsub status lists them")
        found = next((str(facts["address"]) for _, facts in self._servers(server) if facts["alive"]), "")
        if not found:
            raise NotHeard(f"server {server} is not heard by any proxy")
        return found

    def addresses(self, server: str) -> set[str]:
        """Where other servers reached a server, heard or not."""
        return {str(facts["address"]) for _, facts in self._servers(server)} - {""}

    def address_of_store(self, store: str) -> str:
        """Where the server of a store was reached, "" where no proxy knows."""
        servers = (facts for report in self.answered.values() for facts in report["servers"])
        return next((str(facts["address"]) for facts in servers if facts["store"] == store), "")

    def given_up(self, topic: str, server: str) -> set[Holder]:
        """What was given up of a topic at a server, as some proxy remembers."""
        return {
            Holder(row["server"], row["store"], row["log"])
            for report in self.answered.values()
            for row in report["abandoned"]
            if row["topic"] == topic and row["server"] == server
        }

    def doubted(self, topic: str, server: str) -> bool:
        """Whether a server may hold a topic without having said so."""
        doubts = (row for report in self.answered.values() for row in report["doubts"])
        return any(row["topic"] == topic and server in row["servers"] for row in doubts)

    def live(self) -> list[str]:
        """The servers that some proxy hears."""
        servers = {facts["id"] for report in self.answered.values() for facts in report["servers"] if facts["alive"]}
        return sorted(servers)

    def draining(self, server: str) -> bool:
        """Whether a server takes no new topics."""
        return any(facts["draining"] for _, facts in self._servers(server))

    def receivers(self) -> dict[str, int]:
        """Servers that are heard and take topics, and how many they hold."""
        found: dict[str, int] = {}
        for report in self.answered.values():
            for facts in report["servers"]:
                if facts["alive"] and not self.draining(facts["id"]):
                    found[facts["id"]] = max(found.get(facts["id"], 0), facts["topics"] + facts["assigned"])
        return found

    def holders(self, topic: str) -> set[Holder]:
        """Everybody that some proxy takes for a holder of a topic, dead ones included."""
        return {
            Holder(holder["server"], holder["store"], holder["log"])
            for report in self.answered.values()
            for row in report["topics"]
            if row["topic"] == topic
            for holder in row["holders"]
        }

    def held_by(self, topic: str, server: str) -> bool:
        """Whether every proxy that answers takes a server for the only holder of a topic."""
        each = [
            {holder["server"] for row in report["topics"] if row["topic"] == topic for holder in row["holders"]}
            for report in self.answered.values()
        ]
        return bool(each) and all(names == {server} for names in each)

    def owner(self, topic: str) -> str:
        """The one server that holds a topic.

        Raises:
            NotKnown, NotNow, NotHeard: none does, several do, or it is not heard.
        """
        names = sorted({holder.server for holder in self.holders(topic)})
        if not names:
            raise NotKnown(f"topic {topic} is not known to any proxy")
        if len(names) > 1:
            raise NotNow(f"topic {topic} is contested between {', '.join(names)}: it is merged when both are heard")
        if not self.hearing(names[0]):
            raise NotHeard(f"server {names[0]}, which holds topic {topic}, is not heard by any proxy")
        return names[0]


@contextmanager
def cluster(loaded: Loaded[ClientSettings], patience: float, seconds: float) -> Iterator[Operator]:
    """The cluster that the command line, the environment or the file names.

    Raises:
        ConfigurationError: it has keys and we have none, or the other way round.
    """
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        yield Operator(proxies, patience, seconds)


def confirm(gives_up: str, yes: bool, word: str = "") -> None:
    """Say what is given up, and ask, unless `yes`.

    Args:
        word: to be typed as well, so that a yes given too fast is not enough.

    Raises:
        NotConfirmed: the answer was no, or there was nobody to ask.
    """
    if yes:
        return
    typer.echo(gives_up, err=True)
    try:
        agreed = typer.confirm("Go on?", err=True)
        if agreed and word:
            agreed = typer.prompt(f"This cannot be undone. Type {word} to go on", err=True) == word
    except typer.Abort:
        agreed = False
    except OSError:  # Standard input is closed.
        typer.echo(err=True)
        agreed = False
    if not agreed:
        raise NotConfirmed("not confirmed, nothing was done; --yes confirms")
