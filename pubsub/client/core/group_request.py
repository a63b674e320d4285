"""The requests that make a group, join it, or end it, and their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import quote

from pubsub.base.limits import ATTEMPT_ERROR_LENGTH_MAX, DEAD_REASON_LENGTH_MAX
from pubsub.client.core.retries import Retries
from pubsub.client.errors import GroupDiffers, GroupFull, GroupInDoubt
from pubsub.errors import PubsubError
from pubsub.protocol import Outcome, Status, Subscribe, Unsubscribe
from pubsub.protocol.group_bodies import KEYED, GroupValues
from pubsub.protocol.names import LATEST, Start, format_start, parse_start

_DIFFERS: Final = "_differs"
_ARGUMENTS: Final = {"onlost": "on_lost", "lost": "lost_seconds"}
_LIMITS: Final = frozenset({"GROUPS_MAX", "groups_max", "topics_max", "members_max"})


class Wish(NamedTuple):
    """The values that the application names of a group; a member that joins may name none.

    Attributes:
        mode: "any", "shared" or "keyed".
        parts: 0: none is named.
        start: where a group that is made begins.
        on_lost: "wait", "redeliver" or "".
        lost_ms: 0: none is named.
        attempts: 0: none is named.
    """

    mode: str = "any"
    parts: int = 0
    start: Start = LATEST
    on_lost: str = ""
    lost_ms: int = 0
    attempts: int = 0

    def text(self) -> str:
        """Return the form in the state file."""
        return json.dumps(self._replace(start=format_start(self.start)))

    @classmethod
    def of(cls, text: str) -> Wish:
        """Return the wish of a `text`."""
        found = cls(*json.loads(text))
        return found._replace(start=parse_start(str(found.start)))


@dataclass(slots=True, eq=False)
class Ask:
    """A request about a group that waits for its answer.

    Attributes:
        on: True to make it or to join it, False to end it.
        until: time until which it is tried.
        force: with `on` False: also while something is in doubt.
        begun_anew: True if a higher number was met, and passed, once.
        deadline: time of the next try; None: at once.
        done: True once it is answered.
        failure: the answer, if it is no success.
        tokens: of its transmissions.
    """

    on: bool
    wish: Wish
    until: float
    retries: Retries
    force: bool = False
    begun_anew: bool = False
    deadline: float | None = None
    done: bool = False
    failure: PubsubError | None = None
    trouble: str = ""
    tokens: list[int] = field(default_factory=list)

    def message(
        self, client: str, topic: str, name: str, number: int, epoch: int, log: str, avoid: str
    ) -> Subscribe | Unsubscribe:
        """Build the next transmission."""
        facts = client, topic, number, epoch, log, avoid, name
        if not self.on:
            return Unsubscribe(*facts, group=1, force=int(self.force))
        wish = self.wish
        return Subscribe(
            *facts, start=wish.start, group=wish.mode, parts=wish.parts, on_lost=wish.on_lost, lost_ms=wish.lost_ms,
            attempts=wish.attempts,
        )  # fmt: skip


def error_of(topic: str, name: str, status: Status, values: GroupValues | None) -> PubsubError | None:
    """Return the error of an answer that only groups have; None: it has another one, or is no error."""
    reason = status.reason
    if status.outcome is Outcome.REFUSED and reason.endswith(_DIFFERS) and values is not None:
        value = reason.removesuffix(_DIFFERS)
        return GroupDiffers(topic, name, f"{_ARGUMENTS.get(value, value)} differs", described(values))
    if status.outcome is Outcome.REFUSED and reason == "in_doubt":
        return _in_doubt(topic, name, status)
    if status.outcome is Outcome.FULL and reason in _LIMITS | {"another_client_serves_this"}:
        return GroupFull(topic, name, reason)
    return None


def dead_reason(text: str) -> str:
    """Return a reason in the form of the protocol: percent-encoded, and not too long."""
    return _encoded(text.strip() or "rejected", DEAD_REASON_LENGTH_MAX)


def attempt_error(text: str) -> str:
    """Return the error of a failed attempt in the form of the protocol: one line, percent-encoded, not too long."""
    return _encoded(" ".join(text.split()).removesuffix(":"), ATTEMPT_ERROR_LENGTH_MAX)


def _encoded(text: str, most: int) -> str:
    encoded = quote(text, safe="")
    if len(encoded) > most:
        encoded = encoded[:most]
        cut = encoded.rfind("%", len(encoded) - 2)
        encoded = encoded[:cut] if cut >= 0 else encoded
    return encoded


def described(values: GroupValues) -> str:
    """Return the values of a group in words."""
    parts = f" parts={values.parts}" if values.mode == KEYED else ""
    return (
        f"mode={values.mode}{parts} on_lost={values.on_lost} lost_seconds={values.lost_ms / 1000:g}"
        f" attempts={values.attempts}"
    )


def _in_doubt(topic: str, name: str, status: Status) -> GroupInDoubt:
    try:
        facts = json.loads(bytes(status.body))
        records, members = int(facts["in_doubt"]), tuple(str(member[0]) for member in facts["members"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        records, members = 0, ()
    return GroupInDoubt(topic, name, records, members)
