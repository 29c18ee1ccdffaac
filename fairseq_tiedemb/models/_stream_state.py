"""The state that a language model carries along a stream of text."""

from torch import Tensor


class StreamState:
    """States at the positions of a stream, so that a batch finds the one it goes on from.

    The data say where a batch stands: position 0 starts from the model's initial state, any other must be one whose
    state is known. States of earlier batches of the same update are kept, since fairseq feeds them again when automatic
    mixed precision finds an overflow; whoever uses a stream says which may go.
    """

    def __init__(self) -> None:
        self.position = 0
        self.states: dict[int, Tensor] = {}

    def at(self, position: int, initial_LBK: Tensor) -> Tensor:
        """The state with which the batch at a position starts.

        Args:
            position: tokens that each row has before the batch.
            initial_LBK: the state at position 0.

        Raises:
            ValueError: if the stream has not been read to there, or had another number of rows.
        """
        if position == 0:
            return initial_LBK
        if position not in self.states:
            raise ValueError(
                f"stream of text: needs the batch at position {self.position}, where the one before stopped; got "
                f"position {position}. Use the batches of --task contiguous_lm in their order; if training was resumed "
                "from a checkpoint without a state, --reset-dataloader."
            )
        state = self.states[position]
        if state.shape != initial_LBK.shape:
            raise ValueError(
                f"--batch-size: needs the {state.size(1)} rows of the batch before; got {initial_LBK.size(1)}. "
                "Use the same batch size from the start of a stream to its end."
            )
        return state.to(initial_LBK)

    def carry(self, position: int, state_LBK: Tensor) -> None:
        """Keeps the state reached at a position, without its gradients."""
        self.position = position
        self.states.pop(position, None)  # which is the newest now
        self.states[position] = state_LBK.detach()

    def forget_all_but_last(self, count: int = 1) -> None:
        """Drops the states of batches before the last ones."""
        self.states = dict(list(self.states.items())[-count:])
