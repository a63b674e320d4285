"""The keys of a local cluster: `pubsub up --keys` does on one host the work of `pubsub keys` on several.

A directory that has keys keeps using them. Only `pubsub keys` changes the access list afterwards, and a restart does
not bring back a line that an operator removed. So a key is authorized once, when it is made.
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
"""ID of the one client that is made; its key may use every client ID."""


class ClusterKeys:
    """Keys in a cluster's directory.

    Attributes:
        authorized: path of the access list.
        client: path of the key file of the client that may do everything.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authorized, self.client = directory / "authorized", directory / "client.key"

    @property
    def there(self) -> bool:
        return os.path.lexists(self.authorized)

    def make_client(self) -> None:
        """Make the key of the client that may do everything, and then the access list.

        Raises:
            ConfigurationError: a file cannot be made, or the key cannot be read.
        """
        if not os.path.lexists(self.client):
            make_key_file(self.client, new_pair().secret)
        public = pair_of(read_key_file(self.client)).public
        authorize_line(self.authorized, *parse_name("client", ANYBODY), public, list(EVERY_RIGHT))

    def options(self, role: str, name: str, place: str = "") -> list[str]:
        """Return the options that give a process its key; the key is made if it does not exist.

        Args:
            place: the process's directory, if its name differs from the ID.

        Raises:
            ConfigurationError: the key cannot be made or read, or its line was removed from the access list.
        """
        path = self._path(place or name)
        public = self._make(role, name, path)
        if public not in read_authorized(self.authorized).by_key:
            raise ConfigurationError(
                f"the key of {role} {name} in {path} is not authorized; to authorize it: "
                f"pubsub keys authorize {role} {name} {format_public(public)} --authorized {self.authorized}"
            )
        return ["--key", str(path), "--authorized", str(self.authorized)]

    def named(self, proxies: Sequence[ProxyAddress]) -> list[ProxyAddress]:
        """Return the proxies p1, p2 … with their keys; a proxy with several keys keeps all if one is its own."""
        found = []
        for number, proxy in enumerate(proxies, 1):
            own = pair_of(read_key_file(self._path(f"p{number}"))).public
            found.append(proxy if own in proxy.keys else replace(proxy, keys=(own,)))
        return found

    def _path(self, name: str) -> Path:
        return self._directory / name / "key"

    def _make(self, role: str, name: str, path: Path) -> bytes:
        """Return the public key of the file; make the file if it does not exist."""
        if os.path.lexists(path):
            return pair_of(read_key_file(path)).public
        pair = new_pair()
        # Write the line first. A line without a key file is harmless; a key file without a line counts as revoked.
        authorize_line(self.authorized, *parse_name(role, name), pair.public, [])
        make_key_file(path, pair.secret)
        return pair.public
