"""Every family, head and word2vec on a GPU: the CPU's numbers, in half precision too; a recipe on two GPUs."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from made_up import write_ptb
from torch import nn

from .models import test_word2vec as word2vec
from .models.common import TARGET, assert_gradients_are_finite, grown
from .models.families import WORDS
from .models.test_every_model import TRANSLATORS, batch_of, build, every_case
from .outputs.common import COUNTS, HEADS, features
from .outputs.common import TARGET as WORDS_OF_HEADS
from .recipes.shell import run_recipe

pytestmark = pytest.mark.gpu
DEVICES = ("cpu", "cuda")
# Their random numbers are the device's own.
DRAWN = ("nce", "nce, own noise", "sampled", "negative-sampling")


def moved(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


def with_its_tables(head: nn.Module) -> nn.ModuleList:
    """A head and what it refers to but does not own, so that all of it moves to a device."""
    return nn.ModuleList([head, *(part for part in vars(head).values() if isinstance(part, nn.Module))])


def assert_equal_gradients(on_cpu: Any, on_gpu: Any) -> None:
    for (name, theirs), ours in zip(on_cpu.named_parameters(), on_gpu.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if theirs.grad is not None:
            expected, found = (each.grad.to_dense().cpu() for each in (theirs, ours))
            torch.testing.assert_close(
                found,
                expected,
                rtol=1e-5,  # fairseq's attention has its softmax in float32
                atol=1e-6,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@every_case
def test_loss_and_gradients_are_the_cpus(name: str, method: str, options: dict) -> None:
    on_cpu = grown(build(name, sharing_method=method, **options)).double().eval()
    models = {device: copy.deepcopy(on_cpu).to(device) for device in DEVICES}
    losses = []
    for device, model in models.items():
        losses.append(model(**moved(batch_of(name), device), target=TARGET.to(device)).loss)
        losses[-1].backward()
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    assert_equal_gradients(*models.values())


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_trains(name: str, method: str, options: dict, dtype: torch.dtype) -> None:
    model = build(name, sharing_method=method, **options).to("cuda", dtype).train()
    model(**moved(batch_of(name), "cuda"), target=TARGET.cuda()).loss.backward()
    assert_gradients_are_finite(model)


@every_case
def test_beam_search_is_the_cpus(name: str, method: str, options: dict) -> None:
    if name not in TRANSLATORS:
        pytest.skip("fairseq searches translations")
    model = grown(build(name, sharing_method=method, **options), std=0.4).double().eval()
    found = []
    for device in DEVICES:
        model = model.to(device)
        net_input = {key: value for key, value in moved(batch_of(name), device).items() if key.startswith("src")}
        hypotheses = SequenceGenerator([model], WORDS, beam_size=4, max_len_b=6).generate(
            [model], {"net_input": net_input}
        )
        found.append([[each["tokens"].tolist() for each in sentence] for sentence in hypotheses])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in HEADS if name not in DRAWN])
def test_heads_are_the_cpus(name: str) -> None:
    on_cpu = with_its_tables(HEADS[name](COUNTS))
    heads = {device: copy.deepcopy(on_cpu).to(device) for device in DEVICES}
    inputs, losses = features().detach(), []
    for device, (head, *_) in heads.items():
        losses.append(head.loss(inputs.to(device), WORDS_OF_HEADS.to(device)).loss)
        losses[-1].backward()
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    assert_equal_gradients(*heads.values())


@pytest.mark.parametrize("name", DRAWN)
def test_heads_that_draw_noise_train(name: str) -> None:
    head, *_ = with_its_tables(HEADS[name](COUNTS)).to("cuda")
    inputs = features().detach().cuda().requires_grad_()
    head.loss(inputs, WORDS_OF_HEADS.cuda()).loss.backward()
    assert inputs.grad.isfinite().all()
    assert inputs.grad.any()


@word2vec.every_model
@pytest.mark.parametrize("output", ["full", "tree"])
def test_word2vec_is_the_cpus(name: str, output: str) -> None:
    models = {device: word2vec.build(name, word2vec_output=output).to(device) for device in DEVICES}
    losses = []
    for device, model in models.items():
        losses.append(model(**moved(word2vec.batch(model), device)).loss)
        losses[-1].backward()
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    assert_equal_gradients(*models.values())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_recipe_on_two_gpus(tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    folders = {"RUNS": tmp_path / "runs", "RESULTS": tmp_path / "results"}
    process = run_recipe("train-table6-small.sh", "wt", SMOKE=1, GPUS=2, **folders, **source)
    assert "distributed_world_size': 2" in process.stdout
    assert "Perplexity" in process.stdout
