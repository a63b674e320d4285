"""What a client says of a proxy that does not let it in: what is wrong, and what to do (docs/security.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub.messenger import Refusal

if TYPE_CHECKING:
    from pubsub.security.opening import ClientKeys

_SHOWN: Final = 11
"""Characters of a key by which a person tells it from others."""


def sentence(refusal: Refusal, client: str, proxy: str, index: int, keys: ClientKeys | None) -> str:
    """Why a proxy does not let a client in, in one line.

    Args:
        refusal: how it refused.
        client: the client ID.
        proxy: the proxy's address; index: its place among the proxies.
        keys: the client's and the proxies'; None: there are none.
    """
    if keys is None:
        return f"{proxy} wants a key: pubsub keys new client {client}"
    from pubsub.security.keys import format_public  # noqa: PLC0415 - where there are no keys nothing of it is needed.

    if refusal is Refusal.KEY_UNKNOWN:
        key = format_public(keys.pair.public)
        return (
            f"proxy {proxy} does not know the key {key[:_SHOWN]}… of client {client}: "
            f"pubsub keys authorize client {client} {key}"
        )
    expected = ",".join(map(format_public, keys.expected[index]))
    if refusal is Refusal.KEY_MISSING:
        return f"{proxy} has no key; the proxies file says {expected}: not used"
    return f"{proxy} closed the handshake: its key is not the one in the proxies file, {expected}"
