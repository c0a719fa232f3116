"""The command line: commands that call the functions of the package; no algorithm lives here.

fit.py, predict.py, theory.py and experiments.py hold the commands (two each); options.py, models.py, saved.py and
session.py what they share.  Slow imports stand inside functions, so that ``ksparse --help`` is fast.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import experiments, fit, predict, theory
from .options import CommandWithLoss
from .session import fail, standard_output


class Commands(TyperGroup):
    """The group of all commands: it writes the rest of their output, so that a full disk there is one line too."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with standard_output():
                found = super().invoke(ctx)
                sys.stdout.flush()
                return found
        except BrokenPipeError:
            raise
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}", 1)


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=Commands,
    help="Models with at most k features from files of any size; bounds, plans and certificates; how many measurements "
    "recovery takes.",
)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    # a file that is opened later must not become one of the standard streams
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        fail("the standard output is closed; send it to a file or to /dev/null", 2)
    if version:
        from .. import __version__

        print(__version__)
        raise typer.Exit


app.command()(theory.bound)
for command in (theory.plan, fit.fit, fit.path):
    app.command(cls=CommandWithLoss)(command)
for command in (predict.predict, predict.info, experiments.phase, experiments.paper):
    app.command()(command)
