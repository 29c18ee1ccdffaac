"""Trainings whose options cannot work, alone or together: refused by name before anything is written.

Options of a model are refused by its plan (models/test_plan_refusals.py); here is what the training must tell.
"""

from pathlib import Path

import fairseq_cli.train
import pytest
from fairseq import options

from .conftest import InProcess, configuration
from .test_attention_nmt_commands import LSTM
from .test_language_model_commands import PRESET as RECURRENT
from .test_word2vec_commands import SKIPGRAM

LAYERS = ("--arch", "zaremba_lm_small", *RECURRENT[2:])
WORD_PAIRS = (*SKIPGRAM, *"--task word_pairs --criterion word_pairs --optimizer row_sgd --max-update 5".split())
LOGITS = "--criterion: needs tied_cross_entropy with --output-layer {}; got {}, which trains on the logits"

Refusals = list[tuple[str, str]]
OF_TRANSLATION: Refusals = [
    ("--dropout 1.5", r"--dropout: needs a probability in \[0, 1\); got 1.5"),
    (
        "--best-checkpoint-metric bleu",
        "needs what validation logs, loss, .*ppl.*; got 'bleu'. Use one of these; bleu needs --eval-bleu",
    ),
    ("--best-checkpoint-metric blue --eval-bleu", "needs what validation logs, loss, .*bleu.*; got 'blue'. Use one"),
    ("--optimizer fused_adam --adam-eps 0", "--adam-eps: needs a number above 0; got 0.0. Use 1e-8, say"),
    ("--optimizer fused_adam --weight-decay nan", "--weight-decay: needs a number from 0 on; got nan. Use 0.01, say"),
    ("--update-freq 0", "--update-freq: needs 1 or more; got 0. Use 1"),
    ("--update-freq []", "--update-freq: needs a number for each epoch; got an empty list. Use one for all"),
    ("--lr []", "--lr: needs a number for each epoch; got an empty list"),
    ("--store-ema --ema-decay 2", r"--ema-decay: needs a number in \[0, 1\]; got 2.0. Use 0.9999"),
    ("--clip-norm nan", "--clip-norm: needs 0 or more; got nan. Use a positive number"),
    ("--max-epoch -3", "--max-epoch: needs 0 or more; got -3. Use a positive number"),
    ("--max-update -1", "--max-update: needs 0 or more; got -1. Use a positive number"),
    ("--lr -0.1", "--lr: needs 0 or more; got -0.1. Use a positive number"),
    (
        "--lr-scheduler inverse_sqrt --warmup-updates 4 --stop-min-lr 1e-9",
        "--stop-min-lr: needs less than the first learning rate, 0; got 1e-09. Use -1, which no rate reaches",
    ),
    (
        "--restore-file a.pt --finetune-from-model b.pt",
        "--finetune-from-model: needs to be alone; got b.pt and --resto",
    ),
    ("--continue-once a.pt --finetune-from-model b.pt", "needs to be alone; got b.pt and --continue-once a.pt. Use o"),
    ("--finetune-from-model /", "--finetune-from-model: needs a checkpoint; got /, which is none. Use another path"),
    ("--label-smoothing 1", r"--label-smoothing: needs a value in \[0, 1\); got 1.0. Use 0.1"),
]
OF_LANGUAGE_MODELS: Refusals = [
    ("--random-length --sample-break-mode eos", "--random-length: needs one stream of text, .* none; got eos. Leave"),
    ("--arch zaremba_lm_small --projection-regularization 0.1", "needs a model with --projection; got 0.1 for one"),
    ("--arch bengio_lm --projection-regularization 0.1", "needs a model with --projection; got 0.1 .* --deep-output"),
    ("--train-subset other", "split other: needs the files"),
    (
        "--random-length --tokens-per-sample 9",
        "--tokens-per-sample: needs 10 or more with --random-length, .*; got 9. Use 20, say",
    ),
    (
        "--memory-efficient-bf16",
        "--memory-efficient-bf16: needs an optimizer that .* such as adam; got sgd. Use --bf16",
    ),
    (
        "--max-tokens-valid 10",
        "--max-tokens, of validation --max-tokens-valid: needs .* in split valid, .*; got 10. Use smaller",
    ),
    ("--batch-size 0", "--batch-size: needs at least 1 row; got 0. Use 20, say"),
    (
        "--arch zaremba_lm_small_wt --adaptive-softmax-cutoff 6,10 --label-smoothing 0.1",
        "--label-smoothing: needs 0 with --adaptive-softmax-cutoff; got 0.1. Leave it out",
    ),
    ("--criterion adaptive_loss --ddp-backend legacy_ddp", "needs a model with an adaptive softmax; got one without"),
]
OF_OUTPUT_LAYERS: Refusals = [
    ("--output-layer shrub", "--output-layer: needs a registered layer; got 'shrub'. Use one of: softmax"),
    (
        "--output-layer classes --classes 3 --class-file {classes}",
        "--classes: needs classes by frequency; got 3 with --class-file .*classes. Use one of them",
    ),
    ("--output-layer classes --class-file nowhere", r"--class-file: needs a text file; got nowhere \(No such"),
    ("--output-layer classes --label-smoothing 0.1", "--label-smoothing: needs 0 with --output-layer classes; got"),
    ("--output-layer classes --z-loss 0.1", "--z-loss: needs 0 with --output-layer classes; got 0.1"),
    ("--short-list 5", "--short-list: needs --output-layer short-list; got 5 with --output-layer softmax"),
    ("--output-layer short-list --short-list 1000000000", r"--short-list: needs 1 to \d+ words, .* got 1000000000"),
    ("--output-layer nce --criterion cross_entropy", LOGITS.format("nce", "CrossEntropyCriterion")),
    (
        "--output-layer sampled --criterion label_smoothed_cross_entropy",
        LOGITS.format("sampled", "LabelSmoothedCrossEntropyCriterion"),
    ),
    ("--output-layer tree --criterion adaptive_loss --ddp-backend legacy_ddp", LOGITS.format("tree", "AdaptiveLoss")),
]
OF_WORD2VEC: Refusals = [
    (
        "--lr-scheduler polynomial_decay --max-update 0 --max-epoch 1",
        "--max-update: needs 1 or more with --lr-scheduler polynomial_decay, .*; got 0. Use --max-update or",
    ),
    (
        "--max-update 9 --force-anneal 2",
        "--force-anneal: needs another --lr-scheduler than polynomial_decay; got 2 with it. Use --lr-scheduler fixed",
    ),
    (
        "--max-tokens 0",
        "--max-tokens: needs a number of text tokens per batch, .*; got --max-tokens 0 and --batch-size N",
    ),
    ("--criterion cross_entropy", "--criterion: needs word_pairs with .* family; got CrossEntropyCriterion"),
    ("--subsampling 1e-09", "with --max-tokens 40 and --subsampling 1e-09. Use --max-tokens 4000"),
    ("--valid-subset missing", "split missing: needs the files .*missing.bin"),
]
# The data, flags that could work, and what is added to them.
CASES: list[tuple[str, tuple, Refusals]] = [
    ("parallel_data", (*LSTM, "--batch-size", 20), OF_TRANSLATION),
    ("lm_data", RECURRENT, OF_LANGUAGE_MODELS),
    ("lm_data", LAYERS, OF_OUTPUT_LAYERS),
    ("lm_data", WORD_PAIRS, OF_WORD2VEC),
]


