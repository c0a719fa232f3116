"""The engine: one loop around every solver (`loop`), and files that let killed fits continue (`checkpoint`, `resume`).

It knows neither losses nor algorithms.  What a solver of `minimize` must offer is in `solvers/base.py`; the runs of
`recover` are in `sensing/`.
"""
