"""Weight decay that the learning rate leaves alone."""

import copy

import pytest
import torch
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf

import fairseq_tiedemb.plugin  # noqa: F401
from fairseq_tiedemb.optim.sgdw import DecoupledSGD


def optimizer(parameters: list[torch.nn.Parameter], **options: float) -> object:
    cfg = {"_name": "sgdw", "momentum": 0.0, "weight_decay": 0.0, "lr": [0.5], **options}
    return build_optimizer(OmegaConf.create(cfg), parameters)


def test_decay_is_a_fraction_of_the_parameter_after_its_step() -> None:
    start, gradient = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    for lr in (0.5, 0.01):
        weight = torch.nn.Parameter(start.clone())
        weight.grad = gradient.clone()
        optimizer([weight], weight_decay=0.1, lr=[lr]).step()
        torch.testing.assert_close(weight.data, (start - lr * gradient) * 0.9, rtol=1e-15, atol=0)


def test_without_decay_it_is_torchs_sgd() -> None:
    ours = torch.nn.Parameter(torch.randn(5))
    theirs = copy.deepcopy(ours)
    peer, mine = torch.optim.SGD([theirs], lr=0.5, momentum=0.9), optimizer([ours], momentum=0.9)
    for _ in range(3):
        ours.grad = torch.randn(5)
        theirs.grad = ours.grad.clone()
        mine.step()
        peer.step()
    assert torch.equal(ours, theirs)


def test_frozen_parameters_do_not_decay() -> None:
    frozen = torch.nn.Parameter(torch.ones(2))
    optimizer([frozen], weight_decay=0.1).step()
    assert torch.equal(frozen.data, torch.ones(2))


def test_groups_have_a_decay_of_their_own() -> None:
    decaying, kept, later = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    groups = [{"params": [decaying]}, {"params": [kept], "decay": 0.0}]
    optimizer = DecoupledSGD(groups, lr=0.5, momentum=0.0, decay=0.1)
    optimizer.add_param_group({"params": [later]})
    for parameter in (decaying, kept, later):
        parameter.grad = torch.zeros(2)
    optimizer.step()
    assert [parameter[0].item() for parameter in (decaying, kept, later)] == pytest.approx([0.9, 1.0, 0.9])


def test_a_state_of_torchs_sgd_goes_on_with_the_decay() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    ours = DecoupledSGD([weight], lr=0.5, momentum=0.0, decay=0.1)
    ours.load_state_dict(torch.optim.SGD([weight], lr=0.25).state_dict())
    weight.grad = torch.ones(2)
    ours.step()
    torch.testing.assert_close(weight.data, torch.full((2,), 0.75 * 0.9))


@pytest.mark.parametrize(("option", "value"), [("weight_decay", -1e-7), ("weight_decay", 1.0), ("momentum", 1.5)])
def test_refuses(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"--{option.replace('_', '-')}: needs a number in \[0, 1\); got {value}"):
        optimizer([torch.nn.Parameter(torch.ones(2))], **{option: value})
    given = {"momentum": 0.0, "decay": 0.0, option.removeprefix("weight_"): value}
    with pytest.raises(ValueError, match=rf"--{option.replace('_', '-')}: .* got {value}"):
        DecoupledSGD([torch.nn.Parameter(torch.ones(2))], lr=1.0, **given)
