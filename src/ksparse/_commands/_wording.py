"""What the library says of its arguments, in the words of the command line."""

from __future__ import annotations

import ast
import csv
import io
import re
import shlex

NAMES = {"always_keep": "--keep", "random_state": "--seed", "k": "-k", "max_time": "--max-time"}
OPTIONS = (
    "always_keep|cache|categories|columns|delimiter|drop|format|k|l2|loss|max_time|memory|missing|na|random_state|"
    "target"
)
TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
OF_FIT = re.compile(r"--(?:categories|delimiter|drop|missing|na)\b")


def as_options(text: str) -> str:
    """What the library says of its arguments, said of options.

    >>> as_options("missing='mean' imputes it, format= says what it is, drop leaves it out")
    '--missing mean imputes it, --format says what it is, --drop leaves it out'
    >>> as_options("drop=['a b'] leaves it out; cache=False keeps nothing")
    "--drop 'a b' leaves it out; --cache no keeps nothing"
    >>> print(as_options("always_keep must leave columns, or na=['1,5'] and delimiter=';'"))
    --keep must leave columns, or --na '"1,5"' and --delimiter ';'
    """
    text = text.replace("start again from x0=result", "go on with --checkpoint FILE")
    text = text.replace("cache must be True, False or a folder", "cache must be no or a folder")
    text = text.replace(" beside the target None", "")  # all columns are dropped
    text = re.sub(rf"^({OPTIONS})(?=: | must | is for | names )", lambda found: _dashed(found[1]), text)
    text = re.sub(r"(?<![\w-])drop (?=leaves )|(?<=with )drop$", lambda found: f"--{found[0]}", text)
    return re.sub(rf"(?<![\w-])({OPTIONS})=(?:\[({TEXT})\]|({TEXT})|(\w*))", _option, text)


def of_the_fit(text: str) -> str:
    """The same for `predict`, which reads data as the fit did and has no options for that."""
    text = as_options(text)
    return f"{text} (options of ksparse fit: a model reads data as its own were read)" if OF_FIT.search(text) else text


def printable(text: str) -> str:
    """Without characters that would command a terminal: names come from files of strangers.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(name: str) -> str:
    """A name as a cell of a table.

    >>> print(one_line("a\\nb"))
    a\\nb
    """
    return printable(name).replace("\n", "\\n")


def _dashed(name: str) -> str:
    return NAMES.get(name, f"--{name}")


def _option(found: re.Match[str]) -> str:
    name, listed, quoted, plain = found.groups()
    if listed is not None:  # as `names` reads it: in quotes if there is a comma
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([ast.literal_eval(listed)])
        value = shlex.quote(line.getvalue())
    else:
        value = shlex.quote(ast.literal_eval(quoted)) if quoted is not None else plain
    return f"{_dashed(name)} {'no' if value == 'False' else value}".rstrip()
