"""word2vec's models: losses and gradients against the equations, in every form; what is shared; sparse gradients."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.criterions.word_pairs import WordPairsLoss
from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.models.word2vec import Word2VecConfig
from fairseq_tiedemb.optim.row_sgd import FairseqRowSGD, RowSGDConfig
from fairseq_tiedemb.outputs import negative_sampling, pair_steps
from fairseq_tiedemb.outputs.binary_trees import huffman_tree
from fairseq_tiedemb.outputs.negative_sampling import NOISE_FOR
from fairseq_tiedemb.sharing import SHARING_METHODS
from fairseq_tiedemb.sparse_rows import sum_of_rows
from fairseq_tiedemb.tasks.word_pairs import WordPairsTask

from .. import reference
from .common import dictionary, grown

WORDS = dictionary(11)
COUNTS = np.array([0, 0, 0, 0, 9, 7, 5, 4, 2, 1, 1])
# Centres and their contexts; 5 is centre and context at once, and 4 is a pair with itself.
WINDOWS = [(4, [5, 6, 4]), (5, [4, 7]), (6, [4]), (5, [10, 5])]
NOISE = [4, 4, 6, 9, 8, 5]
SKIPGRAM_PAIRS = [([centre], context) for centre, contexts in WINDOWS for context in contexts]
CBOW_PAIRS = [(contexts, centre) for centre, contexts in WINDOWS]


def build(name: str = "word2vec_skipgram", **options: Any) -> Any:
    """A tiny model in float64, whose weights matter."""
    cfg = Word2VecConfig(**{"decoder_embed_dim": 6, **options})
    cfg._name = name
    torch.manual_seed(2)
    task = SimpleNamespace(source_dictionary=WORDS, word_counts=COUNTS)
    return grown(ARCH_MODEL_REGISTRY[name].build_model(cfg, task).double())


def test_noise_is_drawn_by_the_counts_of_a_checkpoint() -> None:
    sampling = next(module for module in build().modules() if isinstance(module, negative_sampling.NegativeSampling))
    assert sampling.noise.draw((200,)).unique().numel() > 1
    only_seven = torch.zeros_like(sampling.counts)
    only_seven[7] = 3
    sampling.load_state_dict({"counts": only_seven})
    assert sampling.noise.draw((200,)).unique().tolist() == [7]


def batch(model: Any) -> dict[str, torch.Tensor]:
    centres = torch.tensor([centre for centre, _ in WINDOWS])
    contexts = torch.tensor([context for _, contexts in WINDOWS for context in contexts])
    which = torch.tensor([number for number, (_, contexts) in enumerate(WINDOWS) for _ in contexts])
    source, target = (contexts, centres) if model.predicts_centre else (centres, contexts)
    return {"src_tokens": source, "centres": which, "target": target}


def tables(model: Any) -> tuple[np.ndarray, np.ndarray]:
    output = model.output.table
    rows = output.nodes if hasattr(output, "nodes") else output.weight
    return model.decoder.embed_tokens.weight.detach().numpy(), rows.detach().numpy()


def check(model: Any, loss: torch.Tensor, expected: tuple[float, np.ndarray, np.ndarray], *, tied: bool) -> None:
    loss.backward()
    np.testing.assert_allclose(loss.item(), expected[0], rtol=1e-12)
    output = model.output.table
    of_outputs = output.nodes.grad if hasattr(output, "nodes") else output.weight.grad
    if tied:
        np.testing.assert_allclose(of_outputs.to_dense(), expected[1] + expected[2], rtol=1e-10, atol=1e-13)
    else:
        np.testing.assert_allclose(of_outputs.to_dense(), expected[2], rtol=1e-10, atol=1e-13)
        of_inputs = model.decoder.embed_tokens.weight.grad.to_dense()
        np.testing.assert_allclose(of_inputs, expected[1], rtol=1e-10, atol=1e-13)


every_model = pytest.mark.parametrize("name", ["word2vec_skipgram", "word2vec_cbow"])
every_sparsity = pytest.mark.parametrize("sparse", [False, True])


@every_model
@every_sparsity
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("noise_for", NOISE_FOR)
def test_negative_sampling(
    name: str, sparse: bool, tied: bool, noise_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last block is cut short.
    monkeypatch.setattr(negative_sampling, "BLOCK", 3)
    model = build(name, share_decoder_input_output_embed=tied, negatives=2, noise_for=noise_for)
    model.set_sparse_gradients(sparse)
    inputs = batch(model)
    pairs = CBOW_PAIRS if model.predicts_centre else SKIPGRAM_PAIRS
    # Of each block, centre or pair.
    own_feature = model.predicts_centre or noise_for == "pair"
    of_pair = list(range(len(pairs))) if own_feature else inputs["centres"].tolist()
    count = 2
    if noise_for == "block":
        of_pair, count = [feature // 3 for feature in of_pair], 5
    noise = torch.tensor((NOISE * 4)[: count * (max(of_pair) + 1)]).view(-1, count)
    predictions = [
        (words, [(target, 1.0, 1), *((word, 2 / count, -1) for word in noise[own].tolist() if word != target)])
        for (words, target), own in zip(pairs, of_pair, strict=True)
    ]
    features = model.extract_features(inputs["src_tokens"], inputs["centres"])[0]
    rows = torch.arange(len(features)) if model.predicts_centre else inputs["centres"]
    losses = model.output.head.loss_of_sets(features, inputs["target"], rows, noise=noise)
    assert losses.nll_loss is None, "it is of no probability"
    check(model, losses.loss, reference.logistic_word2vec(*tables(model), predictions), tied=tied)


@every_model
@every_sparsity
@pytest.mark.parametrize("tied", [False, True])
def test_full_softmax(name: str, sparse: bool, tied: bool) -> None:
    model = build(name, share_decoder_input_output_embed=tied, word2vec_output="full")
    model.set_sparse_gradients(sparse)
    losses = model(**batch(model))
    assert losses.nll_loss.item() == losses.loss.item()
    pairs = CBOW_PAIRS if model.predicts_centre else SKIPGRAM_PAIRS
    check(model, losses.loss, reference.softmax_word2vec(*tables(model), pairs), tied=tied)


@every_model
@every_sparsity
def test_tree(name: str, sparse: bool) -> None:
    model = build(name, word2vec_output="tree")
    model.set_sparse_gradients(sparse)
    paths = reference.paths(huffman_tree(COUNTS))
    pairs = CBOW_PAIRS if model.predicts_centre else SKIPGRAM_PAIRS
    predictions = [(words, [(node, 1.0, sign) for node, sign in paths[target]]) for words, target in pairs]
    check(model, model(**batch(model)).loss, reference.logistic_word2vec(*tables(model), predictions), tied=False)


@pytest.mark.parametrize("what", ["tree", "full"])
def test_scores_are_those_of_the_loss(what: str) -> None:
    model = build(word2vec_output=what)
    inputs = batch(model)
    log_p = model(inputs["src_tokens"]).log_softmax(-1)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(WINDOWS), dtype=torch.float64))
    if what == "tree":
        torch.testing.assert_close(model(inputs["src_tokens"]), log_p)
    expected = log_p[inputs["centres"]].gather(1, inputs["target"].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(model.log_prob(**inputs), expected)
    torch.testing.assert_close(model(**inputs).loss, -expected.sum())


@pytest.mark.parametrize("method", SHARING_METHODS)
@pytest.mark.parametrize("what", ["negative", "full"])
def test_sharing_methods_score_some_words_as_they_score_all(method: str, what: str) -> None:
    constants = {"embedding_scale": 1.5, "logit_scale": 0.7, "logit_soft_cap": 2.0}
    model = build(word2vec_output=what, sharing_method=method, share_decoder_input_output_embed=True, **constants)
    inputs = batch(model)
    scores = model(inputs["src_tokens"])[inputs["centres"]]
    of_target = scores.gather(1, inputs["target"].unsqueeze(1)).squeeze(1)
    if what == "full":
        expected = torch.logsumexp(scores, 1) - of_target
        found = model(**inputs, loss_options=LossOptions(reduce=False)).loss
    else:
        noise = torch.tensor(NOISE[:5]).view(1, 5)
        own = noise.expand(len(scores), 5)
        of_noise = torch.nn.functional.softplus(scores.gather(1, own))
        of_noise = of_noise.masked_fill(own == inputs["target"].unsqueeze(1), 0.0)
        expected = torch.nn.functional.softplus(-of_target) + of_noise.sum(1)
        features = model.extract_features(inputs["src_tokens"])[0]
        found = model.output.head.loss_of_sets(
            features, inputs["target"], inputs["centres"], LossOptions(reduce=False), noise=noise
        ).loss
    torch.testing.assert_close(found, expected)


def test_sparse_gradients_have_the_rows_of_the_batch_alone() -> None:
    model = build(share_decoder_input_output_embed=True)
    model.set_sparse_gradients(True)
    model(**batch(model)).loss.backward()
    grad = sum_of_rows(model.decoder.embed_tokens.weight.grad)
    rows = set(grad._indices()[0].tolist())
    assert {centre for centre, _ in WINDOWS} <= rows <= set(range(4, len(WORDS)))


def test_shared_noise_has_the_expectation_of_own_noise() -> None:
    model = build(negatives=3)
    head, inputs = model.output.head, batch(model)
    features = model.extract_features(inputs["src_tokens"])[0].detach()
    q = head.noise.q
    scores = (features @ head.table.weight.t())[inputs["centres"]]
    of_word = torch.nn.functional.softplus(scores) * q
    of_word.scatter_(1, inputs["target"].unsqueeze(1), 0.0)
    target = torch.nn.functional.softplus(-scores.gather(1, inputs["target"].unsqueeze(1))).squeeze(1)
    expected = (target + 3 * of_word.sum(1)).sum().item()
    for noise_for in NOISE_FOR:
        head.noise_for = noise_for
        with torch.no_grad():
            losses = torch.stack(
                [head.loss_of_sets(features, inputs["target"], inputs["centres"]).loss for _ in range(1000)]
            )
        error = losses.std() / len(losses) ** 0.5
        assert abs(losses.mean() - expected) < 4 * error


def test_noise_is_drawn_by_counts_to_a_power() -> None:
    head = build().output.head
    weights = np.where(COUNTS > 0, COUNTS**0.75, 0.0)
    expected = weights / weights.sum()
    np.testing.assert_allclose(head.noise.q, expected, rtol=1e-14)
    drawn = np.bincount(head.noise.draw((200_000,)).numpy(), minlength=len(COUNTS)) / 200_000
    np.testing.assert_allclose(drawn, expected, atol=0.005)
    assert not drawn[:4].any(), "fairseq's symbols are no noise"


def test_a_batch_has_one_loss_in_validation_and_many_in_training() -> None:
    model = build()
    assert model(**batch(model)).loss != model(**batch(model)).loss
    model.eval()
    assert model(**batch(model)).loss == model(**batch(model)).loss


def test_sizes_are_word2vecs_and_tables_begin_as_its() -> None:
    cfg = Word2VecConfig()
    assert (cfg.decoder_embed_dim, cfg.negatives, cfg.noise_power) == (100, 5, 0.75)
    model = build(decoder_embed_dim=8)
    model.reset_parameters()
    table, output = model.decoder.embed_tokens.weight, model.output.table.weight
    assert not output.any()
    assert 0.9 / 16 < table.abs().max() <= 1 / 16
    assert not table[WORDS.pad()].any()
    tied = build(share_decoder_input_output_embed=True)
    tied.reset_parameters()
    assert tied.output.table.weight.any()
    divided = build(sharing_method="cosine", share_decoder_input_output_embed=True, decoder_embed_dim=64)
    divided.reset_parameters()
    assert 0.7 < divided.decoder.embed_tokens.weight[4:].norm(dim=1).mean() < 1.3


@pytest.mark.parametrize(
    ("what", "tied"), [("negative", False), ("negative", True), ("full", False), ("full", True), ("tree", False)]
)
def test_checkpoints_have_the_names_of_language_models(what: str, tied: bool) -> None:
    model = build(word2vec_output=what, share_decoder_input_output_embed=tied)
    entries = model.state_dict()
    expected = {"decoder.embed_tokens.weight"}
    tree = {"decoder.output.nodes", "decoder.output.parents", "decoder.output.turns"}
    expected |= tree if what == "tree" else {"decoder.output.weight"}
    if what == "negative":
        expected.add("decoder.output.over.counts")
    assert set(entries) == expected
    other = build(word2vec_output=what, share_decoder_input_output_embed=tied)
    grown(other)
    other.load_state_dict(entries)
    other.eval()
    model.eval()
    assert other(**batch(model)).loss == model(**batch(model)).loss
    assert (len(list(model.parameters())) == 1) == tied


def test_checkpoints_before_0_1_10_load() -> None:
    model, other = build(), build()
    old = model.state_dict()
    old["decoder.negatives.counts"] = torch.zeros_like(old.pop("decoder.output.over.counts"))
    old["decoder.negatives.counts"][7] = 3
    other.load_state_dict(old)  # fairseq's, which upgrades first
    assert other.output.head.noise.draw((20,)).unique().tolist() == [7]


@every_model
@pytest.mark.parametrize("what", ["negative", "full", "tree"])
def test_targets_that_are_no_words(name: str, what: str) -> None:
    model = build(name, word2vec_output=what)
    for wrong in (-1, -100, len(WORDS)):
        given = batch(model)
        given["target"][1] = wrong
        with pytest.raises(ValueError, match=rf"target: needs tokens in \[0, {len(WORDS)}\); got {wrong}. Use"):
            model(**given)


@pytest.mark.parametrize("what", ["negative", "full", "tree"])
def test_a_loss_that_is_no_number_is_refused_where_it_is_printed(what: str) -> None:
    model = build(word2vec_output=what)
    torch.nn.init.constant_(model.decoder.embed_tokens.weight, torch.nan)
    given = batch(model)
    sample = {"net_input": given, "target": given.pop("target"), "ntokens": len(given["centres"]), "nsentences": 4}
    criterion = WordPairsLoss(SimpleNamespace())
    assert criterion(model.train(), sample)[0].isnan()
    with pytest.raises(ValueError, match="validation: needs a loss that is a number; got nan"):
        criterion(model.eval(), sample)


def test_refused_elsewhere() -> None:
    cfg = Word2VecConfig()
    cfg._name = "word2vec_skipgram"
    with pytest.raises(ValueError, match="--arch word2vec_skipgram: needs --task word_pairs.* got SimpleNamespace"):
        ARCH_MODEL_REGISTRY["word2vec_skipgram"].build_model(cfg, SimpleNamespace(source_dictionary=WORDS))
    model = build()
    with pytest.raises(ValueError, match="--output-layer: needs softmax or tree .* got negative-sampling"):
        model.log_prob(**batch(model))
    for what in ("negative", "full", "tree"):
        for option, flag in (("label_smoothing", "--label-smoothing"), ("z_loss", "--z-loss")):
            model = build(word2vec_output=what)
            with pytest.raises(ValueError, match=f"{flag}: needs 0 with .* got 0.1"):
                model(**batch(model), loss_options=LossOptions(**{option: 0.1}))
    table = build().output.table
    with pytest.raises(ValueError, match=r"counts: needs some above 0; got tensor\(\[0"):
        type(build().output.head)(table, torch.zeros(11), negatives=5, power=0.75)


@pytest.mark.parametrize(
    ("noise_for", "tied", "steps", "ends"),
    [
        ("block", False, 3, [2, 4, 5]),
        ("block", True, 3, [2, 4, 5]),
        ("block", False, 7, range(1, 6)),
        ("centre", False, 3, [2, 4, 5]),
        ("pair", False, 3, [3, 6, 9]),
        ("pair", True, 3, [3, 6, 9]),
    ],
)
def test_small_steps_are_steps_of_sgd(
    noise_for: str, tied: bool, steps: int, ends: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update is that of a loop over parts of the batch, with autograd; some of seven steps have no centre."""
    monkeypatch.setattr(negative_sampling, "BLOCK", 2)
    monkeypatch.setattr(pair_steps, "STEPS", steps)
    monkeypatch.setattr(pair_steps, "KINDS", 1)
    options = {"share_decoder_input_output_embed": tied, "negatives": 2, "noise_for": noise_for}
    model, other = (build(**options).train() for _ in range(2))
    generator, rate = torch.Generator().manual_seed(1), 0.3
    words = torch.tensor([4, 5, 6, 5, 4])
    of_pair = torch.tensor([0, 0, 1, 2, 2, 2, 3, 4, 4])
    target = torch.randint(4, 11, (9,), generator=generator)
    if noise_for == "block":  # of a step each
        noise, rows = torch.randint(4, 11, (len(ends), 3), generator=generator), range(len(ends) + 1)
    else:
        noise, rows = torch.randint(4, 11, (ends[-1], 2), generator=generator), [0, *ends]
    model.set_sparse_gradients(True, rate)
    monkeypatch.setattr(type(model.output.head), "_draw", lambda *_: noise)
    loss = model(words, of_pair, target).loss
    loss *= 1  # as a criterion may
    loss.backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    if noise_for == "pair":
        words, of_pair = words[of_pair], torch.arange(9)
    expected = 0.0
    for (first, last), own in zip(pairwise([0, *ends]), pairwise(rows), strict=True):
        pairs = (of_pair >= first) & (of_pair < last)
        features = other.extract_features(words[first:last])[0]
        step = other.output.head.loss_of_sets(features, target[pairs], of_pair[pairs] - first, noise=noise[slice(*own)])
        expected += step.loss.item()
        step.loss.backward()
        torch.optim.SGD(other.parameters(), lr=rate).step()
        other.zero_grad()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_a_loss_without_gradients_teaches_nothing() -> None:
    model = build()
    model.set_sparse_gradients(True, 0.3)
    before = [parameter.clone() for parameter in model.parameters()]
    model.eval()(**batch(model)).loss.backward()
    model.zero_grad()
    with torch.no_grad():
        model.train()(**batch(model))
    for ours, theirs in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    model(**batch(model))
    assert not torch.equal(next(model.parameters()), before[0])
    model.set_sparse_gradients(True, 0.0)  # the end of a schedule
    model(**batch(model)).loss.backward()
    assert all(parameter.grad is None for parameter in model.parameters())


