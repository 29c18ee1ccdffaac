"""Options of output layers that cannot work together are refused before anything is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--tokens-per-sample", 5, "--batch-size", 6)
FLAGS = ("--arch", "zaremba_lm_small", *SIZES, "--num-workers", 0, "--max-epoch", 1)
LOGITS = "--criterion: needs tied_cross_entropy with --output-layer {}; got {}, which trains on the logits"
TREE = "--output-layer tree: needs "


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--output-layer shrub", "--output-layer: needs a registered layer; got 'shrub'. Use one of: softmax"),
        ("--output-bias-init high", "--output-bias-init: needs one of zero, .*; got high"),
        ("--output-layer classes --classes 0", "--classes: needs 1 or more; got 0. Use 100"),
        (
            "--class-file FILE",
            "--class-file: needs --output-layer classes or tree; got FILE with --output-layer softmax",
        ),
        ("--output-layer classes --class-file nowhere", r"--class-file: needs a text file .* got 'nowhere' \(No such"),
        ("--output-layer classes --label-smoothing 0.1", "--label-smoothing: needs 0 with --output-layer classes; got"),
        ("--output-layer classes --z-loss 0.1", "--z-loss: needs 0 with --output-layer classes; got 0.1"),
        (
            "--output-layer classes --adaptive-softmax-cutoff 6,10",
            "--output-layer classes: needs one table for all words; got --adaptive-softmax-cutoff 6,10",
        ),
        ("--short-list 5", "--short-list: needs --output-layer short-list; got 5 with --output-layer softmax"),
        ("--output-layer short-list", "--short-list: needs 1 word or more with --output-layer short-list; got 0"),
        ("--output-layer short-list --short-list 14", r"--short-list: needs 1 to \d+ words, .* got 14"),
        ("--output-layer short-list --short-list 1000000000", r"--short-list: needs 1 to \d+ words, .* got 1000000000"),
        (
            "--output-layer short-list --short-list 5 --label-smoothing 0.1",
            "--label-smoothing: needs 0 with --output-layer short-list; got 0.1",
        ),
        ("--output-layer nce --noise-samples 0", "--noise-samples: needs 1 to 1,000,000; got 0"),
        ("--output-layer nce --noise-power -1", "--noise-power: needs a number in .0, 10.; got -1"),
        ("--output-layer nce --noise-log-z inf", "--noise-log-z: needs a log.* and 1000; got inf"),
        ("--output-layer nce --noise-log-z 1e308", "--noise-log-z: needs a log.*; got 1e.308. Use 0"),
        ("--output-layer nce --noise-log-z -1001", "--noise-log-z: needs a log.*; got -1001.0. Use"),
        ("--output-layer nce --criterion cross_entropy", LOGITS.format("nce", "CrossEntropyCriterion")),
        (
            "--output-layer sampled --criterion label_smoothed_cross_entropy",
            LOGITS.format("sampled", "LabelSmoothedCrossEntropyCriterion"),
        ),
        (
            "--output-layer tree --criterion adaptive_loss --ddp-backend legacy_ddp",
            LOGITS.format("tree", "AdaptiveLoss"),
        ),
        (
            "--output-layer tree --share-decoder-input-output-embed",
            f"{TREE}input embeddings of their own, .* by no table; got --share-decoder-input-output-embed. Use",
        ),
        (
            "--arch zaremba_lm_small_wt --output-layer tree",
            f"{TREE}.* by no table; got --arch zaremba_lm_small_wt, which ties its embeddings",
        ),
        (
            "--output-layer tree --sharing-method cosine",
            f"{TREE}--sharing-method plain, since it scores words by no table; got cosine",
        ),
        ("--output-layer tree --tree oak", "--tree: needs one of huffman, balanced, classes; got oak"),
        (
            "--output-layer tree --tree classes",
            "--tree classes: needs --class-file; got none. Use `fairseq-tiedemb classes` to make one, or",
        ),
        (
            "--output-layer tree --class-file some",
            "--class-file: needs --tree classes; got --tree huffman. Use --tree classes, or leave",
        ),
        (
            "--output-layer tree --tree classes --class-file nowhere",
            r"--class-file: needs a text file in UTF-8; got 'nowhere' \(No such",
        ),
        (
            "--output-layer tree --adaptive-softmax-cutoff 6",
            f"{TREE}one table for all words; got --adaptive-softmax-cutoff 6",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    flags: str, message: str, train: Callable[..., str], lm_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(lm_data, *FLAGS, *flags.split(), "--save-dir", tmp_path)
    assert list(tmp_path.rglob("*.pt")) == []
