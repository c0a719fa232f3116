"""Pictures inside a page: drawings whose colours are those of the page, whatever its light."""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any, NamedTuple

from .._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SETTINGS, SKY, YELLOW, as_svg
from ._template import visible

# variables of the page's style sheet, by the colours that matplotlib writes
COLOURS = {
    BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple", SKY: "sky", YELLOW: "yellow", BLACK: "ink",
    "#ffffff": "card", "#b0b0b0": "grid",
}  # fmt: skip
SPACE = re.compile(r"^\{[^}]*\}")
LONG = re.compile(r"-?\d+\.\d{3,}")
REFERENCE = re.compile(r"url\(#([^)]+)\)")


class Key(NamedTuple):
    """An entry of a legend, set beneath the picture: there it can wrap, and be read aloud."""

    name: str
    color: str
    dashes: str


class Picture(NamedTuple):
    """A drawing, as markup that is safe to stand in a page, and its legend."""

    svg: str
    key: list[Key]


def draw_picture(draw: Callable[[], Any], label: str, mark: str) -> Picture:
    """What a function draws (it returns the axes), with words for those who do not see it.

    `mark` tells the parts of this picture from those of others on the page.  Settings of the user do not change it.
    """
    import matplotlib.style as style

    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that matplotlib's font lacks: the browser has them
        ax = draw()
        words = "; ".join([label, *(before + without_markup(text) for before, text in describe(ax) if text)])
        key = _take_legend(ax)
        return Picture(_inline(as_svg(ax), words, mark), key)


def _take_legend(ax: Any) -> list[Key]:
    legend = ax.get_legend()
    if legend is None:
        return []
    dashes = {"-": "none", "--": "6 3", "-.": "6 3 1.5 3", ":": "1.5 3"}
    keys = []
    for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True):
        colour = f"var(--{COLOURS[str(line.get_color())]})"
        keys.append(Key(visible(text.get_text().replace(r"\$", "$").strip()), colour, dashes[line.get_linestyle()]))
    legend.remove()
    return keys


def _inline(drawing: bytes, label: str, mark: str) -> str:
    """The drawing as an element of a page: marks, colours and styles of its own do not leak out."""
    root = ElementTree.fromstring(drawing)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = SPACE.sub("", element.tag)
        if element.tag == "g":
            element.attrib.pop("id", None)  # nobody refers to it
        element.attrib = {SPACE.sub("", name): _attribute(name, value, mark) for name, value in element.attrib.items()}
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return re.sub(r">\s+<", "><", ElementTree.tostring(root, encoding="unicode"))


def _attribute(name: str, value: str, mark: str) -> str:
    if name == "id":
        return f"{mark}-{value}"
    if name.endswith("href"):
        return f"#{mark}-{value[1:]}"
    if name == "style":
        value = re.sub(r"font-family:[^;]*;?\s*", "", value)  # the page has its own
        value = re.sub(r"#[0-9a-f]{6}", lambda m: f"var(--{COLOURS[m[0]]})" if m[0] in COLOURS else m[0], value)
    if name == "d":
        value = " ".join(value.split())
    if name in ("d", "x", "y", "style"):
        value = LONG.sub(lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), value)
    return REFERENCE.sub(rf"url(#{mark}-\1)", value)


def describe(ax: Any) -> list[tuple[str, str]]:
    """What the axes and the legend of a picture say, in words."""
    legends = [legend for legend in (ax.get_legend(), *ax.figure.legends) if legend is not None]
    others = [other for other in ax.figure.axes if other is not ax]  # such as the bar of colours
    return [
        ("upwards: ", ax.get_ylabel()),
        ("to the right: ", ax.get_xlabel()),
        ("beside: ", ", ".join(filter(None, (other.get_ylabel() or other.get_xlabel() for other in others)))),
        ("shown: ", ", ".join(f"“{line.get_text()}”" for legend in legends for line in legend.get_texts())),
    ]


def without_markup(text: str) -> str:
    """A label without the marks of formulas, on one line."""
    return " ".join(re.sub(r"\\mathrm|[$\\{}]", "", text).split())
