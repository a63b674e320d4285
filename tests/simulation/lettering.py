"""Clients that also put their dead letters to a topic, and the judgement on that topic.

    1   the commit that makes a dead letter puts it to `$dead.ID`, once: there are as many messages as such commits
    2   a letter that the client has in its table is there
    3   no other message is there

A kill in a commit leaves the outcome open for that letter. So does a full outbox, which leaves it in the table alone.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from pubsub.client.flows.attempts import Attempts
from pubsub.protocol.names import letters_topic
from tests.simulation.purged import read_list

if TYPE_CHECKING:
    from tests.simulation.applications.application import Application
    from tests.simulation.history import History
    from tests.simulation.members import Server


class Letters:
    """The dead letters of one run.

    Attributes:
        begun, done: by client and body, the commits that began, and those that succeeded.
        alone: letters without room in the outbox.
    """

    def __init__(self) -> None:
        self.begun: Counter[tuple[str, str]] = Counter()
        self.done: Counter[tuple[str, str]] = Counter()
        self.alone: set[tuple[str, str]] = set()

    def judge(self, applications: list[Application], servers: list[Server], history: History) -> None:
        """Object to a topic of dead letters that does not have them; all is settled."""
        for application in applications:
            name, found = application.name, Counter[str]()
            for server in servers:
                topic = server.core.state.topics.get(letters_topic(name))
                found.update([] if topic is None else read_list(topic, server.core.state)[0])
            mine = {body for client, body in self.begun if client == name}
            for body in sorted(mine | found.keys()):
                low, high = self.done[name, body], self.begun[name, body]
                if body in application.records.letters and (name, body) not in self.alone:
                    low = max(low, 1)
                history.counters["dead letters put"] += found[body]
                if not low <= found[body] <= high:
                    history.violate(
                        f"{found[body]} dead letters of {body} are in {letters_topic(name)}, made {low} to {high} times"
                    )


@contextlib.contextmanager
def watched_letters(letters: Letters) -> Iterator[None]:
    """See each commit of a dead letter with its put."""
    original = Attempts._put_letter

    def put_letter(self: Any, letter: Any, changes: Any) -> bool:
        one = self.session.name, bytes(letter.body).decode()
        letters.begun[one] += 1
        put = original(self, letter, changes)
        letters.begun[one] -= not put  # The outbox had no room.
        letters.done[one] += put
        letters.alone |= {one} if not put else set()
        return put

    with mock.patch.object(Attempts, "_put_letter", put_letter):
        yield
