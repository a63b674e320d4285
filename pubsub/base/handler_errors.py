"""The error of an application's handler on one line: the error, and the handler's own last frame.

A traceback of such an error has many frames of this package and of Python's library, and few of the application.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from traceback import walk_tb
from typing import Final

TEXT_LENGTH_MAX: Final = 500
"""Characters of an error in a log line."""

PACKAGE: Final = str(Path(__file__).parent.parent) + "/"
"""Directory of this package, with a slash at its end."""

_LIBRARIES: Final = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def one_line(text: str) -> str:
    """Return a text on one line, with at most TEXT_LENGTH_MAX characters."""
    return " ".join(text.split())[:TEXT_LENGTH_MAX]


def storable(text: str) -> str:
    """Return a text that UTF-8 can encode: the name of a file with other bytes in it has lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def described(error: BaseException) -> str:
    """Return the kind and the text of an error. An error without a usable text has only a kind."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the application's own class decides what its text does.
        text = "its text cannot be read"
    return storable(f"{type(error).__name__}: {text}")


def _repr(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - as above.
        return described(error)


def own_frame(error: BaseException) -> str:
    """Return file:line of the handler's last frame in an error's traceback.

    Frames of this package do not count. Those of installed libraries count only if there are no others.

    Returns:
        "" if no frame is the handler's, as for an error before its first line.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    outside = [(file, line) for file, line in frames if not file.startswith((PACKAGE, "<frozen "))]
    own = [(file, line) for file, line in outside if not file.startswith(_LIBRARIES)]
    return "{}:{}".format(*(own or outside)[-1]) if outside else ""


def located(error: BaseException, text: str = "") -> str:
    """Return an error on one line, with its place in the handler if there is one.

    Args:
        text: describes the error; "": its `repr`.
    """
    place, line = own_frame(error), one_line(storable(text or _repr(error)))
    return f"{line} at {place}" if place else line
