"""Suggestions for a command name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final


def _each(names: Iterable[str], *commands: str) -> dict[str, tuple[str, ...]]:
    """Return the same suggestion for each name; `{}` in it becomes the name."""
    return {name: tuple(command.format(name) for command in commands) for name in names}


_OF_CLIENT: Final = (
    *("put", "get", "subscribe", "unsubscribe", "flush", "discard", "renew"),
    *("dead-letters", "export", "call", "replies", "serve", "process", "leave"),
)
_OF_SERVER: Final = ["drain", "switch", "forget", "promote", "restored", "remove", "check", "import"]
_OF_KEYS: Final = ["authorize", "revoke"]

_LOOKS: Final = (
    *("topics", "servers", "proxies", "subscribers", "clients", "list", "ls", "ps"),
    *("info", "report", "health", "dashboard", "cluster"),
)

HINTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "pubsub": {
        **_each(_LOOKS, "pubsub status", "pubsub top"),
        **_each(_OF_CLIENT, "pubsub client ID {} …"),
        **_each(("pub", "publish", "produce", "producer", "send", "post"), "pubsub client ID put TOPIC FILE"),
        **_each(
            ("sub", "consume", "consumer", "receive", "recv", "poll", "read", "tail", "listen"),
            "pubsub client ID subscribe TOPIC",
            "pubsub client ID get TOPIC",
        ),
        **_each(("move", "abandon"), "pubsub topic {} TOPIC …"),
        "peek": ("GET /topics/TOPIC/messages of pubsub gateway start",),
        **_each(_OF_SERVER, "pubsub server {} …"),
        **_each(_OF_KEYS, "pubsub keys {} …"),
        **_each(("start", "run", "init"), "pubsub up --dir DIR", "pubsub proxy start", "pubsub server start"),
        **_each(("stop", "shutdown", "kill"), "pubsub down --dir DIR"),
        **_each(("key", "authorized"), "pubsub keys"),
        **_each(("webhooks", "hook", "hooks"), "pubsub webhook"),
        **_each(("broker", "worker", "queue", "work"), "pubsub service"),
        **_each(("groups", "members", "consumer-groups"), "pubsub group list"),
        **_each(("redrive", "release", "resume"), "pubsub group {} TOPIC NAME …"),
        **_each(("spark", "archive", "audit"), "pubsub pipeline"),
        **_each(("settings", "setting", "configuration"), "pubsub config"),
        "version": ("pubsub --version",),
        "help": ("pubsub --help",),
    },
    "pubsub topic": {
        **_each(("ls", "status", "info", "describe"), "pubsub topic list", "pubsub topic show TOPIC"),
        **_each(("make", "new", "add"), "pubsub topic create TOPIC"),
        "put": ("pubsub client ID put TOPIC FILE",),
        **_each(("get", "subscribe"), "pubsub client ID {} TOPIC"),
    },
    "pubsub group": {
        **_each(("ls", "status", "info", "describe"), "pubsub group list", "pubsub group show TOPIC NAME"),
        **_each(("make", "new", "add", "create", "join"), "pubsub client ID subscribe TOPIC --group NAME"),
        **_each(("delete", "remove", "drop"), "pubsub group end TOPIC NAME", "pubsub group redrive TOPIC NAME --drop"),
        **_each(("letters", "dead"), "pubsub group dead-letters TOPIC NAME"),
    },
    "pubsub server": {
        **_each(("list", "ls", "show", "status", "info"), "pubsub status"),
        **_each(("stop",), "pubsub down --dir DIR", "SIGTERM to its process"),
    },
    "pubsub proxy": {
        **_each(("list", "ls", "show", "status", "info"), "pubsub status"),
        **_each(("stop",), "pubsub down --dir DIR", "SIGTERM to its process"),
    },
    "pubsub client": {
        **_each(("list", "ls"), "pubsub status"),
        **_each(("send", "publish", "produce"), "pubsub client ID put TOPIC FILE"),
        **_each(("receive", "consume", "read", "poll"), "pubsub client ID get TOPIC"),
    },
    "pubsub gateway": _each(("run", "serve", "up"), "pubsub gateway start"),
}
"""Group -> name that was typed -> commands to suggest."""


def hint(group: str, name: str) -> str:
    """Return the suggestion; "" if there is none.

    Args:
        group: the group as typed, such as "pubsub topic".
        name: the name that the group does not have.
    """
    return " or ".join(HINTS.get(group, {}).get(name.lower(), ()))
