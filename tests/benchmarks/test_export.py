"""Beam search by CTranslate2 beside fairseq's, with the same weights.

fairseq's is `SequenceGenerator`, which is where fairseq-generate spends its time; what that does between the batches,
reading, joining subwords and printing, is left out on both sides. `recipes/measure-export.sh` runs the command itself,
beside the engine on a trained model, and scores the translations.

What is asked of the engine: faster than fairseq's search in float32 and in int8, for 32 sentences and for one.
"""

import argparse
import statistics
from pathlib import Path

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_tiedemb.cli.export import QUANTIZATIONS
from fairseq_tiedemb.export.folding import fold_tables

from .conftest import Record
from .interleave import interleave, ratio
from .test_transformer import BEAMS, LENGTH, PRESET, TASK, WORDS, build, sample_of

FAIRSEQ = "fairseq"


@pytest.mark.benchmark
@pytest.mark.parametrize("bsz", [32, 1])
def test_beam_search(bsz: int, tmp_path: Path, record: Record) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="pip install ctranslate2")
    from fairseq_tiedemb.export.to_ctranslate2 import _translation, save

    options = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[PRESET](options)
    model = build("plain").eval()
    engines = {}
    for quantization in QUANTIZATIONS:
        folder = tmp_path / quantization
        folder.mkdir()
        exported = build("plain").eval().requires_grad_(False)
        fold_tables(exported)
        save(_translation(exported, TASK, options), folder, quantization=quantization)
        engines[quantization] = ctranslate2.Translator(str(folder), intra_threads=1)
    net_input = sample_of(bsz)["net_input"]
    sources = [[WORDS[word] for word in sentence] for sentence in net_input["src_tokens"].tolist()]
    # The engine adds the end of sentence.
    net_input["src_tokens"] = torch.cat((net_input["src_tokens"], torch.full((bsz, 1), WORDS.eos())), 1)
    net_input["src_lengths"] += 1
    found: dict[str, list[list[str]]] = {}

    def search() -> None:
        # As many words for each, whatever an untrained model would like, and then the end of sentence.
        generator = SequenceGenerator([model], WORDS, beam_size=BEAMS, max_len_b=LENGTH, min_len=LENGTH)
        best = [hypotheses[0] for hypotheses in generator.generate([model], {"net_input": net_input})]
        found[FAIRSEQ] = [[WORDS[word] for word in each["tokens"][:-1]] for each in best]

    def translate(quantization: str) -> None:
        results = engines[quantization].translate_batch(
            sources, beam_size=BEAMS, min_decoding_length=LENGTH, max_decoding_length=LENGTH
        )
        found[quantization] = [result.hypotheses[0] for result in results]

    contestants = {FAIRSEQ: search} | {name: lambda name=name: translate(name) for name in engines}
    seconds = interleave(contestants, rounds=5)
    assert {len(words) for hypotheses in found.values() for words in hypotheses} == {LENGTH}
    print(f"\nbeam {BEAMS}, {PRESET}, {len(WORDS):,} words, {bsz} sentences of {LENGTH} words")
    for name, times in seconds.items():
        same = sum(words == theirs for words, theirs in zip(found[name], found[FAIRSEQ], strict=True))
        print(
            f"  {name:9s} {bsz * LENGTH / statistics.median(times):7.0f} tokens/s, {ratio(seconds, FAIRSEQ, name)} "
            f"times {FAIRSEQ}'s; {same} of {bsz} translations the same"
        )
    speeds = {name: round(bsz * LENGTH / statistics.median(times)) for name, times in seconds.items()}
    record("speed-export", str(bsz), speeds | {f"{name}-over": ratio(seconds, FAIRSEQ, name) for name in engines})
