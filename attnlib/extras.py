"""Import the packages of attnlib's extras; an error for a missing one names its extra."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ModuleNotFoundError):
    """Signal that a package of an extra is not installed; the message is a line with the extra."""


@contextmanager
def extra_packages(extra: str) -> Iterator[None]:
    """Import packages of an extra in this context; MissingExtraError if one is not installed.

    An error names `pip install "attnlib[extra]"`; of nested contexts the outermost extra is named.

    >>> with extra_packages("torch"):
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
