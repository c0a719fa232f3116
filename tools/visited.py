"""Which files of ksparse a reader visits to follow one call: `python tools/visited.py` prints them for four calls.

A file is visited if one of its functions is called, in Python (seen by sys.setprofile) or in compiled code (the kernels
that are called, and every function that their code names).  Imports and class definitions do not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes

import ksparse
from ksparse import HTSVRG, KSparseClassifier, minimize, recover
from ksparse._jit import Kernel

ROOT = Path(ksparse.__file__).parent
LIMITS = {"classifier": 14, "minimize": 12, "recover": 14, "fit --cv": 30}


def files_of_kernel(function: Any, seen: set[Any]) -> set[str]:
    """The files of a compiled function and of all compiled functions that it names."""
    function = getattr(function, "py_func", getattr(function, "__wrapped__", function))
    if function in seen:
        return set()
    seen.add(function)
    files = {function.__code__.co_filename}
    for name in function.__code__.co_names:
        named = function.__globals__.get(name)
        for rule in getattr(named, "rules", {}).values():
            files |= files_of_kernel(rule, seen)
        if isinstance(named, Kernel) or hasattr(named, "py_func"):
            files |= files_of_kernel(named, seen)
    return files


def visited(call: Any) -> list[str]:
    """The files of the package that a call visits, sorted."""
    files: set[str] = set()
    kernels: set[Any] = set()

    def look(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in ("<module>", "<lambda>") and not _is_class_body(frame):
            files.add(code.co_filename)
            if code is Kernel.__call__.__code__:
                kernels.add(frame.f_locals["self"])

    call()  # the first call imports and compiles
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    seen: set[Any] = set()
    for kernel in kernels:
        files |= files_of_kernel(kernel, seen)
    own = (Path(name) for name in files if name.startswith(str(ROOT)))
    return sorted(str(path.relative_to(ROOT)) for path in own)


def _is_class_body(frame: Any) -> bool:
    return "__qualname__" in frame.f_locals and "__module__" in frame.f_locals


def calls(folder: Path) -> dict[str, Any]:
    """The four calls whose files are counted."""
    from ksparse.cli import app

    cancer, diabetes = load_breast_cancer(return_X_y=True), load_diabetes(as_frame=True).frame
    table = folder / "table.csv"
    diabetes.to_csv(table, index=False)
    rng = np.random.default_rng(0)
    A = rng.standard_normal((80, 200))
    y = A[:, :5] @ np.ones(5)
    command = ["fit", str(table), "--target", "target", "--cv", "3", "--out", str(folder / "model.json")]
    return {
        "classifier": lambda: KSparseClassifier(k=5).fit(*cancer),
        "minimize": lambda: minimize(A, y, 5, solver=HTSVRG(stages=5, tol=0.0), random_state=0),
        "recover": lambda: recover(A, y, 10),
        "fit --cv": lambda: app(command, standalone_mode=False),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the names of the files too")
    chosen = parser.parse_args()
    above = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)).items():
            files = visited(call)
            above += len(files) > LIMITS[name]
            print(f"{name:12} {len(files):3} files (at most {LIMITS[name]})", file=sys.stderr)
            if chosen.names:
                print("\n".join(f"    {file}" for file in files), file=sys.stderr)
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
