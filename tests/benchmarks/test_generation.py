"""Beam search as fairseq-generate runs it: ours beside fairseq's `lstm` of the same sizes.

Ours has two cells a step, the `lstm` one: of equal sizes it is asked to be no slower in tokens/s.
"""

import statistics

import pytest
import torch
from fairseq.models import FairseqModel
from fairseq.sequence_generator import SequenceGenerator

from fairseq_tiedemb.modules.cells import CELLS

from ..models.common import dictionary
from .attention_nmt_peers import SIZES, FairseqLSTM, Sizes, build_ours
from .conftest import Record
from .interleave import interleave, ratio

BEAMS = 5


@pytest.mark.benchmark
@pytest.mark.parametrize("bsz", [32, 1])
@pytest.mark.parametrize("cell", CELLS)
def test_beam_search(cell: str, bsz: int, record: Record) -> None:
    base = SIZES["256/512/10k"]
    sizes = Sizes(base.embed, base.hidden, base.vocabulary, bsz, base.source, base.target)
    words = dictionary(sizes.vocabulary)
    ours, fairseq = build_ours(words, sizes, cell).eval(), FairseqLSTM(words, sizes).eval()
    source = torch.randint(4, sizes.vocabulary, (bsz, sizes.source))
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.full((bsz,), sizes.source)}}

    def search(model: FairseqModel) -> None:
        # `target` words and the end of sentence, whatever an untrained model would like
        length = sizes.target - 1
        generator = SequenceGenerator([model], words, beam_size=BEAMS, max_len_b=length, min_len=length)
        hypotheses = generator.generate([model], sample)
        assert {len(each["tokens"]) for sentence in hypotheses for each in sentence} == {sizes.target}

    seconds = interleave({"ours": lambda: search(ours), "fairseq lstm": lambda: search(fairseq)}, rounds=9)
    print(f"beam {BEAMS}, 256/512/10k, {cell}, {bsz} sentences of {sizes.source} words")
    for contestant, times in seconds.items():
        print(f"  {contestant:14s} {bsz * sizes.target / statistics.median(times):8.0f} tokens/s")
    over = ratio(seconds, "fairseq lstm", "ours")
    print(f"  ours over fairseq's lstm {over}")
    record("speed-beam", f"{cell.upper()},{bsz}", {"tokens": over})


@pytest.mark.benchmark
def test_what_the_search_adds_to_a_step() -> None:
    """Parts of a step of 32 sentences that are fairseq's, beside the product that makes the scores of the words.

    Of these only the choice of the best could be ours, as another ``Search``: the best of blocks of 100 words first,
    and among their words the best. It is exact, but for the order of equal scores.
    """
    sizes = SIZES["256/512/10k"]
    features, table = torch.randn(32 * BEAMS, sizes.embed), torch.randn(sizes.vocabulary, sizes.embed)
    scores = torch.nn.functional.linear(features, table)
    lprobs, block = scores.log_softmax(1), 100

    def mask_nan() -> None:
        lprobs[lprobs != lprobs] = -torch.inf  # sequence_generator.py:375

    def by_blocks() -> tuple[torch.Tensor, torch.Tensor]:
        blocks = lprobs.view(32, -1, block)
        best = blocks.amax(2).topk(2 * BEAMS).indices
        words = blocks.gather(1, best.unsqueeze(2).expand(-1, -1, block)).flatten(1).topk(2 * BEAMS)
        return words.values, best.gather(1, words.indices // block) * block + words.indices % block

    contestants = {
        "scores": lambda: torch.nn.functional.linear(features, table),
        "log-softmax": lambda: scores.log_softmax(1),
        "mask of NaN": mask_nan,
        "adding up": lambda: lprobs + features[:, :1],
        "top-k": lambda: lprobs.view(32, -1).topk(2 * BEAMS),
        "by blocks": by_blocks,
    }
    assert all(map(torch.equal, by_blocks(), contestants["top-k"]()))
    seconds = interleave(contestants, rounds=31)
    print(f"a step of 32 sentences, {BEAMS} beams, 256/512/10k")
    for name, times in seconds.items():
        print(
            f"  {name:12s} {1e3 * statistics.median(times):6.2f} ms, over the scores {ratio(seconds, name, 'scores')}"
        )
