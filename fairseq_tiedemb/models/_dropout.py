"""fairseq's dropout by our faster draws."""

from fairseq.modules import FairseqDropout
from torch import Tensor

from ..modules.dropout import dropout


class Dropout(FairseqDropout):
    """fairseq's dropout, bit for bit, by ``dropout``."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drops numbers in training, or always where ``--retain-dropout`` keeps it."""
        return dropout(x, self.p, self.training or self.apply_during_inference, inplace)
