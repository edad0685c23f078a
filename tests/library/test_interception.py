"""What attnlib knows of PyTorch beyond its public names, and what it says where that is missing."""

import pytest
import torch

from attnlib import interception
from attnlib.interception import private


def test_a_private_name_that_is_missing_is_named_when_it_is_needed():
    assert private("_C.DisableTorchFunction") is torch._C.DisableTorchFunction
    for path in ("_C._no_such_name", "_no.such.name"):
        missing = private(path)
        with pytest.raises(RuntimeError, match=rf"torch\.{path}, .*{torch.__version__[:4]}.*<3"):
            missing()


def test_every_private_name_is_there():
    names = [value for value in vars(interception).values() if callable(value)]
    assert not [name for name in names if getattr(name, "__name__", "") == "missing"]
