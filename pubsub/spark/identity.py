"""The identity of a query at the proxies, and its keys (docs/spark.md, *Keys*).

An identity travels with the options to every executor. A key file does not travel: each machine has it at the same
path, and it is read for each connection. So a replaced file takes effect with the next task. A secret key given as
text does travel; it appears in no repr and no error.
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
from pubsub.security.pairs import Pair, pair_of
from pubsub.security.process_keys import ClientKeys

READER: Final = "spark"
"""Client ID of a source without a given ID."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The client ID of a query, and the keys that prove it.

    Attributes:
        client: the client ID; with keys, an ID of the key's line in the access list.
        key_file: path of the key file on every machine; "" for none.
        secret: the secret key itself, 32 bytes; b"" for none.
        proxy_keys: public keys of the proxies, as text, in the order of the proxies; () without keys.
    """

    client: str = READER
    key_file: str = ""
    secret: bytes = field(default=b"", repr=False)
    proxy_keys: tuple[str, ...] = ()

    def pair(self) -> Pair | None:
        """Return the present key pair, None without keys.

        Raises:
            ConfigurationError: the key file cannot be used on this machine.
        """
        if not self.key_file:
            return pair_of(self.secret) if self.secret else None
        try:
            return pair_of(read_key_file(expanded(self.key_file)))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error} (on host {platform.node()}; every machine needs the key file at the same path)"
            ) from None

    def connect(self, proxies: Sequence[str], timeout_seconds: float) -> Proxies:
        """Open connections to the proxies, for one task.

        Raises:
            ConfigurationError: an address is not valid, or the key cannot be used on this machine.
        """
        pair = self.pair()
        keys = None
        if pair is not None and self.proxy_keys:
            keys = ClientKeys(pair, tuple(parse_keys(one) for one in self.proxy_keys))
        asker = Asker(
            self.client,
            pair,
            makes_key=f"pubsub keys new client {self.client}, and give its file as option keyFile (--key of a"
            " pipeline)",
            names_key="in option proxiesFile or proxyKeys (--proxy-key of a pipeline)",
            names_client="give the client ID of this key as option clientId (--client of a pipeline)",
            afterwards="; then start the query again, and a stream continues where it was",
        )
        return Proxies(proxies, timeout_seconds, keys=keys, asker=asker)

    @property
    def options(self) -> dict[str, str]:
        """The identity as options of source and sink; empty without a key."""
        if self.key_file:
            key = {"keyFile": self.key_file}
        elif self.secret:
            key = {"secretKey": format_secret(self.secret)}
        else:
            return {}
        return key | {"clientId": self.client, "proxyKeys": " ".join(self.proxy_keys)}


NOBODY: Final = Identity()
"""Identity without keys."""


def identity_of(given: Mapping[str, str], proxies: tuple[str, ...], keys: tuple[str, ...], client: str) -> Identity:
    """Return the identity in a query's options.

    Args:
        given: options by lower-case name; it uses clientid, keyfile and secretkey.
        keys: public keys of the proxies as text, in the order of the proxies; () without keys.
        client: client ID if the options have none.

    Raises:
        ConfigurationError: an option is not valid, the key cannot be used on this machine, or only one of the two
            sides has keys.
    """
    file, secret = given.get("keyfile", "").strip(), given.get("secretkey", "").strip()
    if file and secret:
        raise ConfigurationError("options keyFile and secretKey are both given; give one of them")
    try:
        check_id("option clientId:", name := given.get("clientid", client))
        made = Identity(client=name, key_file=file, secret=parse_secret(secret) if secret else b"", proxy_keys=keys)
    except InvalidKey as error:
        raise ConfigurationError(f"option secretKey is not a secret key: {error.reason}") from None
    except PubsubError as error:
        raise ConfigurationError(str(error)) from None
    pair = made.pair()  # Report a bad key before anything runs.
    if pair is None and keys:
        raise ConfigurationError(
            f"the proxies have keys and this query has none: pubsub keys new client {name}, and give the file as option"
            " keyFile, or the key as secretKey"
        )
    if pair is not None and not keys and not all(proxy.startswith("inproc://") for proxy in proxies):
        raise ConfigurationError(
            f"this query has a key, and {proxies[0]} is given without one: give the proxies as option proxiesFile, or"
            " their public keys as option proxyKeys"
        )
    return made


def proxy_keys_of(text: str, proxies: tuple[str, ...]) -> tuple[str, ...]:
    """Parse the proxies' public keys: spaces between proxies, commas between the keys of one proxy.

    Raises:
        ConfigurationError: their number differs from the proxies, or one is not a key.
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
