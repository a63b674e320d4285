"""`pubsub keys …`: makes keys and edits the access list.

The secret key of a process is made on its own host and never leaves it. Only its public half travels; an operator adds
it to the access list.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pubsub import console
from pubsub.base.paths import expanded
from pubsub.console.options import KeyFile, ProxiesFile, ProxyAddresses, ProxyKeys
from pubsub.errors import AuthorizedRefused, CallerError, ConfigurationError, InvalidKey
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import PUBLIC, SECRET, format_public, parse_public

if TYPE_CHECKING:
    from pubsub.security.authorized import Line, Role
    from pubsub.security.patterns import Pattern

app = typer.Typer(name="keys", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

AUTHORIZED_VARIABLE: Final = "PUBSUB_AUTHORIZED"
EXIT_REFUSED: Final = 2

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
File = Annotated[
    str | None, typer.Option("--authorized", metavar="FILE", help=f"The access list; default: {AUTHORIZED_VARIABLE}.")
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", min=0, max=600, metavar="SECONDS", help="Time limit until all processes have loaded the file."
    ),
]
Patterns = list[str] | None


@app.callback()
def keys() -> None:
    """Make keys, and edit the access list.

    The access list is the file of authorized public keys and their rights.
    """


@app.command()
def new(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="proxy, server or client.")],
    name: Annotated[str, typer.Argument(metavar="ID", help="ID of the process.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="File to write; default: in its state directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print the line for pubsub keys authorize.

    Run it on the host of the process that uses the key. The file is readable by its owner only, and an existing file is
    never overwritten. Without --out a client's key is ID.key next to its state; the key of a proxy or server is the
    file key in its state directory. Example: pubsub keys new client billing.
    """
    from pubsub.cli.key_files import key_path, make

    known = _parsed(role, name)[0].value
    public = make(key_path(known, name, out))
    _print_key(known, name, public, str(key_path(known, name, out)), as_json)


