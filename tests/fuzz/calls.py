"""One call of the library, watched: which exceptions and warnings it may give, and what is noted of it."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings

import numpy as np
import scipy.sparse as sparse
from sklearn.exceptions import ConvergenceWarning


class Refused(Exception):
    """The library refused the arguments, as it should."""


class Watch:
    """What is found in one fuzzed call: pairs of (kind, text)."""

    def __init__(self, show=False):
        self.findings: list[tuple[str, str]] = []
        self.function, self.shown, self.refused = "", "", ""
        self._full = show

    def expect(self, holds, kind, text):
        """Note what does not hold, once of a kind."""
        if not holds and kind not in [known for known, _ in self.findings]:
            self.findings.append((kind, text))

    def note(self, function, arguments):
        """What is called, for the reproducer."""
        self.function = function
        self.shown += f"{function}({', '.join(f'{name}={self._text(value)}' for name, value in arguments.items())})\n"

    def _text(self, value):
        if isinstance(value, np.ndarray) or sparse.issparse(value):
            if not self._full:
                return f"<{type(value).__name__} {value.dtype} {value.shape}>"
            if isinstance(value, np.ndarray):
                return f"np.array({value.tolist()!r}, {str(value.dtype)!r})".replace("nan", "np.nan")
            return f"{value.format}_matrix(({value.data.tolist()}, {value.indices.tolist()}, {value.indptr.tolist()}))"
        text = repr(value)
        return text if self._full or len(text) < 80 else f"{text[:77]}..."

    def call(self, function, *positional, names=(), **arguments):
        """The function's answer; raises Refused if it has refused its arguments in so many words."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return function(*positional, **arguments)
            except (ValueError, TypeError) as error:
                known = {name.split("__")[-1] for name in [*names, *arguments, *parameters(function)]} - {
                    "args",
                    "kwargs",
                }
                named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in known)
                frames = traceback.extract_tb(error.__traceback__)
                by_sklearn = "sklearn" in frames[-1].filename  # whose words are a convention of their own
                if not (named or by_sklearn):
                    self.expect(False, f"unnamed {type(error).__name__} at {place(error)}", str(error)[:200])
                self.refused = str(error)
                raise Refused from None
            except Exception as error:
                kind = f"{type(error).__name__} at {place(error)}"
                self.expect(False, kind, "".join(traceback.format_exception(error))[-1500:])
                raise Refused from None
            finally:
                for found in caught:
                    if not issubclass(found.category, (UserWarning, ConvergenceWarning)):
                        where = f"{found.filename.split('site-packages/')[-1].split('src/')[-1]}:{found.lineno}"
                        self.expect(False, f"{found.category.__name__} at {where}", str(found.message))


def parameters(function):
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def place(error):
    """The last line of the library that an exception passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "ksparse" in frame.filename]
    return f"{frames[-1].filename.split('src/')[-1]}:{frames[-1].lineno}" if frames else "outside"
