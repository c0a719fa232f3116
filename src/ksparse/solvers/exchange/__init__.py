"""The search for the best columns, groups of columns or shared features: `Exchange` and `joint`, paths and folds.

`search.py` is what all of them call; `squared.py` and `grouped.py` (exact models of least squares) and `smooth.py`
(local models of other losses) do the work, by the pivots of `pivots.py` and `group_pivots.py`.  `joint` is loaded when
it is first used.
"""

from .exchange import Exchange as Exchange
