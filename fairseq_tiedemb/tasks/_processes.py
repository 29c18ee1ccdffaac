"""The processes of a training, and what they keep together."""

import torch
import torch.distributed
from torch import Tensor


def rank_and_world_size() -> tuple[int, int]:
    """Which of the processes of a training this is, and how many there are."""
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def rows_of_all_processes(state_LBK: Tensor) -> Tensor:
    """The states of all processes side by side, on each of them."""
    _, world_size = rank_and_world_size()
    if world_size == 1:
        return state_LBK
    states = [torch.empty_like(state_LBK) for _ in range(world_size)]
    torch.distributed.all_gather(states, state_LBK.contiguous())
    return torch.cat(states, 1)
