"""The keys of a local cluster: `pubsub up --keys` makes what `pubsub keys` makes on several hosts.

A directory that has keys keeps them, and keeps to them: who is authorized is changed by `pubsub keys`, and what an
operator took out does not come back with a restart. So a key is authorized when it is made, and never later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pubsub.cli.authorizing import authorize_line
from pubsub.config.addresses import ProxyAddress
from pubsub.errors import ConfigurationError
from pubsub.security.authorized import EVERY_RIGHT, parse_name
from pubsub.security.files import make_key_file, read_authorized, read_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair, pair_of

ANYBODY: Final = "*"
"""The ID of the one client that is made: with its key every client ID may be used."""


class ClusterKeys:
    """Keys under a cluster's directory.

    Args:
        directory: of the cluster.

    Attributes:
        authorized: the file of who is authorized.
        client: the key file of the client that may do everything.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authorized, self.client = directory / "authorized", directory / "client.key"

    @property
    def there(self) -> bool:
        """Whether the cluster has keys from before."""
        return os.path.lexists(self.authorized)

    def make_client(self) -> None:
        """Make the key of the client that may do everything, and the file of who is authorized, which comes last.

        Raises:
            ConfigurationError: they cannot be made, or the key cannot be read.
        """
        if not os.path.lexists(self.client):
            make_key_file(self.client, new_pair().secret)
        public = pair_of(read_key_file(self.client)).public
        authorize_line(self.authorized, *parse_name("client", ANYBODY), public, list(EVERY_RIGHT))

    def options(self, role: str, name: str, place: str = "") -> list[str]:
        """How a process is told of its key, which is made where it has none.

        Args:
            role, name: who it is.
            place: its directory, where that has another name.

        Raises:
            ConfigurationError: the key cannot be made or read, or was authorized once and is not any more.
        """
        path = self._path(place or name)
        public = self._make(role, name, path)
        if public not in read_authorized(self.authorized).by_key:
            raise ConfigurationError(
                f"the key of {role} {name} in {path} is not authorized: "
                f"pubsub keys authorize {role} {name} {format_public(public)} --authorized {self.authorized}"
            )
        return ["--key", str(path), "--authorized", str(self.authorized)]

    def named(self, proxies: Sequence[ProxyAddress]) -> list[ProxyAddress]:
        """The proxies p1, p2 … with their keys; one that is known by several keys, one of them its own, stays so."""
        found = []
        for number, proxy in enumerate(proxies, 1):
            own = pair_of(read_key_file(self._path(f"p{number}"))).public
            found.append(proxy if own in proxy.keys else replace(proxy, keys=(own,)))
        return found

    def _path(self, name: str) -> Path:
        return self._directory / name / "key"

    def _make(self, role: str, name: str, path: Path) -> bytes:
        """The public key of a file; where there is none it is made."""
        if os.path.lexists(path):
            return pair_of(read_key_file(path)).public
        pair = new_pair()
        # First this: a line whose key nobody has does no harm, and a key without a line is one that was revoked.
        authorize_line(self.authorized, *parse_name(role, name), pair.public, [])
        make_key_file(path, pair.secret)
        return pair.public
