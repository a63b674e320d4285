"""What is left of a holder that was given up: those who had history there go on here.

The rules are those of docs/architecture.md, *Giving up*.

`pubsub topic abandon` names the lost holder's logs dead. This server is told, by the command and again by each proxy:

    abandoned, a log of our own        the topic is set aside: it is we who were given up
    abandoned, another's log           known as dead from now on: never accepted from a giver, in the way no more
    … and we were giving the topic to  the freeze is over: our log is closed and another one opened, so that what
      that server                      goes on here is not what that server may have joined

A proxy that started with an empty directory has forgotten what was given up, and takes a copy that comes back for a
holder. Who knows better says so: this server, to a proxy that names such a holder to it, and to a giver that has frozen
the topic for it. Either then has the copy set aside.

A client whose puts or place were there names a log that is neither held nor absorbed here. While other holders may
exist that means nothing. While the topic is whole it means that the log is gone:

    PUT with a gap before it           gone: its oldest unfinished row begins the chain anew
    GET with its place in that log     gone; with the place to go on from where an entry with its number is here
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub.limits import OFFSET_MAX
from pubsub.protocol.messages import Get, Operate, Outcome, Put
from pubsub.protocol.names import Position
from pubsub.server import changes as c
from pubsub.server.links import Origin
from pubsub.server.topic import Entry, Log, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

DEAD: Final = "dead"
"""State of a log that was given up elsewhere."""


class GivenUp:
    """How one server deals with logs that were given up.

    Args:
        core: the server.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    # What is told

    def announced(self, name: str, log: str, now: float) -> None:
        """A proxy says that a log which we announced was given up."""
        topic = self._core.topics.get(name)
        if topic is not None and (log == topic.open.id or log in topic.restored):
            reason = f"log {log} was given up by pubsub topic abandon while this server was not heard"
            self._core.quarantine.set_aside(topic, reason, now)

    def named(self, topic: Topic, log: str, server: str, proxy: int, now: float) -> None:
        """A proxy names another holder of a topic of ours; it is told where we know that holder's log as given up."""
        if self._core.reader.log_state(log) == DEAD:
            self._core.links.tell_given_up(proxy, topic.name, server, log, now)
            self._core.counters["proxies told of what was given up"] += 1

    def abandoned(self, origin: Origin, asked: Operate, now: float) -> None:
        """OPERATE abandoned: from a proxy, or from an operator's command."""
        core = self._core
        if asked.log:
            self.announced(asked.topic, asked.log, now)
        topic = core.topics.get(asked.topic)
        news = not asked.log or core.reader.log_state(asked.log) in {"", "incoming"}
        if asked.log and news and not (topic is not None and asked.log in topic.logs):
            core.marks.rows.append(c.LogOpened(core.new_log_number(), asked.log, 0, DEAD))
            core.moves.receiving.drop_log(asked.topic, asked.log)
        if topic is not None and asked.log:
            core.disputes.settle(topic, asked.log)
        if news and asked.log:
            # What else names that holder: to whom the topic was given, and what was made a rival of that. Another
            # holder under that ID is told of again by the proxies that know it.
            core.drop_given(asked.topic, asked.server, asked.store, asked.log)
            if topic is not None:
                core.disputes.settle(topic, *[log for log, server in topic.rivals.items() if server == asked.server])
        # Proxies say it again for ever; by then the topic may be on its way to that server for another reason.
        if topic is not None and topic.frozen and news and core.moves.gives_to(topic, asked.server, asked.address):
            self._take_back(topic)
        if origin.callback:
            core.answer(origin, Outcome.SUCCESS)

    def _take_back(self, topic: Topic) -> None:
        core = self._core
        core.moves.stop(topic.name)
        topic.frozen = ""
        log = Log(core.new_log_number(), core.new_log_id())
        core.marks.rows.append(c.LogOpened(log.number, log.id, topic.number))
        topic.go_on_in(log)
        core.measure(topic)
        core.marks.topic(topic.name)
        for subscriber in topic.entries:
            core.marks.entry(topic.name, subscriber)
        core.announce(topic.name, log.id)
        core.retention.look_at(topic.name)
        core.counters["topics taken back"] += 1

    # What clients show

    def gap(self, origin: Origin, put: Put, topic: Topic | None, whole: bool) -> bool:
        """A put that comes too early; whether it is, or will be, answered.

        Args:
            whole: every proxy has answered, for this very put, that no other server holds the topic.
        """
        core = self._core
        if topic is not None and put.log == put.avoid == topic.open.id:
            # A client names its log as one to avoid only in the oldest put that it has not finished: what came before
            # that, this very log has acknowledged.
            reason = f"client {put.sender} put {put.previous} here, and it was acknowledged; it is not in log {put.log}"
            core.quarantine.hold_back(topic, reason)
            core.quarantine.turns_away(origin, put)
            return True
        if not put.log or _knows(topic, put.log):
            return False
        if whole:
            core.counters["puts gone"] += 1
            core.answer(origin, Outcome.GONE, log=topic.open.id if topic else "")
            return True
        return core.puts.ask_for(origin, put, Outcome.GAP)

    def place(self, origin: Origin, get: Get, topic: Topic | None, whole: bool) -> bool:
        """A GET whose place may be one that is gone; whether it is, or will be, answered."""
        entry = topic.entries.get(get.sender) if topic else None
        if get.last is None or (entry is not None and (get.number < entry.number or get.opening < entry.opening)):
            return False
        if topic is not None and self._beyond(origin, get, topic):
            return True
        mine = entry if entry is not None and get.number == entry.number else None
        if topic is not None and mine is not None:
            known = get.last[0] in topic.logs or get.last[0] in topic.absorbed
            if known or get.last == mine.acknowledged or not mine.on:
                return False
        elif _knows(topic, get.last[0]):
            return False
        if whole:
            self._gone(origin, topic, mine)
            return True
        return self.ask_for_get(origin, get, Outcome.UNKNOWN)

    def _gone(self, origin: Origin, topic: Topic | None, entry: Entry | None) -> None:
        core = self._core
        core.counters["places gone"] += 1
        place = None if entry is None else entry.acknowledged
        core.answer(origin, Outcome.GONE, position=place, log=topic.open.id if topic else "")

    def _beyond(self, origin: Origin, get: Get, topic: Topic) -> bool:
        """Whether a place lies beyond its log's end: then this log was longer once."""
        for place in (get.last, get.after):
            log = topic.logs.get(place[0]) if place else None
            if place is not None and log is not None and log.end <= place[1] < OFFSET_MAX:
                reason = f"client {get.sender} has received {place[0]}.{place[1]}; the log ends before it"
                self._core.quarantine.hold_back(topic, reason)
                return self._core.quarantine.turns_away(origin, get)
        return False

    def ask_for_get(self, origin: Origin, get: Get, otherwise: Outcome) -> bool:
        """Have a GET wait until it is known whether the topic is whole.

        Args:
            otherwise: the answer where it is not.

        Returns:
            False where too many wait.
        """
        core = self._core

        def then(whole: bool, now: float) -> None:
            topic = core.topics.get(get.topic)
            if whole:
                core.gets.get(origin, get, now, whole=True)
            else:
                core.answer(origin, otherwise, reason="subscription", log=topic.open.id if topic else "")

        return core.wholeness.ask(get.topic, then)


def ends_unknown(topic: Topic, position: Position) -> bool:
    """Whether a position is one that a restored copy lacks: it is lost only if no other server has it."""
    return position[0] in topic.ended and position[1] == OFFSET_MAX - 1


def _knows(topic: Topic | None, log: str) -> bool:
    """Whether a log is held or absorbed, and all of it was: not one that a restored copy ended."""
    return topic is not None and (log in topic.logs or log in topic.absorbed) and log not in topic.ended
