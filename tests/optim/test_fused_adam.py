"""Adam by torch's fused kernel: the updates of fairseq's Adam, in one pass."""

import copy
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim import FP16Optimizer, build_optimizer
from fairseq.optim.adam import Adam
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import Parameter

import fairseq_tiedemb.plugin  # noqa: F401
from fairseq_tiedemb.optim.fused_adam import FusedAdam
from fairseq_tiedemb.optim.row_sgd import RowSGD

from ..conftest import InProcess, RunCommand

OPTIONS: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}


def config(**options: object) -> object:
    name = {"_name": "fused_adam", "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.1, "lr": [0.01]}
    return OmegaConf.create({**name, **options})


def gradients(weights: list[Parameter]) -> list[Tensor]:
    """Rows of very different size: where a row is small, eps counts."""
    return [torch.randn_like(weight) * 10 ** (-6 * torch.rand(len(weight), 1)).to(weight.dtype) for weight in weights]


def updated(optimizer: Any, weights: list[Parameter], updates: int, seed: int) -> None:
    """The last weight gets no gradient at every third update, as the parameters of a layer that is dropped."""
    torch.manual_seed(seed)
    for update in range(updates):
        for weight, gradient in zip(weights, gradients(weights), strict=True):
            weight.grad = None if weight is weights[-1] and update % 3 == 1 else gradient
        optimizer.step()


@pytest.mark.parametrize(
    ("eps", "decay", "dtype"),
    [
        *((1e-8, 0.1, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)),
        (1e-3, 0.0, torch.float64),
        (1e-3, 0.0, torch.float16),
    ],
)
def test_fifty_updates_are_fairseqs(eps: float, decay: float, dtype: torch.dtype) -> None:
    ours = [Parameter(torch.randn(20, 30).to(dtype)) for _ in range(3)]
    theirs, start = copy.deepcopy(ours), copy.deepcopy(ours)
    options = {**OPTIONS, "eps": eps, "weight_decay": decay}
    updated(FusedAdam(ours, **options), ours, 50, seed=2)
    updated(Adam(theirs, **options), theirs, 50, seed=2)
    # In float32 they round in another order; in half precision the sum of that may round to the next number.
    digits = {torch.float64: 1e-13, torch.float32: 2e-5}.get(dtype, 2 * torch.finfo(dtype).eps)
    for our, their, begin in zip(ours, theirs, start, strict=True):
        assert (our - begin).abs().max() > 0.1
        torch.testing.assert_close(our, their, rtol=digits, atol=digits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_checkpoints_go_from_fairseqs_adam_and_back(dtype: torch.dtype) -> None:
    theirs = [Parameter(torch.randn(4, 5).to(dtype)) for _ in range(2)]
    peer = Adam(theirs, **OPTIONS)
    updated(peer, theirs, 4, seed=2)
    ours, back = copy.deepcopy(theirs), copy.deepcopy(theirs)
    mine, again = FusedAdam(ours, **OPTIONS), Adam(back, **OPTIONS)
    mine.load_state_dict(copy.deepcopy(peer.state_dict()))
    again.load_state_dict(copy.deepcopy(mine.state_dict()))
    for optimizer, weights in ((mine, ours), (peer, theirs), (again, back)):
        updated(optimizer, weights, 4, seed=3)
    for our, their, third in zip(ours, theirs, back, strict=True):
        torch.testing.assert_close(our, their)
        if dtype == torch.float32:  # fairseq's loads moments in the parameter's dtype
            torch.testing.assert_close(third, their)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_goes_on_with_its_moments(dtype: torch.dtype) -> None:
    """torch casts what it loads to the parameter's dtype, in which the squares of small gradients are 0."""
    whole, broken_off = (Parameter(torch.ones(20, dtype=dtype)) for _ in range(2))
    optimizers = [FusedAdam([weight], **OPTIONS) for weight in (whole, broken_off)]
    generator = torch.Generator().manual_seed(1)
    for update in range(12):
        if update == 6:
            state = copy.deepcopy(optimizers[1].state_dict())
            optimizers[1] = FusedAdam([broken_off], **OPTIONS)
            optimizers[1].load_state_dict(state)
        for weight, optimizer in zip((whole, broken_off), optimizers, strict=True):
            weight.grad = (1e-4 * torch.randn(20, generator=generator.manual_seed(update))).to(dtype)
            optimizer.step()
    assert torch.equal(whole, broken_off)
    assert optimizers[1].state[broken_off]["exp_avg_sq"].dtype == torch.float32


def test_tensors_that_are_not_contiguous() -> None:
    start = torch.randn(5, 4)
    ours, theirs = [Parameter(start.clone().t()), Parameter(start.clone())], [Parameter(start.clone().t())]
    theirs.append(Parameter(start.clone()))
    for weights, optimizer in ((ours, FusedAdam(ours, **OPTIONS)), (theirs, Adam(theirs, **OPTIONS))):
        torch.manual_seed(2)
        for _ in range(3):
            weights[0].grad, weights[1].grad = torch.randn(4, 5), torch.randn(1, 4).expand(5, 4)
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_fp16_training_wraps_it() -> None:
    common = {"fp16_scale_window": 1, "fp16_init_scale": 4, "fp16_scale_tolerance": 0.0, "min_loss_scale": 1e-4}
    common = {**common, "threshold_loss_scale": None, "fp16_no_flatten_grads": True}
    start = torch.randn(4, 5).half()
    trained = []
    for options in ({"_name": "adam", "tpu": False}, {}):
        weight = Parameter(start.clone())
        cfg = SimpleNamespace(common=SimpleNamespace(**common), optimizer=config(**options))
        optimizer = FP16Optimizer.build_optimizer(cfg, [weight])
        for _ in range(5):
            optimizer.zero_grad()
            optimizer.backward((weight.float() ** 2).sum())
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        trained.append(weight.data)
    assert (trained[0] - start).abs().max() > 0.01
    torch.testing.assert_close(trained[1], trained[0])


def test_the_command_line_outdoes_the_checkpoint() -> None:
    weight = Parameter(torch.ones(3))
    first = build_optimizer(config(), [weight])
    second = build_optimizer(config(adam_betas=[0.8, 0.9], lr=[0.5]), [weight])
    second.load_state_dict(first.state_dict(), optimizer_overrides=second.optimizer_config)
    assert second.get_lr() == 0.5
    assert second.param_groups[0]["betas"] == (0.8, 0.9)


@pytest.mark.parametrize("kind", [partial(FusedAdam, **OPTIONS), partial(RowSGD, lr=0.1)])
def test_closures_are_evaluated_with_gradients(kind: Any) -> None:
    weight = Parameter(torch.ones(3))
    optimizer = kind([weight])

    def closure() -> Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 3.0
    assert (weight < 1).all()


@pytest.mark.parametrize(
    "betas", ["(0.9, 1.0)", "(1.0, 0.9)", "(0.9,)", "0.9", "nonsense", "__import__('os')", "(-0.1, 0.9)"]
)
def test_betas_that_are_none_are_refused(betas: str) -> None:
    with pytest.raises(ValueError, match=rf"--adam-betas: needs two numbers in \[0, 1\); got {re.escape(betas)}"):
        build_optimizer(config(adam_betas=betas), [Parameter(torch.ones(2))])


def test_moments_of_another_shape_are_refused() -> None:
    longer, shorter = (torch.nn.Parameter(torch.ones(size)) for size in (4, 3))
    optimizers = [FusedAdam([weight], **OPTIONS) for weight in (longer, shorter)]
    longer.grad, shorter.grad = torch.ones(4), torch.ones(3)
    optimizers[1].step()
    optimizers[0].load_state_dict(optimizers[1].state_dict())
    with pytest.raises(ValueError, match=r"optimizer: needs moments of shape \(4,\); got \(3,\)"):
        optimizers[0].step()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("betas", (0.9, 1.0), r"--adam-betas: needs two numbers in \[0, 1\); got \(0.9, 1.0\)"),
        ("eps", 0.0, "--adam-eps: needs a number above 0; got 0.0"),
        ("weight_decay", -0.1, "--weight-decay: needs a number from 0 on; got -0.1"),
    ],
)
def test_options_that_are_refused_without_fairseq(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FusedAdam([Parameter(torch.ones(2))], **{**OPTIONS, option: value})


def test_sparse_gradients_are_refused() -> None:
    weight = Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match="needs dense gradients; got a sparse one"):
        FusedAdam([weight], **OPTIONS).step()


