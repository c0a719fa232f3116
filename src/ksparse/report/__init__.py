"""A fit as a page that can be shown around: what was chosen, what it is worth, how well it predicts, what is certain.

`fit_page` gives the page as text, `write_page` writes it; rows that the fit has not seen are a `HeldOut`.  A page needs
nothing but itself: no script, no other file, no network.
"""

from ._held_out import HeldOut
from ._page import fit_page, write_page

__all__ = ["HeldOut", "fit_page", "write_page"]
