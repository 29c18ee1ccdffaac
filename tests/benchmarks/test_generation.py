"""Beam search as fairseq-generate runs it: ours beside fairseq's `lstm` of the same sizes.

Ours has two cells a step, the `lstm` one: of equal sizes it is asked to be no slower in tokens/s.
"""

import statistics
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import FairseqModel
from fairseq.sequence_generator import SequenceGenerator

from fairseq_tiedemb import products
from fairseq_tiedemb.modules.cells import CELLS

from ..models.common import dictionary
from .attention_nmt_peers import SIZES, FairseqLSTM, Sizes, build_ours
from .conftest import STOCK_SEARCH, Record
from .interleave import SHIPPED, interleave, ratio
from .limits import OWN, OwnOperations

BEAMS = 5


@pytest.mark.benchmark
@pytest.mark.parametrize("bsz", [32, 1])
@pytest.mark.parametrize("cell", CELLS)
def test_beam_search(cell: str, bsz: int, record: Record) -> None:
    base = SIZES["256/512/10k"]
    sizes = Sizes(base.embed, base.hidden, base.vocabulary, bsz, base.source, base.target)
    words = dictionary(sizes.vocabulary)
    ours, fairseq = build_ours(words, sizes, cell).eval(), FairseqLSTM(words, sizes).eval()
    for model in (ours, fairseq):  # as fairseq-generate does
        model.prepare_for_inference_(SimpleNamespace(generation=SimpleNamespace(beam=BEAMS)))
    source = torch.randint(4, sizes.vocabulary, (bsz, sizes.source))
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.full((bsz,), sizes.source)}}

    def search(model: FairseqModel, generate: Any) -> None:
        # `target` words and the end of sentence, whatever an untrained model would like
        length = sizes.target - 1
        generator = SequenceGenerator([model], words, beam_size=BEAMS, max_len_b=length, min_len=length)
        hypotheses = generate(generator, [model], sample)
        assert {len(each["tokens"]) for sentence in hypotheses for each in sentence} == {sizes.target}

    peer = "fairseq lstm"
    contestants = {"ours": (ours, SequenceGenerator.generate), peer: (fairseq, STOCK_SEARCH)}
    if products.in_use() != "blas":
        contestants[peer + SHIPPED] = (fairseq, STOCK_SEARCH)
    runs: dict[str, Any] = {name: partial(search, *each) for name, each in contestants.items()}
    seconds = interleave({**runs, OWN: OwnOperations(runs["ours"]).again}, rounds=9)
    print(f"beam {BEAMS}, 256/512/10k, {cell}, {bsz} sentences of {sizes.source} words")
    for contestant in runs:
        over = "" if contestant == "ours" else f"  ours over it {ratio(seconds, contestant, 'ours')}"
        print(f"  {contestant:28s} {bsz * sizes.target / statistics.median(seconds[contestant]):8.0f} tokens/s{over}")
    print(f"  own operations, of ours {ratio(seconds, OWN, 'ours')}")
    columns = {"tokens": peer, "shipped": peer + SHIPPED, "own": OWN}
    figures = {column: ratio(seconds, name, "ours") for column, name in columns.items() if name in seconds}
    record("speed-beam", f"{cell.upper()},{bsz}", figures)
