"""Ends another client's subscription to a topic, or its pattern of topics.

The end of a pattern has the pattern's own number, so that it ends this subscription and no later one. It counts when
every proxy has it. The servers then end their entries. The client's own subscriptions are ended one by one.

The rules are those of docs/explanation/families.md, FA2 and FA5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pubsub.cli.operating import Operator, View
from pubsub.client.requests import NoAnswer
from pubsub.errors import ConfigurationError, NotKnown, NotNow, PubsubError, Unavailable
from pubsub.protocol.messages import Outcome
from pubsub.protocol.patterns import check_pattern, matches
from pubsub.server.topic.consumers import KEY, pattern_key


@dataclass(slots=True)
class Ending:
    """The end of a pattern.

    Attributes:
        number: of the pattern, and of its end.
        waiting: by topic the number of records that wait for the subscriber.
        subscribed: topics with a subscription of the client itself.
        unreachable: topics that cannot be looked at now, with the reason.
    """

    pattern: str
    subscriber: str
    number: int
    waiting: dict[str, int] = field(default_factory=dict)
    subscribed: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)

    @property
    def given_up(self) -> int:
        """The number of records that wait in all topics."""
        return sum(self.waiting.values())


def find_ending(found: Operator, pattern: str, subscriber: str) -> Ending:
    """Return what the end of a pattern gives up. After an interrupted end it returns the same end again.

    Raises:
        Unavailable: a proxy does not answer, or is of an earlier release.
        NotKnown: the client has no such pattern.
    """
    rows = [row for row in _rows(found, check_pattern(pattern)) if row["subscriber"] == subscriber]
    if not rows:
        raise NotKnown(f"client {subscriber} has no pattern {pattern}; pubsub status lists the patterns")
    ending = Ending(pattern, subscriber, max(row["number"] for row in rows))
    _look_at_topics(found, ending)
    return ending


def _rows(found: Operator, pattern: str) -> list[dict[str, Any]]:
    view = found.look(pattern)
    for address, reason in view.silent.items():
        raise Unavailable("unsubscribe", pattern, found.patience, f"every proxy must answer; proxy {address}: {reason}")
    for address, report in view.answered.items():
        if "patterns" not in report:
            text = f"proxy {address} needs a newer release to end another client's pattern"
            raise Unavailable("unsubscribe", pattern, found.patience, text)
    return [row for report in view.answered.values() for row in report["patterns"]]


def _look_at_topics(found: Operator, ending: Ending) -> None:
    """Look at the topics that this pattern brings, and no other pattern of the client."""
    view = found.look()
    others = {
        row["pattern"]
        for report in view.answered.values()
        for row in report["patterns"]
        if row["subscriber"] == ending.subscriber and row["pattern"] != ending.pattern
    }
    names = sorted({row["topic"] for report in view.answered.values() for row in report["topics"]})
    ending.waiting, ending.subscribed, ending.unreachable = {}, [], []
    for name in names:
        if matches(ending.pattern, name) and not any(matches(other, name) for other in others):
            try:
                _look_at(found, view, ending, name)
            except PubsubError as error:
                ending.unreachable.append(f"topic {name}: {error}")
    beyond = max(report["topics_total"] for report in view.answered.values()) - len(names)
    if beyond > 0:
        ending.unreachable.append(f"{beyond:,} topics are not in the proxies' reports")


def _look_at(found: Operator, view: View, ending: Ending, name: str) -> None:
    held = found.server_report(view.owner(name), view, name)["topics"].get(name, {"subscribers": {}})["subscribers"]
    own, entry = held.get(ending.subscriber), held.get(pattern_key(ending.subscriber, ending.pattern))
    if own is not None:
        ending.subscribed.append(name)
    if own is not None or entry is not None:
        ending.waiting[name] = int((own or entry)["waiting"])


def end_pattern(found: Operator, ending: Ending) -> list[str]:
    """End a pattern at every proxy, then the client's subscriptions; return the topics that it had joined.

    Raises:
        NotNow: the client has subscribed anew meanwhile.
        Unavailable: a proxy or the server of a topic has not confirmed it. The command can be repeated.
    """
    pattern, subscriber = ending.pattern, ending.subscriber
    answers = found.operate_all("unsubscribe", topic=pattern, subscriber=subscriber, number=ending.number)
    for address, status in answers.items():
        if isinstance(status, NoAnswer) or status.outcome is not Outcome.SUCCESS:
            if not isinstance(status, NoAnswer) and status.outcome is Outcome.SUPERSEDED:
                raise NotNow(f"client {subscriber} has subscribed to {pattern} anew; repeat the command to end that")
            reason = str(status) if isinstance(status, NoAnswer) else status.reason.replace("_", " ")
            text = f"every proxy must confirm the end of a pattern; proxy {address}: {reason}; repeat the command"
            raise Unavailable("unsubscribe", pattern, found.patience, text)
    ended: list[str] = []

    def all_ended() -> bool:
        _look_at_topics(found, ending)  # The client may have joined a topic since, or have left it by itself.
        view = found.look()
        for name in ending.subscribed:
            end_subscription(found, view, name, view.owner(name), subscriber)
            ended.append(name)
        return not ending.subscribed

    found.wait(all_ended, "unsubscribe", pattern)
    if ending.unreachable:
        text = f"the pattern has ended, but not each subscription; {ending.unreachable[0]}; repeat the command"
        raise Unavailable("unsubscribe", pattern, found.seconds, text)
    return sorted(set(ended))


def shown(key: str) -> str:
    """Return the name of a subscriber as its user gave it."""
    return key.removeprefix(KEY)


def waiting_for(found: Operator, view: View, name: str, owner: str, subscriber: str) -> tuple[str, int]:
    """Return the key of a subscriber and the number of records that wait for it.

    Args:
        subscriber: the ID of a client, the name of a named subscription, or the prefix of the name that was made for a
            query of Spark's. They are tried in this order.

    Raises:
        NotKnown: the topic has no such subscriber.
        ConfigurationError: the prefix belongs to several queries.
    """
    facts = found.server_report(owner, view, name)["topics"].get(name, {"subscribers": {}})["subscribers"]
    keys = [key for key in (subscriber, KEY + subscriber) if key in facts]
    if not keys:
        made = re.compile(re.escape(f"{KEY}{subscriber}-") + "[0-9a-f]{16}")
        keys = sorted(key for key in facts if made.fullmatch(key))
        if len(keys) > 1:
            several = ", ".join(shown(key) for key in keys[:5])
            more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
            raise ConfigurationError(
                f"topic {name} has {len(keys)} queries with the prefix {subscriber}: name one of {several}{more}"
            )
    if not keys:
        raise NotKnown(f"topic {name} has no subscriber {subscriber}; pubsub status --json lists the subscribers")
    return keys[0], int(facts[keys[0]]["waiting"])


def end_subscription(found: Operator, view: View, name: str, owner: str, subscriber: str) -> None:
    """End a subscription, and wait until it has ended.

    Raises:
        NotKnown, NotNow, ServerSilent, Unavailable: it has not ended, with the reason.
    """

    def ended() -> bool:
        held = found.server_report(owner, found.look(name), name)["topics"].get(name)
        return held is not None and subscriber not in held["subscribers"]

    answer = found.operate(owner, view, "unsubscribe", topic=name, subscriber=subscriber)
    if answer.outcome is Outcome.MOVED:
        raise NotNow(f"topic {name} is moving to another server; repeat this command when it has arrived")
    if answer.outcome is Outcome.UNKNOWN:
        raise NotKnown(f"topic {name} is not held by {owner} any more; repeat this command")
    if answer.outcome is not Outcome.SUCCESS:
        raise Unavailable("unsubscribe", name, found.patience, answer.reason.replace("_", " "))
    found.wait(ended, "unsubscribe", name)
