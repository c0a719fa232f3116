"""A page from its template."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any


def check_tools() -> None:
    """Raise if something is missing that a page is made with."""
    for name in ("matplotlib", "jinja2"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise ImportError(f"figures and page need {name}; pip install 'ksparse[report]' brings it") from None


def render(package: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """The page.html of a package with these values; its `styles`, and the head.html that it includes, are shared."""
    from markupsafe import Markup

    styles = Markup(_read(__package__, "base.css"))
    return _template(package, tuple(filters.items())).render(styles=styles, **values)


@lru_cache(maxsize=4)
def _template(package: str, filters: tuple[tuple[str, Callable[..., Any]], ...]) -> Any:
    from jinja2 import DictLoader, Environment

    shared = DictLoader({"head.html": _read(__package__, "head.html")})
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, loader=shared
    )
    environment.filters.update(filters)
    return environment.from_string(_read(package, "page.html"))


def visible(text: Any) -> str:
    r"""A name with nothing hidden in it: what cannot be seen, or turns the direction of writing, as Python writes it.

    >>> print(visible("a\nb"), visible("x\u202ey"), visible("größe"), visible(""))
    a\nb x\u202ey größe ""
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    return shown if shown.strip() else f'"{shown}"'


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
