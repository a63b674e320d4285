"""Accepts text on the command line as given, without the library that typer checks values with.

typer passes each value to pydantic, whose import takes longer than the rest of a small put. An absent value, a text and
a path need no checking: the rules of `pubsub.config` and the protocol read them. Neither does a flag. A plain number
within its bounds is read here. Everything else, such as a number out of bounds, is checked as usual and gets typer's
message. If typer's internals have changed, all values are.

The option of a state directory is `--dir` in every command. Its old names, `--data` and `--directory`, are accepted
too, but help and completion do not show them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any, Final

import typer

from pubsub.console.docstrings import restore

_OLD_NAMES: Final = ("--data", "--directory")
"""Former names of `--dir`."""

_PLAIN: Final = {int: re.compile(r"-?[0-9]{1,15}"), float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")}
"""Type of a number -> form of the texts that this module reads itself."""

try:
    from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
except ImportError:  # Special case: another version of typer. Commands are then slower and still right.

    def prepared(app: typer.Typer) -> Any:
        """Return the command of an application."""
        restore(app)
        command = typer.main.get_command(app)
        _take_old_forms(command)
        return command

else:

    @dataclass(frozen=True)
    class _AsGiven(RuntimeParam):
        descriptor: TypeDescriptor

        def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
            if self.annotation is str and isinstance(value, str):
                return value
            if self.annotation is Path and isinstance(value, str | Path):
                return Path(value)
            if self.annotation is bool and isinstance(value, bool):
                return value
            if self.annotation in _PLAIN and (number := _number(self.annotation, value)) is not None:
                bounds = self.parameter_info.min, self.parameter_info.max
                if _within(number, *bounds):
                    return number
            if self.annotation == list[str] and all(isinstance(word, str) for word in value):
                return list(value)
            return build_runtime_param(self.descriptor).coerce(value, param, ctx)

    def prepared(app: typer.Typer) -> Any:
        """Return the command of an application, with parameters that accept text as given."""
        restore(app)
        command = typer.main.get_command(app)
        _prepare(command)
        _take_old_forms(command)
        return command

    def _prepare(command: Any) -> None:
        for parameter in command.get_params(typer.Context(command)):
            descriptor = getattr(parameter, "type_descriptor", None)
            if isinstance(descriptor, TypeDescriptor):
                parameter._runtime_param = _AsGiven(
                    parameter_info=descriptor.parameter_info, annotation=descriptor.annotation, descriptor=descriptor
                )
        for subcommand in getattr(command, "commands", {}).values():
            _prepare(subcommand)


def _number(kind: Any, value: Any) -> float | None:
    """Return a number of its type, or None if its text has another form than the plain one."""
    if type(value) is kind:
        return float(value) if kind is float else int(value)
    if isinstance(value, str) and _PLAIN[kind].fullmatch(value):
        return float(value) if kind is float else int(value)
    return None


def _within(number: float, least: float | None, most: float | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


def _take_old_forms(command: Any) -> None:
    """Make each `--dir` accept its old names, and leave hidden arguments out of the usage line."""
    for parameter in command.params:
        if "--dir" in parameter.opts:
            parameter.add_to_parser = MethodType(_add_with_old_names, parameter)
        elif getattr(parameter, "hidden", False):
            parameter.get_usage_pieces = lambda _: []
    for subcommand in getattr(command, "commands", {}).values():
        _take_old_forms(subcommand)


def _add_with_old_names(option: Any, parser: Any, ctx: Any) -> None:
    shown = option.opts
    option.opts = [*shown, *_OLD_NAMES]
    try:
        type(option).add_to_parser(option, parser, ctx)
    finally:
        option.opts = shown
