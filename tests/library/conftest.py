import pytest


@pytest.fixture
def one_thread():
    """Give PyTorch one thread, as the workers of a sweep have."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
