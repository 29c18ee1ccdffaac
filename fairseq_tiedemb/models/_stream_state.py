"""The state that a language model carries along a stream of text."""

from torch import Tensor


class StreamState:
    """States by position in a stream, from which the batch at that position continues.

    Position 0 starts from the model's initial state; other positions need a stored state. States of earlier batches of
    an update are kept, because fairseq repeats them when mixed precision overflows. The caller drops states that are no
    longer needed.
    """

    def __init__(self) -> None:
        self.position = 0
        self.states: dict[int, Tensor] = {}

    def at(self, position: int, initial_LBK: Tensor) -> Tensor:
        """The state at which the batch at ``position`` (tokens before it in its rows) starts; at 0 ``initial_LBK``.

        Raises ValueError if that state is unknown, or has another number of rows.
        """
        if position == 0:
            return initial_LBK
        if position not in self.states:
            raise ValueError(
                f"stream of text: needs the batch at position {self.position}, where the previous batch ended; got "
                f"position {position}. Use the batches of --task contiguous_lm in their order; or, after resuming from "
                "a checkpoint without a state, --reset-dataloader."
            )
        state = self.states[position]
        if state.shape != initial_LBK.shape:
            raise ValueError(
                f"--batch-size: needs the {state.size(1)} rows of the previous batch; got {initial_LBK.size(1)}. "
                "Use the same batch size from the start of a stream to its end."
            )
        return state.to(initial_LBK)

    def carry(self, position: int, state_LBK: Tensor) -> None:
        """Stores the state at a position, detached."""
        self.position = position
        self.states.pop(position, None)  # so that it becomes the newest entry
        self.states[position] = state_LBK.detach()

    def forget_all_but_last(self, count: int = 1) -> None:
        """Drops all but the newest ``count`` states."""
        self.states = dict(list(self.states.items())[-count:])