class OtherRule(FairseqRowSGD):
    """An optimizer of another rule than SGD's."""


@pytest.mark.parametrize(
    ("optimizer", "settings", "ignore_grad", "in_steps"),
    [
        (FairseqRowSGD, {}, False, True),
        (FairseqRowSGD, {}, True, False),
        (OtherRule, {}, False, False),
        (FairseqRowSGD, {"clip_norm": 1.0}, False, False),
        (FairseqRowSGD, {"update_freq": [1, 2]}, False, False),
    ],
)
def test_what_needs_gradients_is_not_learned_in_steps(
    optimizer: type[FairseqRowSGD], settings: dict[str, Any], ignore_grad: bool, in_steps: bool
) -> None:
    model, task = build().train(), object.__new__(WordPairsTask)
    task.cfg = SimpleNamespace(**{"clip_norm": 0.0, "update_freq": [1], **settings})
    before = [parameter.clone() for parameter in model.parameters()]
    given = batch(model)
    sample = {"net_input": given, "target": given.pop("target"), "ntokens": 7, "nsentences": 4}
    rule = optimizer(RowSGDConfig(lr=[0.3]), list(model.parameters()))
    task.train_step(sample, model, WordPairsLoss(SimpleNamespace()), rule, 0, ignore_grad=ignore_grad)
    assert model.rate_of_steps is None
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old) is not in_steps
        assert (parameter.grad is None) == in_steps
        assert in_steps or (sum_of_rows(parameter.grad)._values().norm() > 0) is not ignore_grad


