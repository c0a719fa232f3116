"""A line on the terminal while a run is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(show: bool, callback: Callable[[Any], Any] | None = None) -> Iterator[Callable[[Any], Any] | None]:
    """A callback for `minimize` that shows each stage and then asks the given one; just the given one unless `show`."""
    if not show:
        yield callback
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:

        def tell(now: Any) -> Any:
            status.update(f"stage {now.stage}: objective {now.objective:.6g}, {now.seconds:.1f} s")
            return callback(now) if callback is not None else None

        yield tell
