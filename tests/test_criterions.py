"""TiedCrossEntropy against fairseq's two cross entropies: loss, gradients and what is logged; and what it refuses."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, FairseqCriterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel

from fairseq_tiedemb.criterions.cross_entropy import TiedCrossEntropy

from .models import families, recurrent_lms
from .models.attention_nmts import WORDS, build
from .models.common import PREVIOUS, SOURCE, TARGET, grown

TASK = SimpleNamespace(target_dictionary=WORDS)
SAMPLE = {
    "net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(WORDS.pad()).sum(1), "prev_output_tokens": PREVIOUS},
    "target": TARGET,
    "ntokens": int(TARGET.ne(WORDS.pad()).sum()),
    "nsentences": len(TARGET),
}
# One sentence, so that sums over batches of different sizes are seen.
FIRST = {
    "net_input": {name: value[:1] for name, value in SAMPLE["net_input"].items()},
    "target": TARGET[:1],
    "ntokens": 4,
    "nsentences": 1,
}


def fairseqs(label_smoothing: float, sentence_avg: bool) -> FairseqCriterion:
    """The criterion of fairseq that a user would take instead."""
    if label_smoothing == 0:
        return CrossEntropyCriterion(TASK, sentence_avg)
    return LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg, label_smoothing)


def logged(
    criterion: FairseqCriterion | type[FairseqCriterion], logging_outputs: list[dict[str, Any]]
) -> dict[str, float]:
    """What the progress bar would show, unrounded."""
    with metrics.aggregate(new_root=True) as aggregator:
        criterion.reduce_metrics(logging_outputs)
    return {name: float(value) for name, value in aggregator.get_smoothed_values().items()}


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("preset", ["lstm_nmt", "dl4mt_twwt"])
def test_equals_fairseqs_criterion(preset: str, label_smoothing: float, sentence_avg: bool) -> None:
    model = grown(build(preset))  # float32, since fairseq's log-softmax is never anything else
    ours = TiedCrossEntropy(TASK, sentence_avg, label_smoothing)
    theirs = fairseqs(label_smoothing, sentence_avg)
    all_logs = []
    for criterion in (ours, theirs):
        logs = []
        gradients = []
        for sample in (SAMPLE, FIRST):
            loss, sample_size, log = criterion(model, sample)
            assert sample_size == (sample["nsentences"] if sentence_avg else sample["ntokens"])
            gradients.append(torch.autograd.grad(loss / sample_size, list(model.parameters())))
            logs.append(log)
        all_logs.append((logs, gradients))
    (our_logs, our_gradients), (their_logs, their_gradients) = all_logs
    for our_log, their_log in zip(our_logs, their_logs, strict=True):
        torch.testing.assert_close({name: our_log[name] for name in their_log}, their_log)
        assert not our_log["loss"].requires_grad
    torch.testing.assert_close(our_gradients, their_gradients)
    # fairseq's cross_entropy shows no nll_loss where it is the loss.
    shown, expected_shown = logged(ours, our_logs), logged(theirs, their_logs)
    assert {name: shown[name] for name in expected_shown} == pytest.approx(expected_shown)


def test_logs_of_processes_can_be_summed() -> None:
    """As fairseq does over processes, when the criterion says that it may."""
    criterion = TiedCrossEntropy(TASK, sentence_avg=True, label_smoothing=0.1)
    assert criterion.logging_outputs_can_be_summed()
    model = grown(build("lstm_nmt_wt")).double()
    logs = [criterion(model, sample)[2] for sample in (SAMPLE, FIRST)]
    summed = {name: sum(log[name] for log in logs) for name in logs[0]}
    assert logged(criterion, [summed]) == pytest.approx(logged(criterion, logs))


# A model of each kind that computes a loss: what it is given, and the model.
KINDS = {
    "attention NMT": (SAMPLE["net_input"], lambda: grown(build("lstm_nmt_twwt"))),
    "Transformer": (SAMPLE["net_input"], lambda: grown(families.build("transformer", **families.ALL))),
    "factorised": (SAMPLE["net_input"], lambda: families.build("transformer", embedding_rank=4, **families.DECODER)),
    "recurrent LM": ({"src_tokens": PREVIOUS}, lambda: recurrent_lms.build("zaremba_lm_small_wt_pr")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_z_loss_is_added_on_every_model(kind: str) -> None:
    inputs, make = KINDS[kind]
    model = make().eval()
    sample = {**SAMPLE, "net_input": inputs}
    plain, _, plain_log = TiedCrossEntropy(TASK, False, 0.1)(model, sample)
    loss, _, log = TiedCrossEntropy(TASK, False, 0.1, z_loss=0.02)(model, sample)
    log_z = torch.logsumexp(model(**inputs)[0], -1)[TARGET.ne(WORDS.pad())]
    expected = 0.02 * log_z.square().sum()
    torch.testing.assert_close(loss - plain, expected, rtol=1e-3, atol=1e-4)
    assert expected > 0.01
    torch.testing.assert_close(log["nll_loss"], plain_log["nll_loss"])


def test_a_model_that_does_not_compute_its_loss_is_refused() -> None:
    class Foreign(FairseqEncoderDecoderModel):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)

    each = TiedCrossEntropy(TASK, sentence_avg=False, label_smoothing=0.0)
    for use in (each.begin_update, lambda model: each(model, SAMPLE)):  # by a trainer, and in validation
        message = "--criterion tied_cross_entropy: needs a model of .* got Foreign. Use --crit"
        with pytest.raises(ValueError, match=message):
            use(Foreign())


def test_what_the_output_layer_lacks_is_said_before_the_first_batch() -> None:
    model = recurrent_lms.build(output_layer="nce")
    model.output.head.counts.zero_()
    with pytest.raises(ValueError, match="--output-layer nce: needs the counts of the training text"):
        TiedCrossEntropy(TASK, sentence_avg=False).begin_update(model)


def test_fully_sharded_training_is_refused() -> None:
    config = CRITERION_DATACLASS_REGISTRY["tied_cross_entropy"](sentence_avg=False, ddp_backend="fully_sharded")
    with pytest.raises(ValueError, match="--ddp-backend: needs the whole table .* got fully_sharded. Use"):
        TiedCrossEntropy.build_criterion(config, TASK)


@pytest.mark.parametrize("kind", KINDS)
def test_without_reduce_there_is_one_number_a_word(kind: str) -> None:
    inputs, make = KINDS[kind]
    model = make().double().eval()
    sample = {**SAMPLE, "net_input": inputs}
    criterion = TiedCrossEntropy(TASK, False)
    each, sample_size, log = criterion(model, sample, reduce=False)
    theirs = CrossEntropyCriterion(TASK, False)(model, sample, reduce=False)[0]
    torch.testing.assert_close(each, theirs.double(), atol=1e-5, rtol=1e-5)
    total, _, total_log = criterion(model, sample)
    torch.testing.assert_close(each.sum(), total)
    torch.testing.assert_close(log["nll_loss"], total_log["nll_loss"])
    weights = torch.rand(len(each), dtype=torch.float64)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found, expected = (
        torch.autograd.grad((loss * weights).sum(), trained, allow_unused=True, materialize_grads=True)
        for loss in (each, CrossEntropyCriterion(TASK, False)(model, sample, reduce=False)[0])
    )
    for ours, other in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_an_option_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="needs an option that exists; got 'l3_regularization'"):
        TiedCrossEntropy(TASK, False, l3_regularization=0.1)


def test_a_language_model_predicts_a_literal_pad() -> None:
    """A text may have the word; rows that are shorter than others are padded behind their length."""
    model = grown(recurrent_lms.build("zaremba_lm_small_wt")).double().eval()
    tokens, target = torch.tensor([[2, 4, 1, 5], [2, 6, 1, 1]]), torch.tensor([[4, 1, 5, 2], [6, 2, 1, 1]])
    found = model(tokens, src_lengths=torch.tensor([4, 2]), target=target).loss
    log_p = torch.log_softmax(model(tokens)[0], -1).gather(2, target.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(found, -(log_p[0].sum() + log_p[1, :2].sum()))


def test_a_loss_that_is_no_number_is_refused_where_it_is_printed() -> None:
    """In training fairseq looks at the gradients, and nothing waits for the loss."""
    model, sample = recurrent_lms.build(), recurrent_lms.batch(recurrent_lms.text(2, 5))
    torch.nn.init.constant_(model.output.table.bias, torch.nan)
    criterion = TiedCrossEntropy(TASK, sentence_avg=False)
    for reduce in (True, False):
        assert criterion(model.train(), sample, reduce=reduce)[0].isnan().any()
        with pytest.raises(ValueError, match="validation: needs a loss that is a number; got nan. Use a checkpoint"):
            criterion(model.eval(), sample, reduce=reduce)


def test_a_surrogate_is_no_perplexity() -> None:
    model = recurrent_lms.build(output_layer="nce")
    model.output.head.counts.fill_(1)
    model.output.head.prepare()
    criterion = TiedCrossEntropy(SimpleNamespace(), sentence_avg=False)
    sample = recurrent_lms.batch(recurrent_lms.text(2, 5))
    _, _, log = criterion(model.train(), sample)
    assert set(logged(criterion, [log])) == {"loss"}
    each, _, _ = criterion(model, sample, reduce=False)
    assert each.shape == (sample["target"].numel(),)
    _, _, log = criterion(model.eval(), sample)
    assert {"loss", "nll_loss", "ppl"} == set(logged(criterion, [log]))


def test_a_head_may_tally_beside_a_loss_that_is_no_likelihood() -> None:
    """In training such a head has no perplexity, and no second one; in validation it has both."""
    batch = {"loss": 3.0, "ntokens": 2, "nsentences": 1, "sample_size": 2, "share:outside": 1, "nll:as_printed": 1.0}
    trained, validated = (logged(TiedCrossEntropy(TASK, False), [batch | nll]) for nll in ({}, {"nll_loss": 3.0}))
    assert (trained["outside"], validated["outside"]) == (50, 50)
    assert {name for name in trained if "ppl" in name} == set()
    assert validated["ppl_as_printed"] == pytest.approx(math.e, abs=0.01)
