"""The contract of heads: laws that hold for every head, this package's and a user's."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch.utils._pytree import tree_leaves

from fairseq_tiedemb import CountedHead, LossOptions, OutputHead, register_output_layer
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.loss_options import RANGES
from fairseq_tiedemb.outputs import OUTPUT_HEADS, Head, OutputLayer

from .common import COUNTS, HEADS, MARKS, SIZE, TARGET, WIDTH, features, gradients, slope, table

SCATTERED = "classes, nowhere in a row"


class Tempered(CountedHead):
    """A head from outside: it has scores alone."""

    flag = "--output-layer tempered"

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        return super().scores(features) / 2


ALL: dict[str, Callable[[Any], Any]] = {**HEADS, "tempered": lambda counts: Tempered(table(), counts, MARKS)}
every_head = pytest.mark.parametrize("name", ALL)


def needs_counts(name: str) -> bool:
    """Whether a head that was made without counts says that it needs them."""
    try:
        getattr(ALL[name](None), "require_counts", lambda: None)()
    except ValueError:
        return name != SCATTERED
    return False


with_counts = pytest.mark.parametrize("name", list(filter(needs_counts, ALL)))
# Heads without a bias a word, or whose biases are no log-probabilities.
OTHER_BIASES = {"adaptive": "bands have none", "negative-sampling": "no probabilities", "tempered": "halves them"}
with_probabilities = pytest.mark.parametrize("name", [name for name in ALL if name != "negative-sampling"])
PER_WORD = LossOptions(reduce=False)


def build(name: str, counts: Any = COUNTS) -> Any:
    torch.manual_seed(1)
    return ALL[name](counts).eval()


def parameters(head: Any) -> list[Any]:
    """Of the head and of what it borrows."""
    borrowed = [table for table in (getattr(head, "table", None), getattr(head, "layers", None)) if table is not None]
    return [each for module in (head, *borrowed) for each in module.parameters()]


def test_every_registered_head_is_here() -> None:
    assert OUTPUT_HEADS.keys() <= ALL.keys()


def test_which_heads_need_counts() -> None:
    without = {"softmax", "mixture", "joint", "adaptive", "negative-sampling", SCATTERED}
    assert {name for name in ALL if not needs_counts(name)} == without


@every_head
def test_what_is_declared(name: str) -> None:
    head = build(name)
    assert isinstance(head, Head)
    assert sum(each.__module__.startswith("fairseq_tiedemb.") for each in type(head).__mro__) <= 4
    assert head.flag.startswith("--")
    assert {type(each) for each in (head.by_target, head.loss_is_its_own, head.has_raw_scores)} == {bool}
    assert head.has_raw_scores == hasattr(head, "raw_scores")
    assert all(len(own) <= SIZE for own in (table.weight for table in head.tables().values()))


@with_probabilities
def test_probabilities_sum_to_1_and_are_those_of_the_loss(name: str) -> None:
    head, h = build(name), features()
    log_p = head.scores(h).log_softmax(-1)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(h), dtype=torch.float64))
    expected = log_p.gather(1, TARGET.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(head.log_prob(h, TARGET), expected)
    torch.testing.assert_close(head.loss(h, TARGET, PER_WORD).loss, -expected)
    whole = head.loss(h, TARGET)
    torch.testing.assert_close(whole.loss, -expected.sum())
    torch.testing.assert_close(whole.nll_loss, -expected.sum())
    assert not whole.nll_loss.requires_grad


@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("tree", "joint", "adaptive", "negative-sampling")]
)
def test_constants_of_the_table_are_those_of_the_head(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_constants(counts: Any) -> Any:
        head = ALL[name](counts)
        for each in head.tables().values():
            each.constants = Constants(logit_scale=0.7, logit_soft_cap=1.0)
        return head

    h, without = features(), build(name)
    monkeypatch.setitem(ALL, "constant", with_constants)
    assert not torch.allclose(build("constant").log_prob(h, TARGET), without.log_prob(h, TARGET))
    test_probabilities_sum_to_1_and_are_those_of_the_loss("constant")
    test_gradients_of_the_scores_are_those_of_the_loss("constant")


def test_negative_sampling_has_no_probabilities() -> None:
    with pytest.raises(ValueError, match="--output-layer: .* got negative-sampling"):
        build("negative-sampling").log_prob(features(), TARGET)


@every_head
def test_gradients_are_those_of_the_loss_in_training(name: str) -> None:
    head, h = build(name).train(), features()

    def loss() -> torch.Tensor:
        torch.manual_seed(5)  # of the noise
        return head.loss(h, TARGET).loss

    wanted = [h, *(each for each in parameters(head) if each.requires_grad)]
    found = torch.autograd.grad(loss(), wanted, allow_unused=True, materialize_grads=True)
    for gradient, parameter in zip(found, wanted, strict=True):
        for direction in torch.randn(3, *parameter.shape, dtype=torch.float64):
            expected = slope(lambda: loss().item(), parameter, direction)
            assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-7)


# fairseq's adaptive softmax gives all log-probabilities without gradients.
@pytest.mark.parametrize("name", [name for name in ALL if name not in ("adaptive", "negative-sampling")])
def test_gradients_of_the_scores_are_those_of_the_loss(name: str) -> None:
    head, h, weights = build(name), features(), torch.rand(len(TARGET), dtype=torch.float64)
    by_scores = -head.scores(h).log_softmax(-1).gather(1, TARGET.unsqueeze(1)).squeeze(1)
    wanted = [h, *(each for each in parameters(head) if each.requires_grad)]
    losses = by_scores @ weights, head.loss(h, TARGET, PER_WORD).loss @ weights
    found = [torch.autograd.grad(each, wanted, allow_unused=True, materialize_grads=True) for each in losses]
    torch.testing.assert_close(*found)


@every_head
def test_scores_keep_the_shape_of_the_features(name: str) -> None:
    head, h = build(name), features()
    torch.testing.assert_close(head.scores(h.view(2, 4, WIDTH)).flatten(0, 1), head.scores(h))


@pytest.mark.parametrize("name", [name for name in ALL if name not in OTHER_BIASES])
def test_biases_start_as_a_distribution(name: str) -> None:
    head = build(name)
    q = COUNTS.clamp(min=1).double().index_fill(0, torch.tensor(MARKS), 0.0)
    q /= q.sum()
    head.start_bias(q.log())
    without_features = head.scores(torch.zeros(1, WIDTH, dtype=torch.float64)).softmax(-1)[0]
    torch.testing.assert_close(without_features, q)
    head.start_bias(None)
    modules = [module for module in (head, getattr(head, "table", None)) if module is not None]
    biases = [entry for module in modules for key, entry in module.named_parameters() if key.endswith("bias")]
    assert biases
    assert not any(bias.any() for bias in biases)


@pytest.mark.parametrize("rows", [[0, 0, 0, 1, 1, 2, 2, 2], [2, 0, 1, 2, 2, 0, 1, 0]], ids=["in order", "in no order"])
@with_probabilities
def test_several_targets_of_a_feature_are_features_repeated(name: str, rows: list[int]) -> None:
    head, h, rows = build(name), features(3), torch.tensor(rows)
    expected = head.loss(h[rows], TARGET, PER_WORD).loss
    torch.testing.assert_close(head.loss_of_sets(h, TARGET, rows, PER_WORD).loss, expected)
    torch.testing.assert_close(head.loss_of_sets(h, TARGET, rows).loss, expected.sum())


@pytest.mark.parametrize("training", [True, False])
@every_head
def test_no_words_have_no_loss(name: str, training: bool) -> None:
    head, h = build(name).train(training), features(0)
    loss = head.loss(h, TARGET[:0]).loss
    assert loss.item() == 0
    assert all(not each.any() for each in gradients(loss, h))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [name for name in ALL if name != "adaptive"])  # which is fairseq's
def test_every_parameter_has_a_gradient_without_words(name: str, training: bool) -> None:
    """As of a process whose rows have ended: DistributedDataParallel waits for all parameters."""
    head = build(name).train(training)
    head.loss(features(0), TARGET[:0]).loss.backward()
    trained = [each for each in parameters(head) if each.requires_grad]
    assert [each.grad is None for each in trained] == [False] * len(trained)


@every_head
def test_losses_that_a_head_refuses(name: str) -> None:
    head, terms = build(name), {"label_smoothing": 0.1, "z_loss": 0.2, "augmented_loss": 0.3}
    assert terms.keys() == RANGES.keys() - {"augmented_temperature"}
    for option, value in terms.items():
        options = replace(LossOptions(), **{option: value})
        if option in head.refuses:
            for compute in (head.loss, lambda h, target, options: OutputLayer(head).check_training(options)):
                with pytest.raises(ValueError, match=f"--{option.replace('_', '-')}: .* got {value}"):
                    compute(features(), TARGET, options)
        elif option == "z_loss" and not name.startswith("short-list"):  # which has one of its list alone
            h = features()
            more = head.loss(h, TARGET, options).loss - head.loss(h, TARGET).loss
            torch.testing.assert_close(more, value * head.scores(h).logsumexp(1).square().sum())
        else:
            h = features()
            change = head.loss(h, TARGET, options).loss - head.loss(h, TARGET).loss
            assert 1e-3 < change.abs() < 1e3


@pytest.mark.parametrize(("dtype", "training"), [(torch.float16, True), (torch.bfloat16, False)])
@every_head
def test_half_precision_sums_in_float32(name: str, dtype: torch.dtype, training: bool) -> None:
    """One word a thousand times: a sum in half precision would stand still."""
    half, exact = (build(name).train(training) for _ in range(2))
    with torch.no_grad():
        for one, other in zip(parameters(half), parameters(exact), strict=True):
            one.data = one.to(dtype)
            other.copy_(one)
    half.to(dtype)
    h, target = (0.1 * torch.randn(1000, WIDTH)).to(dtype), torch.full((1000,), 4)
    found, expected = [], []
    for head, inputs, into in ((half, h, found), (exact, h.double(), expected)):
        torch.manual_seed(3)
        loss = head.loss(inputs, target).loss
        into += [loss, *torch.autograd.grad(loss, parameters(head), allow_unused=True, materialize_grads=True)]
    assert found[0].dtype == torch.float32
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= 4 * torch.finfo(dtype).eps * other.norm()


@every_head
def test_copies_and_pickles_are_whole(name: str) -> None:
    head, h = build(name), features()
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        torch.testing.assert_close(other.scores(h), head.scores(h), rtol=0, atol=0)


@with_counts
def test_counts_come_with_a_checkpoint(name: str) -> None:
    head, other, h = build(name), build(name, counts=None), features()
    message = "needs the counts of the training text; got a data folder without"
    layer = OutputLayer(other)
    if name != "tempered":
        with pytest.raises(ValueError, match=f"{head.flag}: {message}"):
            layer.check_training(LossOptions())
    if name in ("classes", "short-list", "tree"):  # which are made of counts
        for compute in (other.scores, lambda h: other.loss(h, TARGET), lambda h: other.log_prob(h, TARGET)):
            with pytest.raises(ValueError, match=f"{head.flag}: {message}"):
                compute(h)
    other.load_state_dict(head.state_dict())
    layer.check_training(LossOptions())
    torch.testing.assert_close(other.log_prob(h, TARGET), head.log_prob(h, TARGET), rtol=0, atol=0)


@with_counts
def test_a_checkpoint_of_more_words_is_refused_by_size(name: str) -> None:
    head = build(name)
    state = {
        key: torch.cat((value, value[:2])) if len(value) >= SIZE - 1 else value  # a tree has a node less than words
        for key, value in head.state_dict().items()
    }
    with pytest.raises(RuntimeError, match="size mismatch for "):
        head.load_state_dict(state)


@dataclass
class Options:
    """Of a registered head."""

    temperature: float = 2.0
    steps: int = 3
    warm: bool = False
    name: str = "a"


OWN = OutputHead("own", "a head of one's own", lambda options, table, counts, words: table, Options)


def test_options_are_typed() -> None:
    assert OWN.parse(None) == Options()
    assert OWN.parse("temperature=1.5, steps=4,warm=True,name=b") == Options(1.5, 4, True, "b")
    for text, got in (
        ("warmth=2", r"needs options of own, .*; got 'warmth'. Use temperature, steps, warm, name"),
        ("steps=1,warm=True,steps=2", r"needs options of own, each once; got 'steps'. Use temp"),
        ("steps=2.5", r"needs steps=INT; got steps=2.5"),
        ("warm=maybe", r"needs warm=BOOL; got warm=maybe"),
        ("temperature", r"needs temperature=FLOAT; got temperature=. Use"),
    ):
        with pytest.raises(ValueError, match=f"--output-layer-options: {got}"):
            OWN.parse(text)
    with pytest.raises(ValueError, match="needs an output layer with options; got 'a' with bare, which has none"):
        OutputHead("bare", "", OWN.build).parse("a=1")


def test_what_cannot_be_registered() -> None:
    @dataclass
    class Listed:
        sizes: list[int]

    @dataclass
    class Open:
        width: int

    for head, got in (
        (replace(OWN, name="nce"), "output layer: needs an unused name; got 'nce', which is 'noise"),
        (replace(OWN, options=int), "output layer: needs options that are a dataclass; got <class 'int'>"),
        (replace(OWN, options=Listed), r"output layer: needs options of type int, .*; got sizes: list\[int\]"),
        (replace(OWN, options=Open), "output layer: needs options with defaults; got width without. Give it one."),
        ("own", "output layer: needs an instance of OutputHead; got 'own'"),
    ):
        with pytest.raises(ValueError, match=got):
            register_output_layer(head)  # type: ignore[arg-type]
    assert "own" not in OUTPUT_HEADS


@pytest.mark.parametrize("made", [None, torch.nn.Linear(2, 2), Head()])
def test_what_is_no_head_is_not_built(made: Any) -> None:
    own = OutputHead("own", "", lambda *_: made)
    message = f"--output-layer own: needs a build that returns a Head with a .*; got {type(made).__name__}. Return one."
    with pytest.raises(ValueError, match=message):
        own.built(Options(), table(), None, Dictionary())


def test_a_head_without_a_flag_is_called_by_its_name() -> None:
    class Quiet(CountedHead):
        pass

    head = OutputHead("quiet", "", lambda options, table, *_: Quiet(table, None, MARKS)).built(None, table())
    with pytest.raises(ValueError, match=r"--label-smoothing: needs 0 with --output-layer quiet; got 0\.1"):
        head.check_options(LossOptions(label_smoothing=0.1))


def test_words_of_fairseq_are_the_words_of_a_head() -> None:
    words = Dictionary()
    assert (words.bos(), words.pad()) == MARKS
    assert len(words) < SIZE
    assert table().embedding_dim == WIDTH


@pytest.mark.parametrize("name", HEADS)
def test_a_head_moves_to_a_device_as_a_whole(name: str) -> None:
    """A tensor that stayed on the CPU would be met by one of a GPU, at the latest when a checkpoint is loaded."""
    modules = list(HEADS[name](COUNTS).to("meta").modules())
    # The shares of a short-list move when they are read.
    held = [value for module in modules for key, value in vars(module).items() if key != "_log_share"]
    assert all(each.device.type == "meta" for each in tree_leaves(held) if isinstance(each, torch.Tensor))