def losses(log: str) -> list[float]:
    return [float(loss) for loss in re.findall(r'"train_loss": "([\d.]+)"', log)]


def test_the_command_trains_as_with_adam(parallel_data: Path, train: InProcess) -> None:
    arguments = "--arch lstm_nmt_twwt --criterion tied_cross_entropy --lr 0.01 --max-epoch 1 --weight-decay 0.01 --cpu"
    arguments += " --encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 8"
    arguments += " --decoder-out-embed-dim 8 --max-tokens 400 --no-save --disable-validation --log-format json"
    command = (parallel_data, *arguments.split(), "--adam-betas", "(0.9, 0.98)", "--optimizer")
    adam, fused_adam = (losses(train(*command, name)) for name in ("adam", "fused_adam"))
    assert len(adam) == 1
    assert fused_adam == adam


@pytest.mark.slow
def test_hydra_trains_with_it(lm_data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    arguments = [f"task.data={lm_data}", "task=language_modeling", "task.tokens_per_sample=20", "model=transformer_lm"]
    arguments += ["model.decoder_layers=1", "model.decoder_embed_dim=8", "model.decoder_attention_heads=1"]
    # A plugin's choices are not among hydra's groups: they are named, not chosen.
    arguments += ["+optimizer._name=fused_adam", "+optimizer.adam_betas='(0.9, 0.98)'", "criterion=cross_entropy"]
    arguments += ["optimization.lr=[0.01]", "optimization.max_epoch=2", "dataset.max_tokens=400", "common.cpu=true"]
    arguments += ["checkpoint.no_save=true", "dataset.disable_validation=true", "common.log_format=json"]
    run_command("hydra-train", *arguments, f"hydra.run.dir={tmp_path}", cwd=tmp_path)
    log = (tmp_path / "hydra_train.log").read_text()
    first, last = losses(log)
    assert last < first
    assert "'_name': 'fused_adam'" in log
