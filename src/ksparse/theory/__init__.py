"""The theory as functions: the tight bound of hard thresholding, what follows for recovery and rates, and certificates.

`bounds`, `rip`, `rates` and `rivals` are formulas of numbers; `spectrum`, `curvature`, `conditions`, `certificate` and
`plan` work on data.  The solvers that the theory is about are in ``ksparse.solvers``.
"""

from .bounds import deviation_bound, deviation_factor, extremal_pair, nu, nu_from_rho, rho, rho_from_nu, smallest_k
from .certificate import Certificate, certificate
from .curvature import Curvature, curvature
from .plan import Plan, plan
from .rates import (
    Q,
    Recipe,
    condition_number,
    distance_bound,
    largest_condition,
    largest_nu,
    minimum_k,
    minimum_m,
    objective_bound,
    optimal_nu,
    rate,
    recipe,
    recipe_tail,
    stages,
    tail,
)
from .rip import (
    Isometry,
    coherence,
    largest_k,
    measurement_ratio,
    measurements,
    noise_amplification,
    restricted_isometry,
    rip_order,
    rip_rate,
    rip_threshold,
)
from .rivals import Cost, cost, gradient_scale, pgd_rate, saga_rate
from .spectrum import Bracket

__all__ = [
    "Bracket",
    "Certificate",
    "Cost",
    "Curvature",
    "Isometry",
    "Plan",
    "Q",
    "Recipe",
    "certificate",
    "coherence",
    "condition_number",
    "cost",
    "curvature",
    "deviation_bound",
    "deviation_factor",
    "distance_bound",
    "extremal_pair",
    "gradient_scale",
    "largest_condition",
    "largest_k",
    "largest_nu",
    "measurement_ratio",
    "measurements",
    "minimum_k",
    "minimum_m",
    "noise_amplification",
    "nu",
    "nu_from_rho",
    "objective_bound",
    "optimal_nu",
    "pgd_rate",
    "plan",
    "rate",
    "recipe",
    "recipe_tail",
    "restricted_isometry",
    "rho",
    "rho_from_nu",
    "rip_order",
    "rip_rate",
    "rip_threshold",
    "saga_rate",
    "smallest_k",
    "stages",
    "tail",
]
