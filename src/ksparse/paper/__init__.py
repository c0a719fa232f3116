"""The experiments of Shen and Li, *A Tight Bound of Hard Thresholding* (JMLR 18(208), 2018), and some beyond them.

`run` (runner.py) makes them all.  Every figure is a module of its own; what figures share is in lab.py (files, claims),
recovery.py (a trial of sparse recovery), digits.py (MNIST), histories.py (curves of an objective) and page.py.

A figure is a module, named after what it shows, with

NUMBER, TITLE, TEXT
    its number in the paper (a word if it is not in the paper), its title, and what the paper says about it;
NEEDS
    the numbers of other figures whose trials it uses;
CONFIG
    the configuration of every preset (None if there is nothing to configure);
KEY
    the fields of a record that tell trials apart;
items(config)
    the parameters of all trials, one dict per trial;
trial(seed, **item)
    makes one trial and returns its outcome, a dict;
run(lab, ledger) and KEEP, optional
    makes the trials, if they depend on the outcome of others; KEEP names the fields that it needs in memory;
summarise(records)
    the summary of the trials: this is saved and drawn;
plot(summaries)
    matplotlib axes by name, from the summaries by number; it never runs a solver;
claims(summaries)
    statements of the paper beside our results.
"""

from .runner import FIGURES, draw, run

__all__ = ["FIGURES", "draw", "run"]
