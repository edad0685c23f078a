"""What to do where there is no browser."""

from collections.abc import Mapping
from typing import NoReturn

import pytest


def without_chromium(environment: Mapping[str, str]) -> NoReturn:
    """Skip on a contributor's machine; fail in CI, where a skip would hide a broken page."""
    message = "no browser to look at the site: install Debian's package `chromium`"
    if environment.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
