"""The HTML page of a fitted model: its features, how well it predicts, how k was chosen, what is certain.

`fit_page` returns the page as text, `write_page` writes it to a file, and `HeldOut` holds rows that the fit has not
seen.  A page is one file without scripts.  `ksparse.paper` uses the same template, style sheet and SVG code.
"""

from .held_out import HeldOut
from .page import fit_page, write_page

__all__ = ["HeldOut", "fit_page", "write_page"]
