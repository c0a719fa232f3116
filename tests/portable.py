"""Run the tests as other processors would: `make test-portable`, or `python tests/portable.py NAME ... -- OPTION ...`.

Rounding depends on the processor: BLAS, NumPy's loops and numba's code each use the widest instructions it has.  Every
setting below makes them use others.  A setting that this processor cannot run, or that changes nothing, is skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from llvmlite import binding

FOUND = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
HOST = binding.get_host_cpu_features()
NARROW = {  # NumPy's own loops and numba's code without AVX-512
    "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in FOUND if name == "X86_V4" or name.startswith("AVX512")),
    "NUMBA_CPU_FEATURES": ",".join(f"{'+-'['avx512' in name or not HOST[name]]}{name}" for name in sorted(HOST)),
}
SETTINGS = {
    "prescott-narrow": {"OPENBLAS_CORETYPE": "Prescott", **NARROW},
    "prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "haswell-narrow": {"OPENBLAS_CORETYPE": "Haswell", **NARROW},
    "skylakex": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "zen": {"OPENBLAS_CORETYPE": "Zen"},
    "generic": {"NUMBA_CPU_NAME": "generic", "NPY_DISABLE_CPU_FEATURES": " ".join(FOUND)},
}
# What rounding depends on: the kernels of OpenBLAS, the loops of NumPy, the target of numba.  The products are there
# because OpenBLAS takes the kernels it is told to take, even if the processor does not have their instructions.
PROBE = """
import numba.core.codegen, numpy, scipy.linalg, threadpoolctl
scipy.linalg.solve(numpy.eye(300), numpy.ones((300, 300)) @ numpy.ones((300, 300)))
print(sorted(str(library.get("architecture")) for library in threadpoolctl.threadpool_info()))
print(numpy.show_config(mode="dicts")["SIMD Extensions"].get("found"))
print(numba.core.codegen.JITCPUCodegen("probe").magic_tuple())
"""


def probe(environment: dict[str, str]) -> str:
    """What rounding depends on under a setting; empty if the processor cannot run it."""
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def main(names: list[str], options: list[str]) -> int:
    """Run the tests under the settings of these names, or all, and print one line for each; 1 if any failed."""
    known = {probe(dict(os.environ)): "make test", "": ""}
    ends = {}
    for name in names or SETTINGS:
        # a cache of its own: compiled code depends on the processor
        environment = {**os.environ, **SETTINGS[name], "NUMBA_CACHE_DIR": str(Path(sys.prefix) / "portable" / name)}
        if (what := probe(environment)) in known:
            ends[name] = f"skipped: the same code as {known[what]}" if what else "skipped: not on this processor"
            continue
        known[what] = name
        print(f"== {name}", flush=True)
        tests = [sys.executable, "-m", "pytest", "-q", "-m", "not long", *options]
        ends[name] = "failed" if subprocess.run(tests, env=environment).returncode else "passed"
    print(*(f"{name:16} {end}" for name, end in ends.items()), sep="\n")
    return int("failed" in ends.values())


if __name__ == "__main__":
    cut = [*sys.argv, "--"].index("--")
    sys.exit(main(sys.argv[1:cut], sys.argv[cut + 1 :]))
