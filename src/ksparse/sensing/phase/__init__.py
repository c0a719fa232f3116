"""The laboratory: how many measurements an algorithm needs, found by trying.

`run` tries an algorithm over a grid of n and K and gives a `Phase`; `minimum_n` looks for the fewest measurements of
one K; `donoho_tanner` is what theory says of the l1 norm.  `Experiment`, `run_all`, `Ledger`, `Pool`,
`Cluster` and `collect` are the parts for other experiments: trials that depend on their seed alone, in parallel, and a
file that survives a kill.
"""

from ._cluster import Cluster, make_pool
from ._experiment import Experiment, stream
from ._fit import wilson
from ._grid import make_grid
from ._lab import RESULTS, collect, interruptible, read, run, run_all, tell_mended
from ._ledger import Ledger, locked, read_records, set_aside
from ._parallel import Pool, Workers, timed
from ._report import write_report
from ._result import Curve, MinimumN, Phase
from ._search import minimum_n
from ._threshold import donoho_tanner

__all__ = [
    "RESULTS",
    "Cluster",
    "Curve",
    "Experiment",
    "Ledger",
    "MinimumN",
    "Phase",
    "Pool",
    "Workers",
    "collect",
    "donoho_tanner",
    "interruptible",
    "locked",
    "make_grid",
    "make_pool",
    "minimum_n",
    "read",
    "read_records",
    "run",
    "run_all",
    "set_aside",
    "stream",
    "tell_mended",
    "timed",
    "wilson",
    "write_report",
]
