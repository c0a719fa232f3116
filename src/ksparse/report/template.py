"""The Jinja environment and style sheet that the pages of `ksparse.report` and `ksparse.paper` share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def check_tools() -> None:
    """Raise ImportError if a package that pages need is not installed."""
    for name in ("matplotlib", "jinja2"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise ImportError(f"figures and page need {name}; pip install 'ksparse[report]' brings it") from None


def render(package: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Fill in the page.html of a package; it may include head.html and contains `styles`, both from this folder."""
    from markupsafe import Markup

    styles = resources.files(__package__).joinpath("base.css").read_text(encoding="utf-8")
    environment = _environment(package)
    environment.filters.update(filters)
    return environment.get_template("page.html").render(styles=Markup(styles), **values)


@lru_cache
def _environment(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader

    folders = ChoiceLoader([PackageLoader(package, ""), PackageLoader(__package__, "")])
    return Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, loader=folders
    )
