import sys

import pytest
from hypothesis import settings

# The same examples everywhere and however slow the machine: a red run is a change of ours.
settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(autouse=True)
def plain_figures():
    """Leave no test the style of figures that another has set."""
    yield
    if "matplotlib" in sys.modules:
        sys.modules["matplotlib"].rcdefaults()


@pytest.fixture(autouse=True)
def same_numbers():
    """Start PyTorch's generator at one seed, whichever tests ran before in this process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def one_thread():
    """Give PyTorch one thread, as the workers of a sweep have."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
