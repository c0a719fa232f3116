"""Solvers: one file per algorithm, and `exchange/` for the search.  ``SOLVERS`` names all that `minimize` can run.

`base.py` is what all share, `pursuit.py` what pursuits share, `descent.py` what methods with full gradients share.  The
loop around them is `ksparse.engine`.  A solver is loaded when it is first used: most need compiled code, pursuits in
`recover` do not.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cosamp import CoSaMP as CoSaMP
    from .exchange import Exchange as Exchange
    from .grahtp import GraHTP as GraHTP
    from .grasp import GraSP as GraSP
    from .htp import HTP as HTP
    from .htsaga import HTSAGA as HTSAGA
    from .htsvrg import HTSVRG as HTSVRG
    from .iht import IHT as IHT
    from .niht import NIHT as NIHT
    from .omp import OMP as OMP
    from .ompr import OMPR as OMPR
    from .pgd import PGD as PGD
    from .romp import ROMP as ROMP
    from .sp import SubspacePursuit as SubspacePursuit
    from .stoiht import StoIHT as StoIHT

_HOME = {
    "CoSaMP": "cosamp",
    "Exchange": "exchange",
    "GraHTP": "grahtp",
    "GraSP": "grasp",
    "HTP": "htp",
    "HTSAGA": "htsaga",
    "HTSVRG": "htsvrg",
    "IHT": "iht",
    "NIHT": "niht",
    "OMP": "omp",
    "OMPR": "ompr",
    "PGD": "pgd",
    "ROMP": "romp",
    "SubspacePursuit": "sp",
    "StoIHT": "stoiht",
}
_CLASS = {
    "ht-svrg": "HTSVRG",
    "ht-saga": "HTSAGA",
    "stoiht": "StoIHT",
    "iht": "IHT",
    "niht": "NIHT",
    "pgd": "PGD",
    "htp": "HTP",
    "cosamp": "CoSaMP",
    "sp": "SubspacePursuit",
    "omp": "OMP",
    "romp": "ROMP",
    "ompr": "OMPR",
    "grasp": "GraSP",
    "grahtp": "GraHTP",
    "exchange": "Exchange",
}

__all__ = ["SOLVERS", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ksparse.solvers' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


class _Solvers(Mapping[str, type[Any]]):
    """From names to classes, which are loaded when they are asked for."""

    def __getitem__(self, name: str) -> type[Any]:
        return __getattr__(_CLASS[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASS)

    def __len__(self) -> int:
        return len(_CLASS)

    def __contains__(self, name: object) -> bool:
        return name in _CLASS

    def name_of(self, solver: Any) -> str:
        """The name of a solver's class; that of a class of the user's own is its name in Python."""
        own = type(solver)
        name = next((name for name, known in _CLASS.items() if known == own.__name__), None)
        return name if name is not None and self[name] is own else own.__name__


SOLVERS = _Solvers()
