"""Numbers, counts and names as readers of a page expect them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DIGITS = 4  # significant digits on the page; the model's file has all of them


def number(value: Any, digits: int = DIGITS) -> str:
    """A number with this many significant digits; very large and very small ones with a power of ten.

    >>> number(1234.567), number(-0.00012345), number(3e-7), number(0.1), number(12345678), number(math.nan)
    ('1,235', '−0.0001234', '3 × 10⁻⁷', '0.1', '1.235 × 10⁷', '–')
    """
    value = float(value)
    if math.isnan(value):
        return "–"
    sign = "−" if value < 0 else ""
    if math.isinf(value):
        return f"{sign}∞"
    if value == 0:
        return "0"
    mantissa, power = f"{abs(value):.{digits - 1}e}".split("e")
    if -5 < int(power) < 6:
        return sign + _trimmed(f"{float(f'{mantissa}e{power}'):,.{max(0, digits - 1 - int(power))}f}")
    return f"{sign}{_trimmed(mantissa)} × 10{str(int(power)).translate(SUPERSCRIPTS)}"


def signed(value: Any) -> str:
    """A change, with its sign also if it is positive."""
    text = number(value, 3)
    return text if text.startswith("−") or text in ("0", "–") else f"+{text}"


def times(exponent: float) -> str:
    """The factor exp(exponent).

    >>> times(0.0), times(math.log(2.345)), times(1000.0)
    ('× 1', '× 2.35', '× ∞')
    """
    return f"× {number(math.exp(exponent) if exponent < 700 else math.inf, 3)}"


def percent(share: float) -> str:
    r"""A share as a percentage.

    >>> percent(0.9651), percent(1.0), percent(math.nan)
    ('96.5\xa0%', '100\xa0%', '–')
    """
    if not math.isfinite(share):
        return number(share)
    return _trimmed(f"{100 * share:.1f}").replace("-", "−") + "\u00a0%"


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun in the singular or plural.

    >>> counted(1, "row"), counted(2500, "row"), counted(2, "class", "classes")
    ('1 row', '2,500 rows', '2 classes')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Several words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def visible(text: Any) -> str:
    r"""A name in which every character can be seen.

    Control characters, and those that change the direction of writing, are shown as Python escapes.

    >>> print(visible("a\nb"), visible("x\u202ey"), visible("größe"), visible(""))
    a\nb x\u202ey größe ""
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    return shown if shown.strip() else f'"{shown}"'


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
