"""``python -m ksparse.cli``."""

from . import app

app()
