"""Who a query is to the proxies, and by which keys (docs/spark.md, *Keys*).

What stands here travels with the options to every executor. A key file does not: each machine has it under the same
path, and it is read anew for each connection, so one that was replaced counts from the next task on. A secret key that
was given itself travels; it is in no repr, and no error repeats it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.paths import expanded
from pubsub.client.refusals import Asker
from pubsub.client.requests import Proxies
from pubsub.config.addresses import PROXY_KEYS_MAX, parse_keys
from pubsub.errors import ConfigurationError, InvalidKey, PubsubError
from pubsub.protocol.names import check_id
from pubsub.security.files import read_key_file
from pubsub.security.keys import format_secret, parse_secret
from pubsub.security.opening import ClientKeys
from pubsub.security.pairs import Pair, pair_of

READER: Final = "spark"
"""The ID under which a source asks where none is given."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who asks, and how that is proved.

    Attributes:
        client: the ID of the client; with keys one that the key's line in the file `authorized` has.
        key_file: path of its key file on every machine, as text; "": none.
        secret: its secret key itself, 32 bytes; b"": none.
        proxy_keys: the proxies' public keys, as text, in the order of the proxies; () where they have none.
    """

    client: str = READER
    key_file: str = ""
    secret: bytes = field(default=b"", repr=False)
    proxy_keys: tuple[str, ...] = ()

    def pair(self) -> Pair | None:
        """Its key pair as it is now, None where it has none.

        Raises:
            ConfigurationError: the key file cannot be used on this machine.
        """
        if not self.key_file:
            return pair_of(self.secret) if self.secret else None
        try:
            return pair_of(read_key_file(expanded(self.key_file)))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error} (on host {platform.node()}; a query's key file is under its path on every machine)"
            ) from None

    def connect(self, proxies: Sequence[str], timeout_seconds: float) -> Proxies:
        """Connections to the proxies, for one task.

        Raises:
            ConfigurationError: an address is none, or the key cannot be used on this machine.
        """
        pair = self.pair()
        keys = None
        if pair is not None and self.proxy_keys:
            keys = ClientKeys(pair, tuple(parse_keys(one) for one in self.proxy_keys))
        asker = Asker(
            self.client,
            pair,
            makes_key=f"pubsub keys new client {self.client}, and name its file by option keyFile (--key of a"
            " pipeline)",
            names_key="in option proxiesFile or proxyKeys (--proxy-key of a pipeline)",
            names_client="name the one whose key it is by option clientId (--client of a pipeline)",
            afterwards="; then start it again, and a stream goes on where it was",
        )
        return Proxies(proxies, timeout_seconds, keys=keys, asker=asker)

    @property
    def options(self) -> dict[str, str]:
        """As options of source and sink; none where there is no key."""
        if self.key_file:
            key = {"keyFile": self.key_file}
        elif self.secret:
            key = {"secretKey": format_secret(self.secret)}
        else:
            return {}
        return key | {"clientId": self.client, "proxyKeys": " ".join(self.proxy_keys)}


NOBODY: Final = Identity()
"""Who asks where there are no keys."""


def identity_of(given: Mapping[str, str], proxies: tuple[str, ...], keys: tuple[str, ...], client: str) -> Identity:
    """Who a query is, by its options.

    Args:
        given: options by their names in lower case, of which clientid, keyfile and secretkey count here.
        proxies: their addresses.
        keys: their public keys, as text, in the same order; () where they have none.
        client: its ID where none is given.

    Raises:
        ConfigurationError: an option is not what it must be, the key cannot be used on this machine, or one side has
            keys and the other has none.
    """
    file, secret = given.get("keyfile", "").strip(), given.get("secretkey", "").strip()
    if file and secret:
        raise ConfigurationError("the key is given by option keyFile and by option secretKey; give one of them")
    try:
        check_id("option clientId:", name := given.get("clientid", client))
        made = Identity(client=name, key_file=file, secret=parse_secret(secret) if secret else b"", proxy_keys=keys)
    except InvalidKey as error:
        raise ConfigurationError(f"option secretKey is not a secret key: {error.reason}") from None
    except PubsubError as error:
        raise ConfigurationError(str(error)) from None
    pair = made.pair()  # So that what is wrong with it is said before anything runs.
    if pair is None and keys:
        raise ConfigurationError(
            f"the proxies have keys and this query has none: pubsub keys new client {name}, and name the file by option"
            " keyFile, or the key by secretKey"
        )
    if pair is not None and not keys and not all(proxy.startswith("inproc://") for proxy in proxies):
        raise ConfigurationError(
            f"this query has a key, and {proxies[0]} is named without one: name the proxies by option proxiesFile, or"
            " their public keys by option proxyKeys"
        )
    return made


def proxy_keys_of(text: str, proxies: tuple[str, ...]) -> tuple[str, ...]:
    """The proxies' public keys, from an option with spaces between proxies and commas between the keys of one.

    Raises:
        ConfigurationError: they are not as many as the proxies, or one is no key.
    """
    keys = tuple(text.split())
    try:
        for word in keys:
            parse_keys(word)
    except ValueError as error:
        raise ConfigurationError(f"option proxyKeys: {error}") from None
    if keys and len(keys) != len(proxies):
        raise ConfigurationError(
            f"option proxyKeys has the keys of {len(keys)} proxies, and there are {len(proxies)}: put spaces between"
            f" proxies, in their order, and commas between the keys of one (up to {PROXY_KEYS_MAX})"
        )
    return keys
