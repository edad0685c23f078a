"""The laboratory on the command line: `python -m experiments`."""

import sys

from experiments.gpu import command

if __name__ == "__main__":
    if sys.argv[1:2] == ["gpu"]:  # a machine that is rented has no typer
        sys.exit(command.main(sys.argv[2:]))
    from experiments.cli import app

    app()