def test_a_training_that_diverges_ends() -> None:
    model = build().train()
    model.set_sparse_gradients(True, 1e200)
    message = "--lr: needs a rate at which the loss stays finite; got 1e.200. Use a lower one"
    with pytest.raises(ValueError, match=message):
        model(**batch(model))


@pytest.mark.parametrize("which", [0, 1])
def test_a_table_that_is_not_trained_stays(which: int) -> None:
    model = build().train()
    frozen = (model.decoder.embed_tokens, model.output.table)[which].weight.requires_grad_(False)
    model.set_sparse_gradients(True, 0.3)
    before = frozen.clone()
    loss = model(**batch(model)).loss
    loss /= 2
    loss.backward()
    torch.testing.assert_close(frozen, before, rtol=0, atol=0)
    assert [parameter.grad is None for parameter in (model.decoder.embed_tokens.weight, model.output.table.weight)] == [
        which == 0,
        which == 1,
    ]


CONSTANTS = ({"embedding_scale": 3.0}, {"logit_scale": 0.1}, {"logit_soft_cap": 2.0}, {"input_gradient_scale": 5.0})


@pytest.mark.parametrize("constant", [{}, *CONSTANTS])
def test_small_steps_are_of_tables_without_constants(constant: dict[str, float]) -> None:
    model = build(**constant)
    assert model.output.head.learns_in_steps(model.decoder.embed_tokens) is not bool(constant)
