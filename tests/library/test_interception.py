"""What attnlib knows of PyTorch beyond its public names, and what it says where that is missing."""

import threading
from contextlib import contextmanager

import pytest
import torch

from attnlib import interception
from attnlib.interception import FAST_PATH_OFF, Shared, private


def test_a_private_name_that_is_missing_is_named_when_it_is_needed():
    assert private("_C.DisableTorchFunction") is torch._C.DisableTorchFunction
    for path in ("_C._no_such_name", "_no.such.name"):
        missing = private(path)
        with pytest.raises(RuntimeError, match=rf"torch\.{path}, .*{torch.__version__[:4]}.*<3"):
            missing()


def test_every_private_name_is_there():
    names = [value for value in vars(interception).values() if callable(value)]
    assert not [name for name in names if getattr(name, "__name__", "") == "missing"]


def test_a_shared_change_lasts_from_the_first_to_the_last():
    log = []

    @contextmanager
    def change():
        log.append("made")
        yield
        log.append("undone")

    shared, meet = Shared(change), threading.Barrier(2, timeout=60)

    def work():
        with shared, shared:
            meet.wait()
            assert log == ["made"]
            meet.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log == ["made", "undone"]
    with pytest.raises(KeyError), shared:
        raise KeyError
    assert log == ["made", "undone"] * 2


def test_the_fast_path_is_off_until_the_last_has_left():
    with FAST_PATH_OFF, FAST_PATH_OFF:
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()
