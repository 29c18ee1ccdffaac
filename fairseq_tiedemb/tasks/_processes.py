"""Rank, world size and states of all processes in distributed training."""

import torch
import torch.distributed
from torch import Tensor


def rank_and_world_size() -> tuple[int, int]:
    """Rank of this process, and the number of processes; (0, 1) without torch.distributed."""
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def rows_of_all_processes(state_LBK: Tensor) -> Tensor:
    """States of all processes, concatenated along the batch dimension, in every process."""
    _, world_size = rank_and_world_size()
    if world_size == 1:
        return state_LBK
    states = [torch.empty_like(state_LBK) for _ in range(world_size)]
    torch.distributed.all_gather(states, state_LBK.contiguous())
    return torch.cat(states, 1)
