"""Sharing by identity and by behaviour, the output bias, initialisation, and cached norms."""

import copy
import io
import pickle

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_tiedemb.embedding import SharedEmbedding, embedding_roles
from fairseq_tiedemb.sharing import SHARING_METHODS

PAD = 1
every_method = pytest.mark.parametrize("method", SHARING_METHODS)


class TwoPlaces(torch.nn.Module):
    """The smallest model that shares: one table in two places."""

    def __init__(self, method: str = "plain"):
        super().__init__()
        self.source = SharedEmbedding(7, 4, PAD, method=method, bias=True)
        self.output = self.source


def through_pickle(model: TwoPlaces) -> TwoPlaces:
    return pickle.loads(pickle.dumps(model))


def through_file(model: TwoPlaces) -> TwoPlaces:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = TwoPlaces(model.source.method)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def through_assignment(model: TwoPlaces) -> TwoPlaces:
    fresh = TwoPlaces(model.source.method)
    copied = {name: value.clone() for name, value in model.state_dict().items()}
    fresh.load_state_dict(copied, assign=True)
    return fresh


def through_averaging(model: TwoPlaces) -> TwoPlaces:
    fresh = TwoPlaces(model.source.method)
    fresh.load_state_dict({name: (value + value) / 2 for name, value in model.state_dict().items()})
    return fresh


@every_method
@pytest.mark.parametrize(
    "travel",
    [copy.deepcopy, through_pickle, through_file, through_assignment, through_averaging, TwoPlaces.half],
)
def test_sharing_survives(travel, method: str) -> None:
    original = TwoPlaces(method)
    model = travel(copy.deepcopy(original))
    assert model.source.weight is model.output.weight
    assert sum(1 for _ in model.parameters()) == 2
    torch.testing.assert_close(model.source.weight.float(), original.source.weight, atol=1e-3, rtol=1e-3)
    with torch.no_grad():  # written through one role, read through the other
        model.source.weight[3] = torch.tensor([1.0, 0.0, 0.0, 0.0])
        scores = model.output.scores(torch.eye(4, dtype=model.output.weight.dtype))
    assert scores[0, 3] > 0.4
    assert scores[1:, 3].abs().max() < 1e-6 or method == "distance"
    assert (original.source.weight[3] != torch.tensor([1.0, 0.0, 0.0, 0.0])).any()


def test_untied_tables_are_two() -> None:
    roles = roles_of(share_decoder=False, share_all=False)
    assert len({id(table.weight) for table in roles}) == 3
    assert roles.sharing == "nothing"


def roles_of(**kwargs):
    sizes = {"source_size": 9, "target_size": 9, "source_dim": 4, "target_dim": 4, "output_dim": 4}
    return embedding_roles(**{**sizes, **kwargs}, padding_idx=PAD)


def test_weight_tying_shares_the_decoders_tables() -> None:
    roles = roles_of(share_decoder=True, share_all=False, source_size=8)
    assert roles.target is roles.output
    assert roles.source is not roles.target
    assert [table.bias is not None for table in roles] == [False, True, True]
    assert "weight tying" in roles.sharing


def test_three_way_weight_tying_shares_all() -> None:
    roles = roles_of(share_decoder=True, share_all=True)
    assert roles.source is roles.target is roles.output
    assert "three-way" in roles.sharing


@pytest.mark.parametrize(
    ("sizes", "share_all", "found"),
    [({"output_dim": 5}, False, r"target \(9, 4\), output \(9, 5\)"), ({"source_size": 8}, True, r"source \(8, 4\)")],
)
def test_sizes_that_cannot_be_shared_are_refused(sizes, share_all: bool, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        roles_of(share_decoder=True, share_all=share_all, **sizes)


@every_method
def test_output_bias_is_added(method: str) -> None:
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True), torch.randn(2, 4)
    before = table.scores(features)
    with torch.no_grad():
        table.bias.copy_(torch.arange(7.0))
    torch.testing.assert_close(table.scores(features) - before, torch.arange(7.0).expand(2, 7))


def test_padding_row_starts_at_zero_and_gets_no_gradient_as_an_input() -> None:
    table = SharedEmbedding(7, 4, PAD)
    table.embed(torch.tensor([PAD, 2])).sum().backward()
    assert table.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [2]


def test_padding_row_gets_the_softmax_gradient_as_an_output() -> None:
    table = SharedEmbedding(7, 4, PAD)
    table.scores(torch.ones(1, 4)).logsumexp(1).sum().backward()
    assert table.weight.grad[PAD].abs().sum() > 0


@every_method
def test_rows_start_with_norm_one_where_a_method_divides_by_it(method: str) -> None:
    table = SharedEmbedding(500, 64, PAD, method=method, std=0.01)
    expected = 0.08 if method in ("plain", "distance") else 1.0
    assert table.weight.norm(dim=1).mean().item() == pytest.approx(expected, rel=0.1)


@every_method
def test_kept_norms_follow_every_change_of_the_table(method: str) -> None:
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True).eval(), torch.randn(2, 4)

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            kept = table.scores(features)
        return kept, table.scores(features).detach()

    torch.testing.assert_close(*both())
    with torch.no_grad():
        table.weight.mul_(2.0)
        table.bias.add_(1.0)
    torch.testing.assert_close(*both())
    optimizer = Adam(table.parameters(), lr=0.1)  # writes through `p.data`
    table.train()
    table.scores(features).logsumexp(1).sum().backward()
    optimizer.step()
    table.eval()
    torch.testing.assert_close(*both())
    table.load_state_dict(SharedEmbedding(7, 4, PAD, method=method, bias=True).state_dict())
    torch.testing.assert_close(*both())


def test_norms_are_computed_once_without_gradients() -> None:
    table, calls = SharedEmbedding(7, 4, PAD, method="cosine").eval(), []
    computed = table.squared_norms
    table.squared_norms = lambda: calls.append(1) or computed()  # type: ignore[method-assign]
    with torch.no_grad():
        for _ in range(3):
            table.scores(torch.ones(1, 4))
    assert len(calls) == 1


@every_method
def test_inference_mode(method: str) -> None:
    with torch.inference_mode():
        table = SharedEmbedding(7, 4, PAD, method=method, bias=True).eval()
        torch.testing.assert_close(table.scores(torch.ones(1, 4)), table.scores(torch.ones(1, 4)))


def test_kept_norms_keep_no_bias() -> None:
    table, features = SharedEmbedding(7, 4, PAD, method="cosine", bias=True).eval(), torch.ones(1, 4)
    with torch.no_grad():
        before = table.scores(features)
        table.bias = torch.nn.Parameter(torch.ones(7))
        torch.testing.assert_close(table.scores(features), before + 1)


@every_method
def test_scores_are_a_fresh_tensor(method: str) -> None:
    """fairseq's generator divides scores by the temperature in place."""
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True).eval(), torch.randn(2, 4)
    with torch.no_grad():
        table.scores(features).div_(7.0)
        torch.testing.assert_close(table.scores(features), table.scores(features))
        assert table.scores(features).data_ptr() != table.scores(features).data_ptr()


def test_repr_says_what_it_is() -> None:
    assert repr(SharedEmbedding(7, 4, PAD, method="cosine")) == "SharedEmbedding(7, 4, method=cosine, bias=False)"
