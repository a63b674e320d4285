"""Takes text on the command line as it is, without the library that typer checks values with.

typer hands each value to pydantic, whose import takes longer than all else that a small put does. A value that is not
given, a text and a path need no checking: the rules of `pubsub.config` and the protocol read them. Everything else (a
number with bounds) goes the usual way, and so does all of it with a typer that is made differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pubsub.console.docstrings import restore

try:
    from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
except ImportError:  # Special case: another typer; then commands are slower, and right.

    def prepared(app: typer.Typer) -> Any:
        """The command of an application."""
        restore(app)
        return typer.main.get_command(app)

else:

    @dataclass(frozen=True)
    class _AsGiven(RuntimeParam):
        descriptor: TypeDescriptor

        def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
            if self.annotation is str and isinstance(value, str):
                return value
            if self.annotation is Path and isinstance(value, str | Path):
                return Path(value)
            if self.annotation == list[str] and all(isinstance(word, str) for word in value):
                return list(value)
            return build_runtime_param(self.descriptor).coerce(value, param, ctx)

    def prepared(app: typer.Typer) -> Any:
        """The command of an application, its parameters made to take text as it is."""
        restore(app)
        command = typer.main.get_command(app)
        _prepare(command)
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
