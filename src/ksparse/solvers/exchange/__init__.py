"""The search: exchanges of columns (`exchange.py`) or of groups of columns (`joint.py`) in a quadratic model.

`search.py` is the course that both share; `tableau.py` and `groups.py` are the model for columns and for groups.
`joint` is loaded when it is first used.
"""

from .exchange import Exchange as Exchange
