"""Sharing methods on adaptive inputs and outputs: words in bands by frequency, each band with a table of its own width.

Both functions take fairseq's modules and replace their tables by ours, in place.
"""

from typing import Any

from torch import nn

from ..embedding import SharedEmbedding
from ..sharing import sharing_method
from .output_layer import TiedOutput


def embed_bands(adaptive_input: Any, method: str) -> None:
    """Makes every band's table of fairseq's ``AdaptiveInput`` a ``SharedEmbedding``, with the same parameters.

    fairseq zeroes the row with the number of the padding symbol in every band, though only the first band has padding:
    in the others it is a word. For methods that divide by norms, that row is drawn like the others.

    Source: Baevski & Auli 2019, section 3.
    """
    for index, band in enumerate(adaptive_input.embeddings):
        table, padding_idx = band[0], None if index else adaptive_input.padding_idx
        size, width = table.weight.shape
        if padding_idx is None and sharing_method(method).divides_by_norm and adaptive_input.padding_idx < size:
            nn.init.normal_(table.weight[adaptive_input.padding_idx], std=width**-0.5)
        band[0] = SharedEmbedding(size, width, padding_idx, method=method, weight=table.weight)


def tie_bands(adaptive_softmax: Any, adaptive_input: Any) -> bool:
    """Makes fairseq's ``AdaptiveSoftmax`` score the words of each band by the table of the input's band.

    The scores of clusters, which stand for bands and are no words, stay a linear layer.

    Returns:
        Whether the bands are shared; if not, nothing is changed.

    Source: Grave et al. 2017; Baevski & Auli 2019, section 3.
    """
    tables = [band[0] for band in adaptive_input.embeddings]
    head = adaptive_softmax.head
    if not hasattr(head, "word_proj"):
        return False
    if isinstance(head.word_proj, nn.Sequential):
        head.word_proj[-1] = TiedOutput(tables[0])
    else:
        head.word_proj = TiedOutput(tables[0])
    for tail, table in zip(adaptive_softmax.tail, tables[1:], strict=True):
        tail[-1] = TiedOutput(table)
    return True
