"""Where rows come from."""

from .files import Table, read_table

__all__ = ["Table", "read_table"]
