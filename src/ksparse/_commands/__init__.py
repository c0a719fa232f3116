"""What the commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@contextmanager
def errors() -> Iterator[None]:
    """Bad input ends with one line and exit code 2."""
    try:
        yield
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except MemoryError:
        print("error: the data do not fit into memory", file=sys.stderr)
        raise typer.Exit(2) from None


def print_json(facts: Any) -> None:
    from .._json import jsonable

    print(json.dumps(jsonable(facts), indent=2))
