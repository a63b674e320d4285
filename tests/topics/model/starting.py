"""The start of a subscription: its spans, and the `since` by which a later merge adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.topics.model.messages import Start
from tests.topics.model.topic import ALWAYS, SKEW, Content, Position, Record, Span, Topic


@dataclass
class Begun:
    """Spans and `since` of a new subscription, or the reason why there is none (`unknown`, `gone`)."""

    spans: list[Span] = field(default_factory=list)
    since: int = ALWAYS
    refusal: str = ""
    begins: frozenset[Content] = frozenset()


def begin(topic: Topic, start: Start, time: int, rules: Mapping[str, bool], *, sole_owner: bool) -> Begun:
    """Return where a subscription begins.

    Args:
        time: the server's clock.
    """
    spans = topic.beginning(at_floor=rules["floor"])
    if start.kind == "latest":
        begun = Begun([Span(topic.open, topic.end)], time - SKEW)
    elif start.kind == "earliest":
        begun = Begun(spans)
    elif start.kind == "stamp":
        begun = _at_stamp(topic, spans, start.value, rules)
    elif start.kind == "last":
        begun = _last(topic, spans, start.value, time, rules)
    else:
        begun = _at_position(topic, spans, start.position, time, rules, sole_owner=sole_owner)
    if not rules["clock"]:
        begun.since = time - SKEW
    return begun


def _at_stamp(topic: Topic, spans: Sequence[Span], stamp: int, rules: Mapping[str, bool]) -> Begun:
    if rules["cuts"]:
        return Begun([span.later(stamp - 1) for span in spans], stamp - 1)
    for index, span in enumerate(spans):
        for position in topic.positions(span):
            if topic.record(position).stamp >= stamp:
                return Begun([replace(span, low=position[1]), *spans[index + 1 :]], stamp - 1)
    return Begun([Span(topic.open, topic.end)], stamp - 1)


def _at_position(
    topic: Topic,
    spans: Sequence[Span],
    position: Position,
    time: int,
    rules: Mapping[str, bool],
    *,
    sole_owner: bool,
) -> Begun:
    log, offset = position
    if log not in topic.logs or offset > len(topic.logs[log]):
        if not rules["avoid"]:
            return Begun([Span(topic.open, topic.end)], time - SKEW)
        return Begun(refusal="gone" if sole_owner or not rules["gone"] else "unknown")
    if offset < max(topic.low[log], topic.floors[log]):
        return Begun(refusal="gone")
    since = topic.record(position).stamp - 1 - (SKEW if rules["position"] else 0)
    index = next(index for index, span in enumerate(spans) if span.holds(position))
    # Records of an earlier span may have been put later, at another server.
    others = [span for span in spans[:index] if span.log != log]
    before = [span.later(since) for span in others] if rules["beside"] else []
    return Begun(
        [*before, replace(spans[index], low=offset), *(span.later(since) for span in spans[index + 1 :])], since
    )


def _last(topic: Topic, spans: Sequence[Span], count: int, time: int, rules: Mapping[str, bool]) -> Begun:
    found: list[tuple[int, Position, Record]] = []
    all_shown = {position for position, _ in topic.shown()}
    for index, span in enumerate(spans):
        found += [(index, position, topic.record(position)) for position in topic.positions(span)]
    shown = [row for row in found if row[1] in all_shown and not spans[row[0]].hides(row[2])]
    chosen = (shown if rules["shown"] else found)[-count:]
    if not chosen:
        return Begun([Span(topic.open, topic.end)], time - SKEW)
    index, position, record = chosen[0]
    since = min(record.stamp - 1, time - SKEW) if rules["last"] else record.stamp - 1
    begins = frozenset(record.content for _, _, record in shown[-count:])
    return Begun([replace(spans[index], low=position[1]), *spans[index + 1 :]], since, "", begins)
