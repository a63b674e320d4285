"""Edits of the access list (the file `authorized`) that leave every other line as it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pubsub.errors import CallerError, ConfigurationError, NotKnown
from pubsub.security.authorized import Authorized, Line, Role, make_line, parse
from pubsub.security.files import edit_authorized
from pubsub.security.patterns import EVERYTHING, Pattern

HEADER: Final = "# role  id       key  rights (of clients only: put= get= names= call= serve= status operate)\n"


class Authorization(NamedTuple):
    """The result of an authorize.

    Attributes:
        line: the line as it is now in the file.
        digest: digest of the file after the edit.
        changed: False if the file had this line already.
    """

    line: Line
    digest: str
    changed: bool


class Revocation(NamedTuple):
    """The result of a revoke.

    Attributes:
        went: the removed lines.
        digest: digest of the file after the edit.
        still: users of other lines with a pattern that still matches the revoked ID.
    """

    went: tuple[Line, ...]
    digest: str
    still: tuple[str, ...]


def authorize_line(path: Path, role: Role, name: Pattern, key: bytes, words: list[str]) -> Authorization:
    """Add a line to the access list, or change the rights of a key that it has already.

    Args:
        path: the file; it is created if it does not exist.
        words: rights as written in the file. Without any, a client gets the rights that its ID has by another key. If
            there is no other key, it gets put=* get=*.

    Raises:
        CallerError: a word is not a right.
        ConfigurationError: the key belongs to another ID, or the file cannot be used.
    """
    try:
        line = make_line(role, name, key, words)
    except ValueError as error:
        raise CallerError(str(error)) from None
    wanted: list[Line] = []

    def change(text: str) -> str:
        text = text or HEADER  # The file does not exist yet.
        now = parse(text.encode(), str(path))
        wanted.append(line if words or line.role is not Role.CLIENT else _with_usual_rights(line, now))
        before = now.by_key.get(key)
        if before is None:
            return f"{text}{wanted[0]}\n"
        if (before.role, before.id) != (line.role, line.id):
            raise ConfigurationError(
                f"authorized file {path}, line {before.number}: this key belongs to {before.role} {before.id}; "
                "make a key for each process with pubsub keys new"
            )
        return text if before == wanted[0] else _replaced(text, {before.number: str(wanted[0])})

    old, new = edit_authorized(path, change)
    return Authorization(wanted[0], new.digest, new.digest != old.digest)


def revoke_lines(path: Path, who: str, key: bytes | None, role: Role | None) -> Revocation:
    """Remove lines from the access list.

    Args:
        who: ID, as written in the lines.
        key: remove only the line of this key; None removes all lines of the ID.
        role: remove only lines of this role; None requires that all lines found have the same role.

    Raises:
        NotKnown: no line matches.
        ConfigurationError: lines of several roles match, or the file cannot be used.
    """
    if not path.exists():
        raise ConfigurationError(f"authorized file {path}: No such file or directory")
    went: list[Line] = []

    def change(text: str) -> str:
        lines = parse(text.encode(), str(path)).lines
        meant = [line for line in lines if (line.key == key if key is not None else str(line.id) == who)]
        went.extend(line for line in meant if role in {None, line.role})
        if not went:
            raise NotKnown(f"authorized file {path} has no line of {f'{role} ' if role else ''}{who}")
        roles = sorted({line.role.value for line in went})
        if len(roles) > 1:
            raise ConfigurationError(f"{who} is the ID of a {' and of a '.join(roles)}; choose one with --role")
        return _replaced(text, dict.fromkeys((line.number for line in went), ""))

    _, new = edit_authorized(path, change)
    still = () if key is not None else tuple(line.user for line in new.lines if _stands_for(line, went[0].role, who))
    return Revocation(tuple(went), new.digest, still)


def _stands_for(line: Line, role: Role, name: str) -> bool:
    return line.role is role and "*" not in name and line.id.matches(name)


def _with_usual_rights(line: Line, now: Authorized) -> Line:
    """Return the line with the rights of its ID's other keys, or with put=* get=* if there is none.

    Raises:
        ConfigurationError: the ID has different rights by different keys.
    """
    others = [one for one in now.lines if one.role is line.role and one.id == line.id]
    same = next((one for one in others if one.key == line.key), None)
    if same is not None:
        return same
    found = {one.rights for one in others}
    if len(found) > 1:
        numbers = ", ".join(str(one.number) for one in others)
        raise ConfigurationError(
            f"client {line.id} has different rights in lines {numbers}; give this key's rights: --put, --get …"
        )
    if others:
        return replace(others[0], key=line.key)
    return replace(line, put=(EVERYTHING,), get=(EVERYTHING,))


def _replaced(text: str, lines: dict[int, str]) -> str:
    """Return the text with the given lines replaced, by number from 1. A replacement of "" removes the line."""
    kept = [lines.get(number, line) for number, line in enumerate(text.split("\n")[:-1], 1) if lines.get(number) != ""]
    return "".join(f"{line}\n" for line in kept) or HEADER
