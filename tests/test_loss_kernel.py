"""The kernel that turns rows of logits into losses and gradients, on a GPU, or interpreted (TRITON_INTERPRET=1)."""

import logging
import os
import sys

import pytest
import torch

from fairseq_tiedemb import loss_by_rows
from fairseq_tiedemb.losses import LossOptions, output_loss

needs_interpreter = pytest.mark.skipif("TRITON_INTERPRET" not in os.environ, reason="needs TRITON_INTERPRET=1")
devices = pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=needs_interpreter), pytest.param("cuda", marks=pytest.mark.gpu)]
)
LOSSES = [LossOptions(), LossOptions(label_smoothing=0.1), LossOptions(z_loss=0.1), LossOptions(0.2, 0.1)]


@devices
@pytest.mark.parametrize("options", LOSSES)
@pytest.mark.parametrize("has_terms", [False, True])
@pytest.mark.parametrize("cap", [None, 3.0, 1e4])
@pytest.mark.parametrize("vocabulary", [1, 7, 5000])
def test_the_kernel_is_the_equation_in_float64(
    device: str, options: LossOptions, has_terms: bool, cap: float | None, vocabulary: int
) -> None:
    rows_to_gradients = pytest.importorskip("fairseq_tiedemb.loss_kernel").rows_to_gradients
    products = 3 * torch.randn(5, vocabulary)
    target, weights = torch.randint(vocabulary, (5,)), torch.rand(5)
    scale, offset = (
        (torch.rand(2 * vocabulary)[::2] + 0.5, torch.randn(1).expand(vocabulary)) if has_terms else (None, None)
    )

    exact = products.double().requires_grad_()
    before = exact if scale is None else exact * scale.double() + offset.double()
    before.retain_grad()
    logits = before if cap is None else cap * torch.tanh(before / cap)
    log_z = logits.logsumexp(1, keepdim=True)
    log_p = logits - log_z
    each = options.label_smoothing / max(vocabulary - 1, 1)
    loss = -(1 - options.label_smoothing - each) * log_p.gather(1, target[:, None]) - each * log_p.sum(1, keepdim=True)
    loss = loss + options.z_loss * log_z.square()
    (loss.squeeze(1) * weights).sum().backward()

    terms = [None if term is None else term.to(device) for term in (scale, offset)]
    for times_scale, gradient in ((True, exact.grad), (False, before.grad)):
        found = products.to(device, copy=True)
        sums = rows_to_gradients(
            found, target.to(device), *terms, cap, options, weights.to(device), gradient=True, times_scale=times_scale
        )
        torch.testing.assert_close(
            options.cross_entropy(vocabulary, *sums)[0].cpu(), loss.float(), rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(found.cpu(), gradient.float(), rtol=1e-5, atol=1e-5)
    unchanged = products.to(device, copy=True)
    rows_to_gradients(unchanged, target.to(device), *terms, cap, options, None, gradient=False, times_scale=True)
    assert unchanged.cpu().equal(products)


@devices
def test_a_word_without_probability_has_no_gradient_and_a_word_that_is_none_a_loss_of_nan(device: str) -> None:
    rows_to_gradients = pytest.importorskip("fairseq_tiedemb.loss_kernel").rows_to_gradients
    scores, offset = torch.randn(2, 3, device=device), torch.tensor([0.0, -torch.inf, 0.0], device=device)
    target = torch.tensor([0, 3], device=device)
    expected = (scores + offset)[0].softmax(0) - torch.tensor([1.0, 0.0, 0.0], device=device)
    log_z, of_target, _ = rows_to_gradients(
        scores, target, None, offset, None, LossOptions(), None, gradient=True, times_scale=True
    )
    assert log_z.isfinite().all()
    assert of_target.isnan().flatten().tolist() == [False, True]
    assert scores[1].isnan().all()
    torch.testing.assert_close(scores[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("terms", [(), ("scale",), ("bias",), ("scale", "offset", "bias")])
@pytest.mark.parametrize("is_reduced", [True, False])
@pytest.mark.gpu
def test_the_loss_by_the_kernel_is_that_by_torch(
    dtype: torch.dtype, terms: tuple[str, ...], is_reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_by_rows, "GPU_BYTES", 2**18)  # several chunks
    monkeypatch.setattr(loss_by_rows, "FEWEST_ROWS", 8)
    table = torch.randn(3000, 64, device="cuda", dtype=dtype, requires_grad=True)
    features = torch.randn(300, 64, device="cuda", dtype=dtype, requires_grad=True)
    given = {name: (torch.rand(3000, device="cuda") + 0.5).requires_grad_() for name in terms}
    target, weights = torch.randint(3000, (300,), device="cuda"), torch.rand(300, device="cuda")
    options = LossOptions(0.1, 0.01, reduce=is_reduced)

    def run() -> list[torch.Tensor]:
        loss = output_loss(features, table, target, **given, soft_cap=30.0, options=options).loss
        total = loss if is_reduced else (loss * weights).sum()
        return [loss.detach(), *torch.autograd.grad(total, (features, table, *given.values()))]

    assert loss_by_rows.kernel_of_rows(features.device) is not None
    ours = run()
    monkeypatch.setattr(loss_by_rows, "kernel_for", lambda scores: None)
    monkeypatch.setattr(loss_by_rows, "PRODUCTS_ROUND_ONCE", False)
    for found, expected in zip(ours, run(), strict=True):
        error = (found.double() - expected.double()).norm() / expected.double().norm()
        assert error < {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]


def test_without_a_kernel_torchs_operations_are_taken_and_the_reason_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "fairseq_tiedemb.loss_kernel", raising=False)
    with caplog.at_level(logging.WARNING):
        assert loss_by_rows.kernel_of_rows.__wrapped__(torch.device("cuda", 1)) is None
    assert (
        "the loss on cuda:1 takes torch's operations, since its kernel ended in ModuleNotFoundError: import of tri"
        in (caplog.text)
    )


@torch.enable_grad()
def by_torch(
    scores: torch.Tensor,
    target: torch.Tensor,
    scale: torch.Tensor | None,
    offset: torch.Tensor | None,
    soft_cap: float | None,
    options: LossOptions,
    unit: torch.Tensor | None,
    *,
    gradient: bool,
    times_scale: bool,
) -> tuple[torch.Tensor, ...]:
    """What the kernel does, of plain losses."""
    exact = scores.double().requires_grad_()
    before = (exact if scale is None else exact * scale) + (0 if offset is None else offset)
    before.retain_grad()
    log_z = before.logsumexp(1, keepdim=True)
    of_target = before.gather(1, target[:, None])
    ((log_z - of_target).squeeze(1) * (1 if unit is None else unit)).sum().backward()
    if gradient:
        scores.detach().copy_(exact.grad if times_scale else before.grad)
    return log_z.detach().float(), of_target.detach().float(), torch.zeros_like(log_z).float()


@pytest.mark.parametrize("terms", [(), ("scale",), ("bias",), ("scale", "offset", "bias")])
@pytest.mark.parametrize("is_reduced", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_loss_around_a_kernel(
    terms: tuple[str, ...], is_reduced: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_by_rows, "ROWS", 8)  # several chunks
    table, features = (torch.randn(n, 6).to(dtype).requires_grad_() for n in (11, 30))
    given = {name: (torch.rand(11) + 0.5).requires_grad_() for name in terms}
    target, weights = torch.randint(11, (30,)), torch.rand(30)

    def run() -> list[torch.Tensor]:
        loss = output_loss(features, table, target, **given, options=LossOptions(reduce=is_reduced)).loss
        total = loss if is_reduced else (loss * weights).sum()
        return [loss.detach(), *torch.autograd.grad(total, (features, table, *given.values()))]

    expected, calls = run(), []
    monkeypatch.setattr(loss_by_rows, "kernel_for", lambda scores: lambda *a, **k: calls.append(a) or by_torch(*a, **k))
    for found, exact in zip(run(), expected, strict=True):
        torch.testing.assert_close(
            found, exact, rtol=1e-4 if dtype == torch.float32 else 1e-2, atol=1e-2 * exact.abs().max()
        )
    assert len(calls) == (4 if is_reduced else 8)  # without `reduce` the backward pass does it again
