"""Several processes that train one model, each with its share of every batch.

    torchrun --nproc-per-node 2 -m experiments sweep FILE

What is recorded of the model on a batch is of the first process's share; losses are of all.
"""

import os
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


def begun() -> bool:
    """Return whether torchrun began this process; then it is now one of its group."""
    if not distributed.is_torchelastic_launched():
        return False
    if not distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return True


def place() -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are; (0, 1) without a group."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def shared(model: nn.Module) -> nn.Module:
    """Return the model, its gradients those of all processes."""
    return model if place()[1] == 1 else DistributedDataParallel(model)


def mean(value: Tensor) -> Tensor:
    """Return the mean over the processes."""
    _, processes = place()
    if processes > 1:
        value = value.clone()
        distributed.all_reduce(value)
        value /= processes
    return value


def of_first(value: Any) -> Any:
    """Return what the first process has."""
    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]
