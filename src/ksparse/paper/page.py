"""The page of a run: figures beside what the paper says about them, and the paper's claims beside our results.

The page is one file that needs no other: the pictures are inside it.  They are also written beside it as SVG files.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

from .._style import as_bytes
from .._text import duration, write_whole
from ..report.markup import check_tools, describe, render, without_markup
from ..sensing.phase.result import file_name
from .lab import PRESETS, VERDICTS, Claim, Summary

BOUNDS = "theory"  # belongs to the paper, although it is not one of its figures
DIGITS = ("6", "7", "8", "l1")  # figures made from images of digits
WIDE = 1.8  # a panel with at least this ratio of width to height gets a row of its own
LONG = 6  # of a list with more values than this, only the first two and the last are shown


class Panel(NamedTuple):
    """A picture: its file beside the page, and its content for the page."""

    href: str
    data: str  # base64
    alt: str
    width: int
    height: int

    @property
    def wide(self) -> bool:
        return self.width >= WIDE * self.height


class Section(NamedTuple):
    """A figure on the page."""

    number: str
    anchor: str
    label: str
    title: str
    paragraphs: list[str]
    panels: list[Panel]
    claims: list[Claim]
    settings: list[tuple[str, str]]
    wall: str
    cpu: str

    @property
    def of_the_paper(self) -> bool:
        return self.number == BOUNDS or self.number.isdigit()

    @property
    def of_digits(self) -> bool:
        return self.number in DIGITS


def write_page(
    out: Path, figures: Sequence[ModuleType], summaries: Mapping[str, Summary], facts: Mapping[str, Any]
) -> Path:
    """Draw the figures into ``out/figures`` and write ``out/index.html``; returns its path.

    Parameters
    ----------
    out : Path
        The folder of the run.
    figures : sequence of modules
        As described in `ksparse.paper`, in the order of the page.
    summaries : dict
        The summaries of figures by number.
    facts : dict
        What is known about the run, all of it optional: "preset", "version", "commit", "started" (ISO 8601), "seconds"
        and "cpu_seconds" (by number), "machine", "jobs", "seed", "digits" ("mnist" or the set used instead), "rules"
        (texts on when a trial is stopped early).
    """
    check_tools()
    (out / "figures").mkdir(parents=True, exist_ok=True)
    sections = [_section(out, figure, dict(summaries), facts) for figure in figures]
    page = out / "index.html"
    write_whole(page, _render(sections, facts).encode())
    return page


def _section(out: Path, figure: ModuleType, summaries: dict[str, Summary], facts: Mapping[str, Any]) -> Section:
    number = str(figure.NUMBER)
    config = figure.CONFIG.get(facts.get("preset"))
    try:
        axes, claims = figure.plot(summaries), list(figure.claims(summaries))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"figure {number} cannot be drawn from the files in {out / 'summary'} ({type(error).__name__}: {error})"
        raise ValueError(f"{text}; run the same again, which rewrites it") from error
    return Section(
        number=number,
        anchor=f"figure-{file_name(number)}",
        label=f"Figure {number}" if number.isdigit() else "",
        title=figure.TITLE,
        paragraphs=[part for part in re.split(r"\n\s*\n", figure.TEXT.strip()) if part],
        panels=[_panel(out, figure, name, ax) for name, ax in axes.items()],
        claims=claims,
        settings=[(name, _brief(value)) for name, value in config._asdict().items()] if config else [],
        wall=_time(facts.get("seconds"), number),
        cpu=_time(facts.get("cpu_seconds"), number),
    )


def _panel(out: Path, figure: ModuleType, name: str, ax: Any) -> Panel:
    content = as_bytes(ax, "svg")
    file = f"figure{file_name(str(figure.NUMBER))}-{file_name(name)}.svg"
    write_whole(out / "figures" / file, content)
    width, height = (round(96 * inches) for inches in ax.figure.get_size_inches())
    data = base64.b64encode(content).decode()
    return Panel(f"figures/{quote(file)}", data, _describe(figure, name, ax), width, height)


def _describe(figure: ModuleType, name: str, ax: Any) -> str:
    """The alternative text of a picture: its title, its axes and its legend."""
    number = str(figure.NUMBER)
    said = [
        (f"Figure {number}: " if number.isdigit() else "", figure.TITLE),
        ("panel ", f"{name}, {ax.get_title()}".rstrip(", ")),
        *describe(ax),
    ]
    return "; ".join(before + without_markup(text) for before, text in said if text)


def _render(sections: Sequence[Section], facts: Mapping[str, Any]) -> str:
    counts = Counter(claim.verdict for section in sections for claim in section.claims)
    return render(
        __package__,
        {"formula": _formula},
        sections=sections,
        ours=[section for section in sections if not section.of_the_paper],
        papers=[section for section in sections if section.of_the_paper],
        counts={verdict: counts[verdict] for verdict in VERDICTS if verdict != "beyond"},
        facts=facts,
        run=_facts_of_run(facts),
        preset=facts.get("preset"),
        presets=PRESETS,
        small_digits=facts.get("digits") not in (None, "mnist") and any(section.of_digits for section in sections),
    )


def _facts_of_run(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts below the title: names and values."""
    wall, cpu = (sum((facts.get(name) or {}).values()) for name in ("seconds", "cpu_seconds"))
    took = duration(wall) + (f", {duration(cpu)} of processor time" if cpu else "") if wall else None
    known = [
        ("Preset", facts.get("preset")),
        ("ksparse", facts.get("version")),
        ("Commit", facts.get("commit")),
        ("Started", _moment(facts.get("started"))),
        ("Time", took),
        ("Machine", facts.get("machine")),
        ("Workers", facts.get("jobs")),
        ("Seed", facts.get("seed")),
        ("Digits", {"mnist": "MNIST"}.get(facts.get("digits", ""), facts.get("digits"))),
    ]
    return [(name, str(text)) for name, text in known if text is not None]


