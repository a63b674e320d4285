"""The keys of a process with services, from its options (docs/services.md, *Keys*)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pubsub.base.clock import SystemClock, valid_wall
from pubsub.base.loopback import reaches_out
from pubsub.errors import ConfigurationError
from pubsub.security.audit import Audit
from pubsub.security.keys import parse_public
from pubsub.security.process_keys import find_keys, own_pair
from pubsub.services.access import Locks

_KEY_VARIABLE: Final = "PUBSUB_CLIENT_KEY_FILE"
_AUTHORIZED_VARIABLE: Final = "PUBSUB_AUTHORIZED"
_NOWHERE: Final = Path(os.devnull) / "key"
"""A service has no directory, and so no default path for its key."""


def _named(given: Path | str | None, variable: str) -> Path | None:
    text = given if given is not None else os.environ.get(variable)
    return Path(text) if text else None


def find_locks(
    name: str,
    *,
    binds: Sequence[str] = (),
    dials: Sequence[str] = (),
    key_file: Path | str | None = None,
    authorized: Path | str | None = None,
    expected: Sequence[str] = (),
    audit_file: Path | str | None = None,
    insecure: bool = False,
) -> Locks:
    """Return the keys of a process, and refuse a setup with keys on one side only.

    Args:
        name: name of the process in error messages, such as "queue".
        binds: addresses on which it listens.
        dials: addresses to which it connects.
        key_file: its secret key; None: the path in PUBSUB_CLIENT_KEY_FILE, if keys are used at all.
        authorized: access list where it listens; None: the path in PUBSUB_AUTHORIZED.
        expected: public keys of the other sides, as text: one key for all, or one for each of `dials`.
        audit_file: record of connections and denials; None: no record.
        insecure: allow other hosts to connect without keys.

    Raises:
        ConfigurationError: a file cannot be used, one side has keys and the other has none, or the clock is wrong.
        InvalidKey: an expected key is not a public key.
    """
    valid_wall(SystemClock().wall())  # The clock must be right before the audit is written.
    listening = None
    if binds:
        outside = next(filter(reaches_out, binds), "")
        allowed = _named(authorized, _AUTHORIZED_VARIABLE)
        own = _named(key_file, _KEY_VARIABLE) if allowed is not None or key_file is not None else None
        listening = find_keys("client", name, own, _NOWHERE, allowed, outside, insecure)
    pair = None
    if dials and (expected or (key_file is not None and not binds)):
        pair = own_pair("client", name, _named(key_file, _KEY_VARIABLE), _NOWHERE)
        if pair is None:
            raise ConfigurationError(
                f"{dials[0]} has a key, but {name} has none: pubsub keys new client NAME, then --key"
            )
        if not expected:
            raise ConfigurationError(f"{name} has a key, but not the key of {dials[0]}: name it with --broker-key pk_…")
    if expected and len(expected) not in {1, len(dials)}:
        raise ConfigurationError(
            f"{len(expected)} keys are named for {len(dials)} addresses; name one for all, or one for each"
        )
    keys = [tuple(map(parse_public, text.split(","))) for text in expected]
    by_address = {"": keys[0]} if len(keys) == 1 else dict(zip(dials, keys, strict=False))
    return Locks(listening, pair, by_address, Audit(Path(audit_file) if audit_file else None, name))
