"""SGD over the rows that a gradient has."""

import copy

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import build_optimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import OmegaConf

import fairseq_tiedemb.plugin  # noqa: F401 (registers the optimiser)
from fairseq_tiedemb.optim.row_sgd import FairseqRowSGD, RowSGD, clip_rows
from fairseq_tiedemb.sparse_rows import sum_of_rows


def optimizer(*parameters: torch.nn.Parameter, lr: float = 0.5, clip_row_norm: float = 0.0) -> FairseqRowSGD:
    cfg = {"_name": "row_sgd", "lr": [lr], "clip_row_norm": clip_row_norm}
    return build_optimizer(OmegaConf.create(cfg), list(parameters))


def sparse_gradient(words: list[int], size: int = 7, width: int = 3) -> torch.Tensor:
    rows = torch.randn(len(words), width)
    return torch.sparse_coo_tensor(torch.tensor([words]), rows, (size, width), check_invariants=True)


@pytest.mark.parametrize("words", [[5, 2, 5, 0, 2, 5], [1, 3, 6], [6, 3, 1], []])
def test_rows_are_summed_as_torch_sums_them(words: list[int]) -> None:
    grad = sparse_gradient(words)
    found, expected = sum_of_rows(grad), grad.coalesce()
    assert found.is_coalesced()
    assert torch.equal(found.indices(), expected.indices())
    torch.testing.assert_close(found.values(), expected.values())


def test_norms_beyond_half_precision_are_clipped() -> None:
    rows = torch.tensor([[4e4] * 4, [0.1] * 4], dtype=torch.float16)
    assert torch.equal(clip_rows(rows, 1.0), torch.stack((torch.full_like(rows[0], 0.5), rows[1])))


@pytest.mark.parametrize("max_norm", [0.0, 0.1])
def test_sparse_gradients_are_handled_as_dense_ones(max_norm: float) -> None:
    """By all that fairseq's trainer does between the backward pass and the end of an update."""
    torch.manual_seed(1)
    grad, bias_grad = sparse_gradient([5, 2, 5, 0]), torch.randn(4)
    weights = [torch.nn.Parameter(each) for each in (torch.randn(7, 3), torch.randn(4), torch.ones(2))]
    peers = copy.deepcopy(weights)
    ours, theirs = optimizer(*weights), torch.optim.SGD(peers, lr=0.5)
    weights[0].grad, weights[1].grad = grad, bias_grad.clone()
    peers[0].grad, peers[1].grad = grad.to_dense(), bias_grad.clone()
    ours.multiply_grads(0.25)
    norm = ours.clip_grad_norm(max_norm)
    for peer in peers[:2]:
        peer.grad.mul_(0.25)
    expected = torch.nn.utils.clip_grad_norm_(peers, max_norm or float("inf"))
    torch.testing.assert_close(norm, expected)
    ours.step()
    theirs.step()
    torch.testing.assert_close(weights, peers)
    assert torch.equal(weights[0][1], peers[0][1]), "a row without a gradient stays"


def test_the_norm_is_that_of_the_sum() -> None:
    weight = torch.nn.Parameter(torch.zeros(7, 3))
    rows = torch.tensor([[1.0, 2, 2], [-1, -2, -2]])
    weight.grad = torch.sparse_coo_tensor(torch.tensor([[2, 2]]), rows, (7, 3), check_invariants=True)
    assert optimizer(weight).clip_grad_norm(0.0) == 0.0


def test_without_any_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    ours = optimizer(weight)
    ours.multiply_grads(2.0)
    assert ours.clip_grad_norm(1.0) == 0.0
    ours.step()
    assert torch.equal(weight.data, torch.ones(2))


@pytest.mark.parametrize("sparse", [True, False])
def test_long_rows_are_clipped(sparse: bool) -> None:
    """By the norm of a row's sum: [3, 4] and [3, 4] together have norm 10; short rows and vectors stay."""
    weight, bias = torch.nn.Parameter(torch.zeros(3, 2)), torch.nn.Parameter(torch.zeros(2))
    rows = torch.tensor([[3.0, 4], [0.3, 0.4], [3, 4]])
    grad = torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), rows, (3, 2), check_invariants=True)
    weight.grad, bias.grad = grad if sparse else grad.to_dense(), torch.tensor([30.0, 40])
    optimizer(weight, bias, lr=1.0, clip_row_norm=1.0).step()
    torch.testing.assert_close(weight.data, -torch.tensor([[0.3, 0.4], [0, 0], [0.6, 0.8]]))
    torch.testing.assert_close(bias.data, -torch.tensor([30.0, 40]))


def test_a_gradient_of_zero_stays_zero() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.zeros(2, 2)
    optimizer(weight, clip_row_norm=1.0).step()
    assert torch.equal(weight.data, torch.ones(2, 2))


@pytest.mark.parametrize("saved", [None, 0.0, 5.0])
def test_a_resumed_training_clips_as_the_command_says(saved: float | None) -> None:
    """Also from checkpoints of before clipping, and of another number of parameters: one, of half precision."""
    weight = torch.nn.Parameter(torch.zeros(1, 2))
    ours = optimizer(weight, lr=0.5, clip_row_norm=1.0)
    group = {"lr": 1.0, "params": [0, 1]} | ({} if saved is None else {"clip_row_norm": saved})
    ours.load_state_dict({"state": {}, "param_groups": [group]}, {})
    weight.grad = torch.tensor([[3.0, 4]])
    ours.step()
    torch.testing.assert_close(weight.data, -torch.tensor([[0.6, 0.8]]))
    ours.load_state_dict({"state": {}, "param_groups": [group]}, {"clip_row_norm": 0.0})
    ours.step()
    torch.testing.assert_close(weight.data, -torch.tensor([[3.6, 4.8]]))


@pytest.mark.parametrize(("norm", "flat"), [(0.0, True), (1.0, False)])
def test_rows_are_cut_in_no_flat_vector(norm: float, flat: bool) -> None:
    assert optimizer(torch.nn.Parameter(torch.ones(2, 2)), clip_row_norm=norm).supports_flat_params is flat


def test_half_precision_cuts_rows_and_goes_on_from_one_flat_vector() -> None:
    """By fairseq's optimiser of `--fp16`, with a preset's settings; before 0.1.5 it had one vector of all gradients."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "word2vec_skipgram", "--fp16", "--lr", "1"])
    tables = [torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.half)) for _ in range(2)]
    ours = FP16Optimizer.build_optimizer(convert_namespace_to_omegaconf(args), tables)
    ours.load_state_dict({"state": {}, "param_groups": [{"lr": 1.0, "params": [0]}], "loss_scale": 4.0})
    ours.zero_grad()
    ours.backward(sum((table * torch.tensor([[30.0, 40], [3, 4]])).sum() for table in tables))
    ours.clip_grad_norm(0.0)
    ours.step()
    for table in tables:
        torch.testing.assert_close(table.data, -torch.tensor([[6.0, 8], [3, 4]], dtype=torch.half))


@pytest.mark.parametrize("norm", [-1.0, float("inf"), float("nan")])
def test_refused_norms(norm: float) -> None:
    with pytest.raises(ValueError, match=rf"--clip-row-norm: needs a number from 0 on; got {norm}\. Use 0"):
        optimizer(torch.nn.Parameter(torch.ones(2)), clip_row_norm=norm)
    with pytest.raises(ValueError, match=f"--clip-row-norm: .* got {norm}"):
        RowSGD([torch.nn.Parameter(torch.ones(2))], lr=1.0, clip_row_norm=norm)
