"""Which processes of a cluster have followed a change of who is authorized."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pubsub.config.settings import ClientSettings
from pubsub.console.options import read
from pubsub.errors import PubsubError

POLL_SECONDS: Final = 0.2
"""Between two looks at the cluster."""

PATIENCE_SECONDS: Final = 2.0
"""With each process, in one look."""


@dataclass
class Followers:
    """Who has followed.

    Attributes:
        followed: processes that have the file as it is now, by role.
        others: those that have another one, or do not answer, by role.
        unknown: why nothing is known, "" where it is.
    """

    followed: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    unknown: str = ""

    @property
    def all(self) -> bool:
        """Whether everybody has followed."""
        return not self.unknown and not any(self.others.values())

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"followed": self.followed, "not_followed": self.others, "unknown": self.unknown}

    def sentence(self) -> str:
        """For a person."""
        if self.unknown:
            return f"whether the proxies have followed is not known: {self.unknown}"
        parts = []
        for role in ("proxy", "server"):
            done, left = self.followed.get(role, []), self.others.get(role, [])
            count = len(done) + len(left)
            noun = "proxies" if role == "proxy" else "servers"
            if count:
                parts.append(f"{len(done):,} of {count:,} {noun}" + (f" (not {', '.join(left)})" if left else ""))
        return f"followed by {' and '.join(parts)}"


def has_key(cluster: Mapping[str, Any]) -> bool:
    """Whether a key of ours is named, by which the cluster may answer."""
    try:
        return read(ClientSettings, cluster, None).settings.key_file is not None
    except PubsubError:
        return False


def follow(cluster: Mapping[str, Any], digest: str, seconds: float) -> Followers:
    """Look until everybody has followed, or the time is over. Nothing is ever raised: the file is changed already.

    Args:
        cluster: where the proxies are, and by which key they know us, as the command line says.
        digest: of what the file says now.
        seconds: to wait.
    """
    try:
        loaded = read(ClientSettings, cluster, None)
    except PubsubError as error:
        return Followers(unknown=str(error))
    if loaded.origins["proxies"] == "default":
        return Followers(unknown="no proxies are named (--proxies-file FILE, PUBSUB_PROXIES_FILE)")
    deadline = time.monotonic() + seconds
    while True:
        found = _look(loaded.settings, digest)
        if found.all or found.unknown or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_SECONDS)


def _look(settings: ClientSettings, digest: str) -> Followers:
    from pubsub.cli.reports import gather

    try:
        picture = gather(settings, PATIENCE_SECONDS)
    except PubsubError as error:
        return Followers(unknown=str(error))
    found = Followers()
    now = {(row["role"], row["id"]): row["authorized"] for row in picture["keys"]}
    names = [("proxy", (one["report"] or {}).get("proxy", one["address"])) for one in picture["proxies"]]
    names += [("server", one["id"]) for one in picture["servers"]]
    for role, name in names:
        side = found.followed if now.get((role, name)) == digest else found.others
        side.setdefault(role, []).append(name)
    return found
