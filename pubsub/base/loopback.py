"""Which addresses only this host reaches: a socket that listens there needs no keys to be its owner's."""

from __future__ import annotations

import re
from typing import Final

_LOOPBACK: Final = re.compile(
    r"tcp://(localhost|lo|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[::1\]):([0-9]{1,5}|\*)", re.IGNORECASE
)
_LOCAL: Final = ("inproc://", "ipc://")


def reaches_out(address: str) -> bool:
    """Whether others than this host may connect to a socket that listens there; of what is not known, yes."""
    return not address.startswith(_LOCAL) and _LOOPBACK.fullmatch(address) is None
