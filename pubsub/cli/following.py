"""Which processes of a cluster have loaded a changed access list."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pubsub.config.settings import ClientSettings
from pubsub.console.options import read
from pubsub.errors import PubsubError

POLL_SECONDS: Final = 0.2
"""Pause between two looks at the cluster."""

PATIENCE_SECONDS: Final = 2.0
"""Time limit for the answer of one process."""


@dataclass
class Followers:
    """Processes that have loaded the new access list, and processes that have not.

    Attributes:
        followed: IDs of processes with the current file, by role.
        others: IDs of processes with another file or without an answer, by role.
        unknown: the reason if the cluster could not be asked, otherwise "".
    """

    followed: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    unknown: str = ""

    @property
    def all(self) -> bool:
        """True if every process has loaded the file."""
        return not self.unknown and not any(self.others.values())

    def facts(self) -> dict[str, Any]:
        return {"followed": self.followed, "not_followed": self.others, "unknown": self.unknown}

    def sentence(self) -> str:
        if self.unknown:
            return f"the proxies could not be asked whether they have loaded the file: {self.unknown}"
        parts = []
        for role in ("proxy", "server"):
            done, left = self.followed.get(role, []), self.others.get(role, [])
            count = len(done) + len(left)
            noun = "proxies" if role == "proxy" else "servers"
            if count:
                parts.append(f"{len(done):,} of {count:,} {noun}" + (f" (not {', '.join(left)})" if left else ""))
        return f"loaded by {' and '.join(parts)}"


def has_key(cluster: Mapping[str, Any]) -> bool:
    """Return True if the settings name a key, so that the cluster may answer."""
    try:
        return read(ClientSettings, cluster, None).settings.key_file is not None
    except PubsubError:
        return False


def follow(cluster: Mapping[str, Any], digest: str, seconds: float) -> Followers:
    """Poll until every process has loaded the file, or the time is over. It never raises, because the file is already
    changed.

    Args:
        cluster: options of the command line that name the proxies and our key.
        digest: digest of the current file.
        seconds: time limit.
    """
    try:
        loaded = read(ClientSettings, cluster, None)
    except PubsubError as error:
        return Followers(unknown=str(error))
    if loaded.origins["proxies"] == "default":
        return Followers(unknown="no proxies are named; give --proxies-file FILE or set PUBSUB_PROXIES_FILE")
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
