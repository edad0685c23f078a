"""Run the command line: `python -m attnlib`."""

from attnlib.cli import app

app()
