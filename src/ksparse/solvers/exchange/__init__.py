"""The search: exchanges of columns (`exchange.py`) or of groups of columns (`joint.py`) in a quadratic model.

`search.py` is the course that both share; `tableau.py` and `groups.py` are the model for columns and for groups.  Many
k at once are solved by `path.py`: `walk.py` goes up and down over k, `pivots.py` is its model, `squared.py` and
`smooth.py` are the two kinds of losses.  `joint` is loaded when it is first used.
"""

from .exchange import Exchange as Exchange
