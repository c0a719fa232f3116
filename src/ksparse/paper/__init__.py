"""The experiments of Shen and Li, *A Tight Bound of Hard Thresholding* (JMLR 18(208), 2018), and some beyond them.

A figure is a module, named after what it shows, with

NUMBER, TITLE, TEXT
    its number in the paper (a word, if it is not in the paper), its title, and what the paper says of it;
NEEDS
    the numbers of figures whose trials it also draws on;
CONFIG
    the configuration of every preset;
KEY, KEEP
    which fields of a record tell trials apart, and which the run itself has to remember;
items(config)
    the parameters of every trial, a dict each;
trial(seed, **item)
    makes one of them and returns its outcome, a dict;
run(lab, ledger), optionally
    where trials depend on the outcome of others;
summarise(records)
    what the trials amount to: this is what is kept and drawn;
plot(summaries)
    axes by name, from summaries by number; it never runs a solver;
claims(summaries)
    statements of the paper beside what came out.
"""

from ._run import FIGURES, draw, run

__all__ = ["FIGURES", "draw", "run"]
