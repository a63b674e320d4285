"""One command-line option for every setting of a role, made from the settings themselves.

A new setting therefore has its flag, its environment variable and its place in the file at once, under one name. A bad
value is rejected by the same rule with the same words, wherever it came from. Options are passed on as text: the rules
of `pubsub.config` read them, not the command-line library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import typer

from pubsub.config.loading import Loaded, flag_name, load, role_name
from pubsub.config.rules import RULES
from pubsub.config.settings import ClientSettings, ProxySettings, ServerSettings
from pubsub.console.docstrings import docstring
from pubsub.errors import CallerError, Unavailable

S = TypeVar("S", ProxySettings, ServerSettings, ClientSettings)

Lifeline = Annotated[str | None, typer.Option("--lifeline", hidden=True)]
"""Given by `pubsub up` to its child processes; see `console.end_with_parent`."""

_OUR_KEY: Final = "File with your secret key; default: PUBSUB_CLIENT_KEY_FILE."
"""Help of the key option in commands that have no client ID, and therefore no default place for a key."""

_OF_CLIENT: Final = " By default it is in the user's data directory."
"""Continues the help of a client's state directory."""

_FIRST: Final = (
    "id",
    "bind",
    "advertise",
    "servers",
    "proxies",
    "proxies_file",
    "proxy_keys",
    "directory",
    "key_file",
    "authorized",
)


_LISTS: Final = {"proxies": "ADDR", "proxy_keys": "KEY", "topic_defaults": "RULE"}
"""Settings with an option that is given once for each value, and the word for a value."""

OldDirectory = Annotated[Path | None, typer.Argument(hidden=True)]
"""The state directory without `--dir` before it, as two commands accepted it; see `one_directory`."""

ProxyAddresses = Annotated[list[str] | None, typer.Option("--proxy", metavar="ADDR", help="Address of a proxy.")]
ProxiesFile = Annotated[str | None, typer.Option(metavar="FILE", help="File that lists the proxies, with their keys.")]
ProxyKeys = Annotated[list[str] | None, typer.Option("--proxy-key", metavar="KEY", help="Public key of a proxy, pk_…")]
KeyFile = Annotated[str | None, typer.Option("--key", metavar="FILE", help="File with your secret key.")]
"""Options of commands that work without a cluster, and ask one only if it is named."""

REACHING: Final = frozenset({"proxies", "proxies_file", "proxy_keys", "key_file"})
"""Settings of a client that give the addresses of the proxies and the key for them."""


def takes_settings(
    role: type[S], only: frozenset[str] | None = None, *, unused: frozenset[str] = frozenset()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: its first argument is the role's `Loaded` settings, and it has an option for each setting.

    The command's own parameters follow and come first in its help. `--config` names the TOML file.

    Args:
        role: class of the settings.
        only: settings that have an option; the others come from environment, file and defaults. None: all have one.
        unused: settings that have no effect in this command. Their options are accepted, and the help leaves them out.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own: list[inspect.Parameter] = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        options: list[inspect.Parameter] = _options(role) if only is None else _some_options(role, only)
        options = [_hidden(option) if option.name in unused else option for option in options]
        names = [option.name for option in options]

        def command(**values: Any) -> None:
            flags = {name: values.pop(name) for name in names}
            file = flags.pop("config")
            function(read(role, flags, file), **values)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *options]]
        command.__name__, command.__doc__ = function.__name__, docstring(function)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def read(role: type[S], flags: Mapping[str, Any], file: str | None) -> Loaded[S]:
    """Return the role's settings, with the given flags.

    Raises:
        ConfigurationError: a value is not allowed.
    """
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in flags.items()}
    return load(role, given, file=file)


def one_directory(directory: Path | None, old_form: Path | None) -> Path:
    """Return the state directory, from `--dir` or from the former argument of two commands.

    Raises:
        CallerError: neither is given, or both.
    """
    if (directory is None) == (old_form is None):
        raise CallerError(
            "the directory is named twice; name it by --dir only" if directory else "missing option --dir"
        )
    return directory or old_form  # type: ignore[return-value]


@contextmanager
def naming_default(loaded: Loaded[ClientSettings]) -> Iterator[None]:
    """If no proxy answers at the default address, add to the error how to name another address."""
    try:
        yield
    except Unavailable as error:
        if loaded.origins["proxies"] == "default":
            error.reason += (
                "; this is the default address; name another by --proxy, --proxies-file or PUBSUB_PROXIES_FILE"
            )
        raise


def _options(role: type[S]) -> list[inspect.Parameter]:
    name = role_name(role)
    made = [_option(name, field) for field in fields(role)]
    if any(option.name == "proxies" for option in made):
        made.append(_text("proxies_file", "--proxies-file", "File that lists the proxies, one a line.", "FILE"))
    made.sort(key=lambda option: _FIRST.index(option.name) if option.name in _FIRST else len(_FIRST))
    made.append(_text("config", "--config", "TOML file with settings; default: PUBSUB_CONFIG.", "FILE"))
    return made


def _some_options(role: type[S], only: frozenset[str]) -> list[inspect.Parameter]:
    own = _text("key_file", "--key", _OUR_KEY, "FILE")
    return [own if one.name == "key_file" else one for one in _options(role) if one.name in {*only, "config"}]


def _option(role: str, field: Field[Any]) -> inspect.Parameter:
    setting = field.name
    flag = flag_name(role, setting)
    help_text = RULES[setting].help + (
        _OF_CLIENT if (role, setting) == ("client", "directory") else _shown_default(field)
    )
    if setting in _LISTS:
        metavar = _LISTS[setting]
        annotation: Any = Annotated[list[str] | None, typer.Option(flag, help=help_text, metavar=metavar)]
        return inspect.Parameter(setting, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    if field.type == "bool":
        both = f"{flag}/--no-{flag[2:]}"
        annotation = Annotated[bool | None, typer.Option(both, help=help_text, show_default=False)]
        return inspect.Parameter(setting, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    return _text(setting, flag, help_text, _unit(setting))


def _text(name: str, flag: str, help_text: str, metavar: str) -> inspect.Parameter:
    annotation = Annotated[str | None, typer.Option(flag, help=help_text, metavar=metavar)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _hidden(option: inspect.Parameter) -> inspect.Parameter:
    kind, shown = get_args(option.annotation)
    hidden = copy(shown)
    hidden.hidden = True
    return option.replace(annotation=Annotated[kind, hidden])


def _unit(setting: str) -> str:
    if setting == "id":
        return "ID"
    if setting == "directory":
        return "DIR"
    if setting == "database":
        return "URL"
    if setting in {"record", "key_file", "authorized", "audit_file"}:
        return "FILE"
    if setting in {"bind", "advertise", "servers", "standby_of", "metrics"}:
        return "ADDR"
    if setting == "dead_letters":
        return "WHERE"
    for word in ("seconds", "bytes"):
        if word in setting:
            return word.upper()
    return "N"


def _shown_default(field: Field[Any]) -> str:
    if field.default is MISSING or field.default in {None, ()}:
        return ""
    value = field.default
    shown = " ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
    return f" [{shown}]"
