"""Read and change the settings of a topic: how much of it is kept beyond what subscribers need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pubsub.client.refusals import Asker, Request
from pubsub.client.requests import Proxies
from pubsub.errors import CallerError, InvalidName, NotNow, Refused
from pubsub.protocol.messages import Configure, Outcome, Settings, Status
from pubsub.protocol.names import check_new_topic, check_topic, is_service_topic
from pubsub.protocol.topic_defaults import source
from pubsub.protocol.topic_settings import OR, PARSERS, PATTERNED, SETTINGS, encode_settings

if TYPE_CHECKING:
    from pubsub.client.session import Session

ROUNDS: Final = 5
"""Tries to change settings that others change at the same time."""

UPGRADE: Final = "all proxies and servers need a release with settings of topics: upgrade them first"

OF_EARLIER_RELEASES: Final = ("not a request of a client", "no message is named", "insists on")
"""Refusals by proxies and servers that do not know these requests."""


_USUAL: Final = {"expire": "never", "tombstones": "1d", "rate": "none", "bytes": "none"}
"""The settings that few topics have, with their usual values."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic (docs/how-to/keep-messages.md).

    Attributes:
        topic: its name.
        keep: how much stays although every subscriber has acknowledged it, such as `7d,10GiB`. `latest` keeps the last
            message of each key. After a conflict several values, joined by " or ".
        drop: beyond what an unacknowledged message is dropped. After a conflict as `keep`.
        version: the ID of these settings; "" if they were never changed.
        conflict: True if two servers merged the topic with different settings. Both values stay in force, and a message
            goes when each lets it go. The next change ends it.
        sources: by setting, where its value is from: `topic`, `default PATTERN` of the servers' configuration, or
            `built-in`. Empty if no server holds the topic yet.
        own: by setting, the topic's own value; "" where a default holds.
        expire: the age beyond which a message is not delivered any more. After a conflict as `keep`.
        tombstones: with `keep=latest`, how long the deletion of a key stays, at least `1h`; `1d` by default.
        rate, bytes: the most messages, and the most bytes, that clients put in a second
            (docs/how-to/limit-publishers.md).
    """

    topic: str
    keep: str
    drop: str
    version: str = ""
    conflict: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    expire: str = "never"
    tombstones: str = "1d"
    rate: str = "none"
    bytes: str = "none"

    def __str__(self) -> str:
        rarely = _USUAL | {"tombstones": "" if "latest" in self.keep.split(OR) else self.tombstones}
        more = [f" {name}={value}" for name, usual in rarely.items() if (value := getattr(self, name)) != usual]
        return f"keep={self.keep} drop={self.drop}{''.join(more)}"


class SettingTexts(TypedDict, total=False):
    """The texts of settings to change; one that is missing or None keeps its value."""

    keep: str | None
    drop: str | None
    expire: str | None
    tombstones: str | None
    rate: str | None
    bytes: str | None


class OtherSettings(NotNow):
    """The settings have another version than the one to change.

    Attributes:
        present: the settings in force.
    """

    def __init__(self, present: TopicSettings) -> None:
        self.present = present
        super().__init__(
            f"topic {present.topic} has other settings meanwhile (version {present.version or 'none'}:"
            f" {present}); look at them and repeat the change"
        )


def check_settings(topic: str, values: Mapping[str, str | None]) -> None:
    """Check a topic's name and the texts of its settings.

    Raises:
        InvalidName: the topic is not allowed.
        CallerError: a text has another form, or the topic belongs to a service.
    """
    check_topic(topic)
    if is_service_topic(topic):
        raise CallerError(f"{topic} belongs to a service, and its topics have no settings")
    for name, parse in PARSERS.items():
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise CallerError(f"{name} is a text, not {type(value).__name__}")
        try:
            parse(value or "")
        except ValueError as error:
            raise CallerError(f"{name} is {error}; not {str(value)[:60]!r}") from None


def all_settings(given: SettingTexts, call: str) -> dict[str, str | None]:
    """Return the text of each setting; None for one that is not given.

    Raises:
        TypeError: as Python raises it for a keyword argument that the call does not have.
    """
    values: dict[str, str | None] = dict.fromkeys(SETTINGS) | dict(given)
    if unknown := sorted(values.keys() - set(SETTINGS)):
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
    return values


def read_settings(proxies: Proxies, sender: str, topic: str) -> TopicSettings:
    """Return the settings of a topic; the defaults if it does not exist."""
    status = ask(proxies, Settings(sender, topic))
    return TopicSettings(topic, "none", "never") if status.outcome is Outcome.UNKNOWN else parse_settings(topic, status)


def ask(proxies: Proxies, request: Request) -> Status:
    """Send a request about a topic's settings or contents; one that an earlier release refuses says so."""
    try:
        return proxies.ask(request)
    except Refused as error:
        if any(word in error.reason for word in OF_EARLIER_RELEASES):
            raise Refused("settings", getattr(request, "topic", ""), f"{error.reason}; {UPGRADE}") from None
        raise