def _moment(text: str | None) -> str | None:
    """A time in ISO 8601 as people write it; any other text stays as it is.

    >>> _moment("2026-03-01T09:05:00+00:00"), _moment("2026-03-01T09:05"), _moment("today")
    ('1 March 2026, 09:05 UTC', '1 March 2026, 09:05', 'today')
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or ''}".rstrip()


def _time(seconds: Mapping[str, float] | None, number: str) -> str:
    return duration(seconds[number]) if seconds and number in seconds else ""


def _brief(value: Any) -> str:
    """A setting as a short text.

    >>> _brief(0.3), _brief(range(8, 257, 8)), _brief(("random", "last")), _brief({"mnist": (70, 784)})
    ('0.3', '8, 16, …, 256 (32 values)', 'random, last', 'mnist: 70, 784')
    """
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_brief(part)}" for name, part in value.items())
    if hasattr(value, "_fields"):
        return "; ".join(f"{name} {_brief(part)}" for name, part in zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple, range)):
        texts = [_brief(part) if not isinstance(part, (list, tuple)) else f"({_brief(part)})" for part in value]
        if len(texts) > LONG:
            return f"{texts[0]}, {texts[1]}, …, {texts[-1]} ({len(texts)} values)"
        return ", ".join(texts) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _formula(escaped: str) -> str:
    r"""Mark up x_k, x_{2k} and 10^{-3} in escaped HTML as indices and powers, and keep relations on one line.

    >>> _formula("δ_{2k+K} of H_k(b), 10^120, η^1.5, k = K, but cpu_seconds")
    'δ<sub>2k+K</sub> of H<sub>k</sub>(b), 10<sup>120</sup>, η<sup>1.5</sup>, k\xa0=\xa0K, but cpu_seconds'
    """
    text = re.sub(r"(?<!\w)(\w)_(?:\{([^{}<>]+)\}|(\w+))", lambda m: f"{m[1]}<sub>{m[2] or m[3]}</sub>", str(escaped))
    text = re.sub(
        r"(?<=\w)\^(?:\{([^{}<>]+)\}|([-−]?\w+(?:\.\d+)?))",
        lambda m: f"<sup>{(m[1] or m[2]).replace('-', '−')}</sup>",
        text,
    )
    return re.sub(r" (=|≤|≥|≈|&lt;|&gt;) ", "\u00a0\\1\u00a0", text)
