"""Solvers: one file an algorithm, kernel beneath class.  ``SOLVERS`` names all that `minimize` can run.

`joint` is loaded when it is asked for, so that others do not wait for it.
"""

from .exchange import Exchange
from .htsaga import HTSAGA
from .htsvrg import HTSVRG
from .iht import IHT
from .pgd import PGD
from .stoiht import StoIHT

SOLVERS = {"ht-svrg": HTSVRG, "ht-saga": HTSAGA, "pgd": PGD, "iht": IHT, "stoiht": StoIHT, "exchange": Exchange}

__all__ = ["HTSAGA", "HTSVRG", "IHT", "PGD", "SOLVERS", "Exchange", "StoIHT"]
