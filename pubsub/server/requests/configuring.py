"""The settings of topics: CONFIGURE replaces them, and SETTINGS returns them (docs/explanation/retention.md).

    CONFIGURE   made of the settings in force, `base`     → success, and the settings are on the disk
                this request was carried out before       → success
                made of others                            → superseded, with the settings in force
                to create a topic that exists             → superseded, with the settings in force
    SETTINGS                                              → success, with the settings in force

Both answers have them in the body, with the server's default in place of the values that the topic does not have.
A topic that is not held has only defaults, and CONFIGURE creates it.
"""

from __future__ import annotations

from pubsub.errors import DecodeError
from pubsub.protocol.messages import Configure, Outcome, Settings
from pubsub.protocol.names import is_service_topic
from pubsub.protocol.topic_settings import decode_settings
from pubsub.server.requests.admission import Admission
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic.settings import DEFAULTS
from pubsub.server.upkeep.retention import Retention


class Configuring:
    """The settings of one server's topics.

    Args:
        admission: checks limits.
        retention: decides anew about a topic with other settings.
    """

    def __init__(self, state: State, admission: Admission, retention: Retention) -> None:
        self._state, self._admission, self._retention = state, admission, retention

    def handle(self, origin: Origin, request: Configure | Settings, now: float) -> None:
        """Answer CONFIGURE or SETTINGS."""
        if isinstance(request, Configure):
            self._configure(origin, request, now)
        else:
            self._answer(origin, request.topic, Outcome.SUCCESS)

    def _configure(self, origin: Origin, request: Configure, now: float) -> None:
        state = self._state
        if is_service_topic(request.topic):
            state.replies.refuse(origin, "a service's topic has no settings")
            return
        try:
            values = decode_settings(bytes(request.values))
        except DecodeError as error:
            state.replies.refuse(origin, error.reason)
            return
        topic = state.topics.get(request.topic)
        settings = DEFAULTS if topic is None else topic.settings
        if not request.version or settings.made_from(request.version):
            known = bool(request.version)
            self._answer(origin, request.topic, Outcome.SUCCESS if known else Outcome.REFUSED)
        elif request.base != settings.version or (request.create and topic is not None):
            self._answer(origin, request.topic, Outcome.SUPERSEDED)
        elif rejection := self._admission.settings(topic):
            state.replies.answer(origin, Outcome.FULL, reason=rejection)
        else:
            topic = topic or state.create(request.topic)
            topic.configure(settings.changed(request.version, state.stamps.reading(now), values))
            # Batches that the earlier settings let go may have to stay now.
            self._retention.forget(topic.name)
            self._retention.look_at(topic.name)
            state.counters["settings_changed"] += 1
            self._answer(origin, request.topic, Outcome.SUCCESS)

    def _answer(self, origin: Origin, name: str, outcome: Outcome) -> None:
        topic = self._state.topics.get(name)
        settings = DEFAULTS if topic is None else topic.settings
        log = "" if topic is None else topic.open.id
        self._state.replies.answer(origin, outcome, log=log, body=settings.body(self._state.default_of(name)))
