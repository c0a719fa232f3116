"""The laboratory: how many measurements does an algorithm need?

`run` counts successes over a grid of n and K and gives a `Phase`; `minimum_n` searches the fewest measurements for one
K; `donoho_tanner` is the theoretical limit of the l1 norm.  The other names are parts for other experiments: trials
that depend on their seed only (`experiment`), run in parallel (`workers`), into a file that survives a kill (`ledger`).
The algorithms themselves are in ``ksparse.sensing`` and ``ksparse.solvers``.
"""

from .experiment import Experiment, make_grid, stream
from .lab import RESULTS, cannot_write, collect, interruptible, minimum_n, open_file, read, run, run_all, tell_mended
from .ledger import Ledger, check_settings, locked, read_records, set_aside
from .result import Curve, MinimumN, Phase, wilson, write_report
from .threshold import donoho_tanner
from .workers import Cluster, Pool, Workers, make_pool, timed

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
    "cannot_write",
    "check_settings",
    "collect",
    "donoho_tanner",
    "interruptible",
    "locked",
    "make_grid",
    "make_pool",
    "minimum_n",
    "open_file",
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
