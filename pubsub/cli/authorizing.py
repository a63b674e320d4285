"""Changes of the file of who is authorized: one line comes, or some go, and every other line stays as it is written."""

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
    """What an authorize did.

    Attributes:
        line: as it stands now.
        digest: of the file as it is now.
        changed: False: it was like this before.
    """

    line: Line
    digest: str
    changed: bool


class Revocation(NamedTuple):
    """What a revoke did.

    Attributes:
        went: the lines that are gone.
        digest: of the file as it is now.
        still: users whose lines match the ID that was revoked all the same, by a pattern.
    """

    went: tuple[Line, ...]
    digest: str
    still: tuple[str, ...]


def authorize_line(path: Path, role: Role, name: Pattern, key: bytes, words: list[str]) -> Authorization:
    """Puts a line into the file, or gives a key that is in it other rights.

    Args:
        path: the file; it is made where there is none.
        role, name, key: the line's.
        words: rights as the file has them; none: those that the ID has by another key, else put=* get=*.

    Raises:
        CallerError: a right is none.
        ConfigurationError: the key is another ID's, or the file cannot be used.
    """
    try:
        line = make_line(role, name, key, words)
    except ValueError as error:
        raise CallerError(str(error)) from None
    wanted: list[Line] = []

    def change(text: str) -> str:
        text = text or HEADER  # There is no file yet.
        now = parse(text.encode(), str(path))
        wanted.append(line if words or line.role is not Role.CLIENT else _with_usual_rights(line, now))
        before = now.by_key.get(key)
        if before is None:
            return f"{text}{wanted[0]}\n"
        if (before.role, before.id) != (line.role, line.id):
            raise ConfigurationError(
                f"authorized file {path}, line {before.number}: this key is {before.role} {before.id}'s already; "
                "each process has a key of its own"
            )
        return text if before == wanted[0] else _replaced(text, {before.number: str(wanted[0])})

    old, new = edit_authorized(path, change)
    return Authorization(wanted[0], new.digest, new.digest != old.digest)


def revoke_lines(path: Path, who: str, key: bytes | None, role: Role | None) -> Revocation:
    """Takes lines out of the file.

    Args:
        path: the file.
        who: the ID, as the lines have it.
        key: the one key; None: all of the ID.
        role: whose; None: that of the only role that has the ID.

    Raises:
        NotKnown: no line is meant.
        ConfigurationError: lines of several roles are meant, or the file cannot be used.
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
            raise ConfigurationError(f"{who} is the ID of a {' and of a '.join(roles)}: --role says whose")
        return _replaced(text, dict.fromkeys((line.number for line in went), ""))

    _, new = edit_authorized(path, change)
    still = () if key is not None else tuple(line.user for line in new.lines if _stands_for(line, went[0].role, who))
    return Revocation(tuple(went), new.digest, still)


def _stands_for(line: Line, role: Role, name: str) -> bool:
    return line.role is role and "*" not in name and line.id.matches(name)


def _with_usual_rights(line: Line, now: Authorized) -> Line:
    """The line with the rights that its ID has by other keys, or with the usual ones.

    Raises:
        ConfigurationError: its ID has different rights by different keys.
    """
    others = [one for one in now.lines if one.role is line.role and one.id == line.id]
    same = next((one for one in others if one.key == line.key), None)
    if same is not None:
        return same
    found = {one.rights for one in others}
    if len(found) > 1:
        numbers = ", ".join(str(one.number) for one in others)
        raise ConfigurationError(f"client {line.id} has different rights in lines {numbers}; say which this key has")
    if others:
        return replace(others[0], key=line.key)
    return replace(line, put=(EVERYTHING,), get=(EVERYTHING,))


def _replaced(text: str, lines: dict[int, str]) -> str:
    """The text with some lines, by number from 1, written anew; those that become "" are taken out."""
    kept = [lines.get(number, line) for number, line in enumerate(text.split("\n")[:-1], 1) if lines.get(number) != ""]
    return "".join(f"{line}\n" for line in kept) or HEADER