def change_settings(
    proxies: Proxies, sender: str, topic: str, values: Mapping[str, str | None], base: str | None
) -> TopicSettings:
    """Change settings of a topic, and return those in force. `check_settings` has accepted the arguments.

    Args:
        values: by name; None: unchanged.
        base: the version to change; None: the present one, whichever it is.

    Raises:
        OtherSettings: the settings have another version than `base`, or others change them all the time.
        CallerError: a setting has conflicting values, and no value is given for it.
        InvalidName: there is no such topic, and the name of a new one is not allowed.
    """
    _check_creatable(proxies, sender, topic)
    present = TopicSettings(topic, "none", "never", base or "")
    if base and None in values.values():
        present = read_settings(proxies, sender, topic)
    for _ in range(ROUNDS):
        if base is not None and present.version != base:
            break
        wanted = {name: _chosen(present, name, value) for name, value in values.items()}
        status = ask(proxies, Configure(sender, topic, token_hex(8), present.version, values=encode_settings(wanted)))
        present = parse_settings(topic, status)
        if status.outcome is not Outcome.SUPERSEDED:
            return present
    raise OtherSettings(present)


def _check_creatable(proxies: Proxies, sender: str, topic: str) -> None:
    """Refuse a name that no put could use, such as a pattern. An old topic of such a name has its settings changed."""
    try:
        check_new_topic(topic)
    except InvalidName:
        if not read_settings(proxies, sender, topic).sources:
            reason = "* > # and a leading _ or $ are reserved; [[topics]] of a server's configuration is for patterns"
            raise InvalidName("topic", topic, reason) from None


def _chosen(present: TopicSettings, name: str, value: str | None) -> str:
    if value is not None:
        return value
    own = present.own.get(name, "")
    if OR in own:
        raise CallerError(f"topic {present.topic} has conflicting values of {name}, {own}: give one")
    return own


def parse_settings(topic: str, status: Status) -> TopicSettings:
    """Return the settings in an answer.

    Raises:
        Refused: it has none, as that of an earlier release.
    """
    try:
        facts: Any = json.loads(bytes(status.body))
        version, conflict = str(facts["version"]), bool(facts["conflict"])
        match = str(facts["match"])
        sources = {name: source(texts, match if name in PATTERNED else "") for name, texts in facts["own"].items()}
        own = {name: OR.join(text or "the default" for text in texts) for name, texts in facts["own"].items()}
        own = {name: "" if facts["own"][name] == [""] else text for name, text in own.items()}
        keep, drop = OR.join(facts["keep"]), OR.join(facts["drop"])
        rest = {name: OR.join(facts.get(name, [usual])) for name, usual in _USUAL.items()}
        return TopicSettings(topic, keep, drop, version, conflict, sources, own, **rest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = status.reason.replace("_", " ") or "the answer has no settings"
        raise Refused("settings", topic, f"{reason}; {UPGRADE}") from None


class SettingsCalls:
    """The calls of one client about settings.

    Args:
        session: names the proxies and the keys.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def settings_of(self, topic: str) -> TopicSettings:
        check_settings(topic, {})
        with proxies_of(self._session) as proxies:
            return read_settings(proxies, self._session.name, topic)

    def configure(self, topic: str, given: SettingTexts, base: str | None) -> TopicSettings:
        values = all_settings(given, "configure")
        check_settings(topic, values)
        with proxies_of(self._session) as proxies:
            return change_settings(proxies, self._session.name, topic, values, base)


def proxies_of(session: Session) -> Proxies:
    """Connect to the proxies of a client, for requests that are not its own state's."""
    asker = Asker(session.name, None if session.keys is None else session.keys.pair)
    settings = session.settings
    return Proxies(settings.proxies, settings.timeout_seconds, session.context, keys=session.keys, asker=asker)
