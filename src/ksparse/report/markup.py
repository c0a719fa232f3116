"""What the pages of `ksparse.report` and `ksparse.paper` share: their template, and figures as SVG inside a page.

The colours of the figures come from the style sheet and follow dark mode.
"""

from __future__ import annotations

import importlib
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from .._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SETTINGS, SKY, YELLOW, as_svg
from .words import visible

if TYPE_CHECKING:
    from jinja2 import Environment

# the colours that matplotlib writes, and the variables of the style sheet that replace them
COLOURS = {
    BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple", SKY: "sky", YELLOW: "yellow", BLACK: "ink",
    "#ffffff": "card", "#b0b0b0": "grid",
}  # fmt: skip
DASHES = {"-": "none", "--": "6 3", "-.": "6 3 1.5 3", ":": "1.5 3"}
NAMESPACE = re.compile(r"^\{[^}]*\}")
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
REFERENCE = re.compile(r"url\(#([^)]+)\)")


# --- the template ----------------------------------------------------------------------------------------------------
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


# --- figures ---------------------------------------------------------------------------------------------------------
class Sketch(NamedTuple):
    """A figure that is not drawn yet: a function that draws it and returns its axes, and texts for the page."""

    draw: Callable[[], Any]
    label: str
    caption: str


class Key(NamedTuple):
    """An entry of a legend.  It stands below the picture, where it can wrap and screen readers find it."""

    name: str
    color: str
    dashes: str


class Picture(NamedTuple):
    """A drawn figure: markup that is safe inside a page, its legend and its caption."""

    svg: str
    key: list[Key]
    caption: str


def draw_picture(sketch: Sketch, prefix: str) -> Picture:
    """Draw a sketch; the user's settings of matplotlib do not change it.

    `prefix` starts every id in the SVG, so that the ids of several pictures on a page differ.
    """
    import matplotlib.style as style

    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that matplotlib's font lacks: the browser has them
        ax = sketch.draw()
        words = [sketch.label, *(before + without_markup(text) for before, text in describe(ax) if text)]
        key = _take_legend(ax)
        return Picture(_inline(as_svg(ax), "; ".join(words), prefix), key, sketch.caption)


def describe(ax: Any) -> list[tuple[str, str]]:
    """The labels of the axes and the legend of a figure, in words: pairs of an introduction and a text."""
    legends = [legend for legend in (ax.get_legend(), *ax.figure.legends) if legend is not None]
    others = [other for other in ax.figure.axes if other is not ax]  # such as a colour bar
    return [
        ("vertical axis: ", ax.get_ylabel()),
        ("horizontal axis: ", ax.get_xlabel()),
        ("further axes: ", ", ".join(filter(None, (other.get_ylabel() or other.get_xlabel() for other in others)))),
        ("legend: ", ", ".join(f"“{line.get_text()}”" for legend in legends for line in legend.get_texts())),
    ]


def without_markup(text: str) -> str:
    """A label without the TeX markup of formulas, on one line."""
    return " ".join(re.sub(r"\\mathrm|[$\\{}]", "", text).split())


def _take_legend(ax: Any) -> list[Key]:
    """Remove the legend from a figure and return its entries."""
    legend = ax.get_legend()
    if legend is None:
        return []
    keys = []
    for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True):
        colour = f"var(--{COLOURS[str(line.get_color())]})"
        keys.append(Key(visible(text.get_text().replace(r"\$", "$").strip()), colour, DASHES[line.get_linestyle()]))
    legend.remove()
    return keys


def _inline(drawing: bytes, label: str, prefix: str) -> str:
    """An SVG file as an element of a page, without styles or ids that would affect the rest of the page."""
    root = ElementTree.fromstring(drawing)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = NAMESPACE.sub("", element.tag)
        if element.tag == "g":
            element.attrib.pop("id", None)  # nothing refers to it
        element.attrib = {NAMESPACE.sub("", name): _attribute(name, value, prefix) for name, value in element.items()}
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return re.sub(r">\s+<", "><", ElementTree.tostring(root, encoding="unicode"))


def _attribute(name: str, value: str, prefix: str) -> str:
    """The value of an attribute with prefixed ids, colours as variables, the page's font and short numbers."""
    if name == "id":
        return f"{prefix}-{value}"
    if name.endswith("href"):
        return f"#{prefix}-{value[1:]}"
    if name == "style":
        value = re.sub(r"font-family:[^;]*;?\s*", "", value)
        value = re.sub(r"#[0-9a-f]{6}", lambda m: f"var(--{COLOURS[m[0]]})" if m[0] in COLOURS else m[0], value)
    if name == "d":
        value = " ".join(value.split())
    if name in ("d", "x", "y", "style"):
        value = LONG_NUMBER.sub(lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), value)
    return REFERENCE.sub(rf"url(#{prefix}-\1)", value)
