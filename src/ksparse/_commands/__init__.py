"""What the commands share."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import disk_is_full
from ._wording import as_options

NOTHING = "nothing was written"

Scheduler = Annotated[
    str | None,
    typer.Option(help="A Dask cluster instead of processes: tcp://host:8786. Not with --jobs; needs the dask extra."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@contextmanager
def errors() -> Iterator[None]:
    """Bad input, or an extra that is not installed, ends with one line and exit code 2."""
    try:
        yield
    except (ValueError, ImportError) as error:
        print(f"error: {as_options(' '.join(str(error).split()))}", file=sys.stderr)
        raise typer.Exit(2) from None
    except MemoryError:
        print("error: the data do not fit into memory", file=sys.stderr)
        raise typer.Exit(2) from None


@contextmanager
def long_run(out: Path, resume: bool) -> Iterator[None]:
    """What may end a run of many trials: Ctrl-C, a lost worker, a disk; and notes on the way."""
    trials = "results.jsonl", "results/*.jsonl"  # of `phase`, and of `paper`
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
        try:
            yield
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except RuntimeError as error:  # a worker died
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except BrokenPipeError:  # whoever read the output has gone: typer ends quietly
            raise
        except OSError as error:
            file, why = error.filename or out, error.strerror or error
            if not disk_is_full(error):
                raise ValueError(f"{file} cannot be written ({why})") from None
            again = "the same command" if resume else "the same command without --no-resume"
            done = any(path.stat().st_size for pattern in trials for path in out.glob(pattern))
            left = f"{out} keeps the trials done, {again} goes on from there" if done else "no trial was kept"
            print(f"error: {file}: {why}; {left}", file=sys.stderr)
            raise typer.Exit(1) from None


def json_text(facts: Any) -> str:
    """One JSON object as text."""
    from .._json import jsonable

    return json.dumps(jsonable(facts), indent=2)


def print_json(facts: Any) -> None:
    show(json_text(facts))


def show(text: str) -> None:
    """Print at once, so that a failure is known while the command can still say what it means."""
    with standard_output():
        print(text, flush=True)


@contextmanager
def standard_output() -> Iterator[None]:
    """Around writes to it: an error says where it happened, and nothing more is tried when Python ends."""
    try:
        yield
    except BrokenPipeError:  # whoever read it has gone: typer ends quietly
        raise
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, error.filename or "the standard output") from None