@pytest.mark.parametrize(
    ("data", "base", "flags", "message"),
    [(data, base, *refusal) for data, base, refusals in CASES for refusal in refusals],
    ids=[f"{base[1]} {flags}" for _, base, refusals in CASES for flags, _ in refusals],
)
def test_what_cannot_work_is_refused(
    data: str, base: tuple, flags: str, message: str, train: InProcess, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    classes = tmp_path / "classes"
    classes.write_text("".join(f"{letter} {letter < 'd'}\n" for letter in "abcdefghij"))
    flags = flags.format(classes=classes)
    command = (request.getfixturevalue(data), *base, "--max-epoch", 1, *flags.split(), "--save-dir", tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(*command)
    assert list(tmp_path.rglob("checkpoint*.pt")) == []


def test_a_folder_that_cannot_be_made_is_named(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"--save-dir: needs a folder that can be written; got .*/file \(Not a dir"):
        train(lm_data, *RECURRENT, "--max-update", 1, "--save-dir", tmp_path / "file")


def test_hydra_needs_one_flag_for_memory_efficient_training(lm_data: Path, tmp_path: Path) -> None:
    """It trained in float32; the command line sets `common.bf16` itself."""
    flags = (*RECURRENT, "--memory-efficient-bf16", "--save-dir", tmp_path)
    settings = configuration(options.get_training_parser(), lm_data, *flags)
    settings.common.bf16 = False
    with pytest.raises(ValueError, match="--memory-efficient-bf16: needs an optimizer .*; got sgd. Use --bf16"):
        fairseq_cli.train.main(settings)
