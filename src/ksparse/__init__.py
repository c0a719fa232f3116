"""ksparse: models with at most k features, and signals with at most k non-zeros.

The names below are loaded when they are first used, so that ``import ksparse`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "hard_threshold": "operators",
    "project_ball": "operators",
    "support": "operators",
    "minimize": "_minimize",
    "checkpoint": "engine.checkpoint",
    "recover": "sensing.recovery",
    "Problem": "problem",
    "Result": "result",
    "Status": "result",
    "HTSVRG": "solvers",
    "HTSAGA": "solvers",
    "PGD": "solvers",
    "IHT": "solvers",
    "StoIHT": "solvers",
    "NIHT": "solvers",
    "HTP": "solvers",
    "CoSaMP": "solvers",
    "SubspacePursuit": "solvers",
    "OMP": "solvers",
    "ROMP": "solvers",
    "OMPR": "solvers",
    "GraSP": "solvers",
    "GraHTP": "solvers",
    "Exchange": "solvers",
    "JointExchange": "solvers.exchange.joint",
    "joint": "solvers.exchange.joint",
    "KSparseClassifier": "estimators",
    "KSparseRegressor": "estimators",
    "KSparseSelector": "estimators",
    "KSparseClassifierCV": "estimators",
    "KSparseRegressorCV": "estimators",
    "k_path": "estimators",
    "support_stability": "estimators",
    "load": "estimators",
}
_MODULES = ("losses", "report", "sensing", "theory")

__all__ = [*_HOME, *_MODULES]

if TYPE_CHECKING:
    from . import losses as losses
    from . import report as report
    from . import sensing as sensing
    from . import theory as theory
    from ._minimize import minimize as minimize
    from .engine.checkpoint import checkpoint as checkpoint
    from .estimators import KSparseClassifier as KSparseClassifier
    from .estimators import KSparseClassifierCV as KSparseClassifierCV
    from .estimators import KSparseRegressor as KSparseRegressor
    from .estimators import KSparseRegressorCV as KSparseRegressorCV
    from .estimators import KSparseSelector as KSparseSelector
    from .estimators import k_path as k_path
    from .estimators import load as load
    from .estimators import support_stability as support_stability
    from .operators import hard_threshold as hard_threshold
    from .operators import project_ball as project_ball
    from .operators import support as support
    from .problem import Problem as Problem
    from .result import Result as Result
    from .result import Status as Status
    from .sensing.recovery import recover as recover
    from .solvers import HTP as HTP
    from .solvers import HTSAGA as HTSAGA
    from .solvers import HTSVRG as HTSVRG
    from .solvers import IHT as IHT
    from .solvers import NIHT as NIHT
    from .solvers import OMP as OMP
    from .solvers import OMPR as OMPR
    from .solvers import PGD as PGD
    from .solvers import ROMP as ROMP
    from .solvers import CoSaMP as CoSaMP
    from .solvers import Exchange as Exchange
    from .solvers import GraHTP as GraHTP
    from .solvers import GraSP as GraSP
    from .solvers import StoIHT as StoIHT
    from .solvers import SubspacePursuit as SubspacePursuit
    from .solvers.exchange.joint import JointExchange as JointExchange
    from .solvers.exchange.joint import joint as joint


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'ksparse' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
