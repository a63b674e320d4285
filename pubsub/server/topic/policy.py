"""The limits of a server's own settings for a topic, and its default of the topic's settings.

Retention asks the policy first, then the cursors. A batch that the policy releases stays while a cursor needs it.

The rule is docs/explanation/retention.md, T1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.topic_defaults import BUILT_IN as NO_RULE
from pubsub.protocol.topic_defaults import TopicDefault
from pubsub.server.topic.settings import BUILT_IN, Settings


@dataclass(slots=True, frozen=True)
class Policy:
    """How much of one topic is kept.

    Attributes:
        keep_seconds: minimum age of a batch that may be deleted.
        history_bytes: bytes kept of batches that may be deleted, while this server is not known to be the sole owner.
        default: of the topic's settings.
        settings: those in force of a topic without its own.
    """

    keep_seconds: float
    history_bytes: int
    default: TopicDefault = NO_RULE
    settings: Settings = BUILT_IN

    def lets_go_until(self, stamp: int) -> int:
        """Return the newest timestamp of batches that may be deleted at `stamp` (microseconds since 1970)."""
        return stamp - int(self.keep_seconds * MICROSECONDS)


EVERYTHING: Final = Policy(1e9, NUMBER_MAX)
"""The policy of a topic before a server sets its own: all records are kept."""
