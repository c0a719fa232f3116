"""What the pages share: their look (base.css), their pictures, and names that may hold anything."""

from ._svg import Key, Picture, describe, draw_picture, without_markup
from ._template import check_tools, render, visible

__all__ = ["Key", "Picture", "check_tools", "describe", "draw_picture", "render", "visible", "without_markup"]