@app.command()
def rotate(
    name: Annotated[str, typer.Argument(metavar="ID", help="ID of the process.")],
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="proxy, server or client.")] = "client",
    key: Annotated[
        str | None, typer.Option("--key", metavar="FILE", help="Its key file; default: in its state directory.")
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Replace the first key by the second.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a second key next to the one in use.

    It prints the line for pubsub keys authorize. After an operator has authorized the second key, run the command again
    with --finish. The second key then replaces the first, and the process uses it from its next start. --finish also
    prints the command that revokes the old key. Run that command after the restart.
    """
    from pubsub.cli.key_files import finish_rotation, key_path, rotate_key

    known = _parsed(role, name)[0].value
    path = key_path(known, name, key)
    if not finish:
        made, second = rotate_key(path)
        _print_key(known, name, made, str(second), as_json)
        return
    old, now = finish_rotation(path)
    facts = {"role": known, "id": name, "key": format_public(now), "old": format_public(old), "file": str(path)}
    console.report(as_json, facts, f"restart {known} {name}, then: pubsub keys revoke {format_public(old)}")


Name = Annotated[
    str, typer.Argument(metavar="ID", help="ID of the process. For a client it may be a pattern, such as spark-*.")
]
Put = Annotated[Patterns, typer.Option("--put", metavar="TOPICS", help="Topics that it may put to, such as a/*,b.")]


Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="Messages that each proxy lets it put in a second: 500/s.")
]
Size = Annotated[
    str, typer.Option("--bytes", metavar="SIZE/s", help="Bytes that each proxy lets it put in a second: 5MiB/s.")
]


def _words(lists: dict[str, list[str] | None], flags: dict[str, bool], limits: dict[str, str]) -> list[str]:
    """Return rights and limits as the file has them."""
    words = [f"{right}={','.join(patterns)}" for right, patterns in lists.items() if patterns]
    words += [right for right, given in flags.items() if given]
    return words + [f"{name}={limit}" for name, limit in limits.items() if limit]


@app.command()
def authorize(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="proxy, server or client.")],
    name: Name,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Public key of the process, pk_…")],
    put: Put = None,
    get: Annotated[Patterns, typer.Option("--get", metavar="TOPICS", help="Topics that it may subscribe to.")] = None,
    names: Annotated[
        Patterns,
        typer.Option("--names", metavar="NAMES", help="Consumer groups and named subscriptions that it may use."),
    ] = None,
    call: Annotated[Patterns, typer.Option("--call", metavar="SERVICES", help="Services that it may call.")] = None,
    serve: Annotated[Patterns, typer.Option("--serve", metavar="SERVICES", help="Services that it may serve.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Allow pubsub status and pubsub top.")] = False,
    operate: Annotated[
        bool, typer.Option("--operate", help="Allow operator commands, such as pubsub topic move, and pubsub status.")
    ] = False,
    rate: Rate = "",
    size: Size = "",
    authorized: File = None,
    wait: Wait = 3.0,
    proxies: ProxyAddresses = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a key to the access list, or replace its rights.

    Without rights, a client gets the rights of its ID's other key; without another key it may put and get every topic.
    If proxies are named and your key may ask for status, the command waits and prints the processes that have the file.

    Example: pubsub keys authorize client billing pk_… --get orders --put invoices/*.
    """
    from pubsub.cli.authorizing import authorize_line
    from pubsub.cli.following import follow, has_key

    lists = {"put": put, "get": get, "names": names, "call": call, "serve": serve}
    words = _words(lists, {"status": status, "operate": operate}, {"rate": rate, "bytes": size})
    done = authorize_line(_path(authorized), *_parsed(role, name), _public(key), words)
    facts = _facts(done.line) | {"digest": done.digest, "changed": done.changed}
    if not as_json:
        typer.echo(_plain(done.line))
    cluster = {"proxies": proxies, "proxies_file": proxies_file, "proxy_keys": proxy_keys, "key_file": key_file}
    if has_key(cluster):
        told = follow(cluster, done.digest, wait)
        facts |= told.facts()
        if not as_json:
            console.note(told.sentence())
    if as_json:
        console.print_json(facts)


@app.command()
def revoke(
    who: Annotated[str, typer.Argument(metavar="ID|KEY", help="An ID with all its keys, or one public key, pk_…")],
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="Only lines of this role: proxy, server or client.")
    ] = None,
    authorized: File = None,
    wait: Wait = 3.0,
    proxies: ProxyAddresses = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove keys from the access list.

    It prints which processes of the cluster have loaded the change. For that, name the proxies and a key that may ask
    for status. A process drops the connections of a revoked key when it loads the file.
    """
    from pubsub.cli.authorizing import revoke_lines
    from pubsub.cli.following import follow

    known = None if role is None else _parsed(role, "any")[0]
    key = _public(who) if who.startswith((PUBLIC, SECRET)) else None
    done = revoke_lines(_path(authorized), who, key, known)
    if not as_json:
        typer.echo("\n".join(f"revoked: {_plain(line)}" for line in done.went))
    for user in done.still:
        console.note(f"{who} may still be used by the key of {user}")
    cluster = {"proxies": proxies, "proxies_file": proxies_file, "proxy_keys": proxy_keys, "key_file": key_file}
    told = follow(cluster, done.digest, wait)
    facts = {"revoked": [_facts(line) for line in done.went], "digest": done.digest, "still": list(done.still)}
    if told.unknown and not as_json:
        console.note(told.sentence())
    else:
        console.report(as_json, facts | told.facts(), told.sentence())


@app.command("list")
def list_keys(authorized: File = None, as_json: AsJson = False) -> None:
    """Print the access list: role, ID, public key and rights of each line."""
    from pubsub.security.files import read_authorized

    found = read_authorized(_path(authorized))
    if as_json:
        console.print_json({"digest": found.digest, "keys": [_facts(line) for line in found.lines]})
        return
    table = console.table("role", "ID", "key", "rights")
    for line in found.lines:
        table.add_row(str(line.role), str(line.id), format_public(line.key), "  ".join(line.rights))
    console.print_table(table)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An access list.")],
    as_json: AsJson = False,
) -> None:
    """Check that a file can be used as an access list. Exit code 2, with the line, if it cannot."""
    from pubsub.security.files import read_authorized

    try:
        found = read_authorized(file)
    except AuthorizedRefused as error:
        if as_json:
            console.print_json({"file": str(file), "line": error.line, "reason": error.reason})
        console.complain(str(error))
        raise typer.Exit(EXIT_REFUSED) from None
    facts = {"file": str(file), "keys": len(found.lines), "digest": found.digest}
    count = "1 key" if len(found.lines) == 1 else f"{len(found.lines):,} keys"
    console.report(as_json, facts, f"{file}: {count}, digest {found.digest}")


def _print_key(role: str, name: str, key: bytes, file: str, as_json: bool) -> None:
    facts = {"role": role, "id": name, "key": format_public(key), "fingerprint": fingerprint(key), "file": file}
    console.report(as_json, facts, f"{role} {name} {format_public(key)}")
    console.note(
        f"the secret key is in {file}; to authorize it: pubsub keys authorize {role} {name} {format_public(key)}"
    )


def _path(given: str | None) -> Path:
    text = given or os.environ.get(AUTHORIZED_VARIABLE)
    if not text:
        raise ConfigurationError(f"no access list is named; give --authorized FILE or set {AUTHORIZED_VARIABLE}")
    return expanded(text)


def _parsed(role: str, name: str) -> tuple[Role, Pattern]:
    """Parse the role and the ID; raises CallerError if one is not valid."""
    from pubsub.security.authorized import parse_name

    try:
        return parse_name(role, name)
    except ValueError as error:
        raise CallerError(str(error)) from None


def _public(text: str) -> bytes:
    try:
        return parse_public(text)
    except InvalidKey as error:
        raise InvalidKey(error.reason, "the key") from None


def _facts(line: Line) -> dict[str, object]:
    from pubsub.security.authorized import LISTS

    lists = {right: [str(one) for one in getattr(line, right)] for right in LISTS}
    return {
        "role": line.role.value,
        "id": str(line.id),
        "key": format_public(line.key),
        "fingerprint": fingerprint(line.key),
        **lists,
        "status": line.status,
        "operate": line.operate,
    }


def _plain(line: Line) -> str:
    return " ".join(str(line).split())
