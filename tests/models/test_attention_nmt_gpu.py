"""Attention translation on a GPU: the same numbers as on a CPU, in half precision too."""

import copy

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from .attention_nmts import WORDS, build
from .common import PREVIOUS, SOURCE, TARGET, grown

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
every_cell = pytest.mark.parametrize("cell", ["gru", "lstm"])


@every_cell
def test_loss_and_gradients_are_the_cpus(cell: str) -> None:
    on_cpu = grown(build("lstm_nmt_twwt", cell=cell, encoder_layers=2, decoder_layers=2)).double()
    on_gpu = copy.deepcopy(on_cpu).cuda()
    losses = [
        model(*(part.to(device) for part in (SOURCE, SOURCE, PREVIOUS)), target=TARGET.to(device)).loss
        for model, device in ((on_cpu, "cpu"), (on_gpu, "cuda"))
    ]
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    for loss in losses:
        loss.backward()
    for (name, ours), theirs in zip(on_gpu.named_parameters(), on_cpu.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, msg=lambda text, name=name: f"{name}: {text}")


@every_cell
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_trains(cell: str, dtype: torch.dtype) -> None:
    model = build("lstm_nmt_twwt", cell=cell, sharing_method="l2-input").cuda().to(dtype)
    loss = model(SOURCE.cuda(), None, PREVIOUS.cuda(), target=TARGET.cuda()).loss
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every_cell
def test_beam_search_is_the_cpus(cell: str) -> None:
    model = grown(build("lstm_nmt_twwt", cell=cell), std=0.4).double().eval()
    found = []
    for device in ("cpu", "cuda"):
        model = model.to(device)
        net_input = {"src_tokens": SOURCE.to(device), "src_lengths": SOURCE.ne(WORDS.pad()).sum(1).to(device)}
        generator = SequenceGenerator([model], WORDS, beam_size=4, max_len_b=6)
        hypotheses = generator.generate([model], {"net_input": net_input})
        found.append([[each["tokens"].tolist() for each in sentence] for sentence in hypotheses])
    assert found[0] == found[1]
