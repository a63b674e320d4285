"""The broker of these tests with keys: its access list can be changed while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pubsub.protocol import Report
from pubsub.security.files import edit_authorized, make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair
from pubsub.spark.identity import Identity
from tests.faults.cluster import until
from tests.spark.broker import Broker


class KeyedBroker(Broker):
    """A proxy and a server that nobody enters without a key. Client alice puts and reads everything."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        directory.mkdir()
        self.running = False
        self.keys = directory / "keys"
        self.authorized = directory / "authorized"
        self.authorized.write_text("# nobody yet\n")
        self.proxy = self.make("proxy", "p1")
        keys = {"authorized": self.authorized}
        self.make("server", "s1")
        alice = Identity(client="alice", key_file=self.file("alice"), proxy_keys=(self.proxy_key,))
        self.make("client", "alice", "put=*", "get=*", "status")
        super().__init__(
            directory,
            proxy=keys | {"key_file": self.file("p1")},
            identity=alice,
            **keys,
            key_file=self.file("s1"),
            proxy_keys=(self.proxy_key,),
            **settings,
        )
        self.running = True

    @property
    def proxy_key(self) -> str:
        """The proxy's public key."""
        return format_public(self.proxy.public)

    def file(self, name: str) -> str:
        """Where the key of a process lies."""
        return str(self.keys / f"{name}.key")

    def make(self, role: str, name: str, *rights: str) -> Pair:
        """A new key in its file, and its line in `authorized`."""
        pair = new_pair()
        make_key_file(Path(self.file(name)), pair.secret)
        self.authorize(role, name, pair, *rights)
        return pair

    def authorize(self, role: str, name: str, pair: Pair, *rights: str) -> None:
        """Gives a key these rights, and no others; they count when this returns."""
        self._edit(pair, " ".join([role, name, format_public(pair.public), *rights]) + "\n")

    def revoke(self, pair: Pair) -> None:
        """Takes a key's line out; it counts no more when this returns."""
        self._edit(pair, "")

    def _edit(self, pair: Pair, line: str) -> None:
        _, now = edit_authorized(self.authorized, lambda text: self._without(pair, text) + line)
        if self.running:
            self._proxy.hang_up()
            until(lambda: self._digest() == now.digest, "the proxy follows")

    def _digest(self) -> str:
        report = json.loads(bytes(self.link.ask(Report("alice", "-")).body))
        return str(report["authorized_digest"])

    @staticmethod
    def _without(pair: Pair, text: str) -> str:
        return "".join(line for line in text.splitlines(keepends=True) if format_public(pair.public) not in line)

    def options(self, name: str, **others: str) -> dict[str, str]:
        """Options of a query that has this key."""
        own = {"proxies": self.address, "proxyKeys": self.proxy_key, "keyFile": self.file(name), "timeout": "20"}
        return own | others
