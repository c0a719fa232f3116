"""The command line: commands that call the functions of the package; no algorithm lives here.

fit.py, predict.py, theory.py and experiments.py hold the commands (two each) and their options; models.py, saved.py and
session.py what they share.  Slow imports stand inside functions, so that ``ksparse --help`` is fast.
"""

from __future__ import annotations

import typer

from . import experiments, fit, predict, theory
from .session import Commands, main

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=Commands,
    help="Models with at most k features from files of any size; bounds, plans and certificates; how many measurements "
    "recovery takes.",
)

app.callback(invoke_without_command=True)(main)
app.command()(theory.bound)
for command in (theory.plan, fit.fit, fit.path):
    app.command(cls=fit.CommandWithLoss)(command)
for command in (predict.predict, predict.info, experiments.phase, experiments.paper):
    app.command()(command)
