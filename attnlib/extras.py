"""Import the packages of attnlib's extras; where one is missing, an error names the extra."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ModuleNotFoundError):
    """A package of an extra is not installed; the message is one line that names the extra."""


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Import inside this context the packages of an extra, `pip install "attnlib[extra]"`.

    Of nested contexts the outermost is what was asked for.

    >>> with brought_by("torch"):
    ...     import a_package_that_nobody_has
    Traceback (most recent call last):
    attnlib.extras.MissingExtraError: a_package_that_nobody_has is missing; pip install "attnlib...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        what = f"{error.name} is missing" if error.name else error
        raise MissingExtraError(
            f'{what}; pip install "attnlib[{extra}]" brings what this needs',
            name=error.name,
        ) from error
