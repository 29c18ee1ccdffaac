"""Output layers with noise and with a tree, through fairseq's commands and ours."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import data_utils

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM

from .conftest import MadeOnce
from .test_compat_commands import logged, noise
from .test_language_model_commands import (
    LOGS,
    MID_EPOCH,
    SIZES,
    STREAM,
    InProcess,
    RunCommand,
    assert_same_weights,
    evaluated,
    model_state,
    tokens,
)
from .test_language_model_commands import evaluate as evaluate
from .test_language_model_commands import generate as generate

UNTIED = ("--arch", "zaremba_lm_small", *SIZES, *LOGS)
TIED = ("--arch", "zaremba_lm_small_wt", *SIZES, *LOGS)
# of each layer: the model, options, and whether training knows its perplexity
LAYERS: dict[str, tuple[tuple, tuple, bool]] = {
    "nce": (TIED, ("--noise-samples", 20), False),
    "sampled": (TIED, ("--noise-samples", 5, "--own-noise"), False),
    "tree": (UNTIED, (), True),
}
every_layer = pytest.mark.parametrize("layer", LAYERS)
# Which differs from "nce" in the loss alone.
sampled_is_slow = pytest.mark.parametrize("layer", ["nce", pytest.param("sampled", marks=pytest.mark.slow), "tree"])


def flags(layer: str) -> tuple:
    # By their frequencies at the start, nothing would be left to learn of these letters.
    return (*LAYERS[layer][0], "--output-layer", layer, "--output-bias-init", "zero", *LAYERS[layer][1])


@pytest.fixture
def trained(run_command: RunCommand, lm_data: Path, made_once: MadeOnce, layer: str) -> tuple[Path, Any]:
    """A folder with checkpoints of two epochs, and the command that made them."""
    arguments = (*flags(layer), "--max-epoch", 2, "--save-dir")
    return made_once(f"output-{layer}", lambda folder: run_command("train", lm_data, *arguments, folder))


@every_layer
def test_training_validation_and_evaluation(
    layer: str, trained: tuple[Path, Any], run_command: RunCommand, evaluate: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    folder, command = trained
    assert noise(command.stdout + command.stderr) == []
    assert ("train_ppl" in command.stdout) == LAYERS[layer][2]  # that of a surrogate would be none
    first, second = logged(command.stdout, "valid_ppl")
    assert second < first
    path = ("--path", folder / "checkpoint_last.pt")
    # Without the text of the training, whose counts are in the checkpoint, and in a process of its own.
    data = shutil.copytree(lm_data, tmp_path / "data", ignore=shutil.ignore_patterns("train.*"))
    printed = run_command("eval-lm", data, *STREAM, *path, "--gen-subset", "valid", "--tokens-per-sample", 5).stdout
    text = printed or evaluate(data, *STREAM, *path, "--gen-subset", "valid", "--tokens-per-sample", 5)
    count, perplexity = evaluated(text)
    assert count == tokens(lm_data, "valid")
    rows = evaluated(evaluate(data, *STREAM, *path, "--gen-subset", "valid", "--batch-size", 6))
    assert rows == (count, pytest.approx(second, abs=0.011))
    # As sentences, and the same by the scores of all words.
    sentences = (*STREAM, "--sample-break-mode", "eos", "--gen-subset", "valid", *path)
    found = evaluated(evaluate(data, *sentences, "--batch-size", 7))
    assert found == evaluated(evaluate(data, *sentences, "--softmax-batch", 20))
    hub = TiedLSTMLM.from_pretrained(str(folder), "checkpoint_last.pt", str(data))
    model, total = hub.models[0], 0.0
    for sentence in data_utils.load_indexed_dataset(f"{lm_data}/valid"):
        target = sentence.long().unsqueeze(0)
        previous = torch.cat((torch.tensor([[2]]), target[:, :-1]), 1)
        with torch.no_grad():
            output = model(previous)
            log_prob = model.get_normalized_probs(output, log_probs=True)
        assert log_prob.exp().sum(2).flatten().tolist() == pytest.approx([1.0] * target.numel(), abs=1e-5)
        assert log_prob[:, :, :2].eq(-torch.inf).all()  # <s> and <pad>
        total -= log_prob.gather(2, target.unsqueeze(2)).sum().item()
    assert math.exp(total / found[0]) == pytest.approx(found[1], abs=0.01)


@sampled_is_slow
def test_validate_and_generate(
    layer: str, trained: tuple[Path, Any], run_command: RunCommand, generate: InProcess, lm_data: Path
) -> None:
    folder, command = trained
    path = ("--path", folder / "checkpoint_last.pt")
    text = run_command("validate", lm_data, *STREAM, *path, "--batch-size", 6).stdout
    assert re.findall(r"ppl ([\d.]+)", text)[-1] == f"{logged(command.stdout, 'valid_ppl')[-1]:g}"
    sentences = ("--task", "language_modeling", "--sample-break-mode", "eos", *path, "--batch-size", 3)
    text = generate(lm_data, *sentences, "--beam", 2, "--prefix-size", 2, "--max-len-b", 6)
    assert len(re.findall(r"^H-\d+\t-[\d.]+\t", text, re.MULTILINE)) == 100


def test_a_training_by_noise_is_resumed_bit_for_bit(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    arguments = (*flags("nce"), *MID_EPOCH[len(MID_EPOCH) - 8 :])
    for stop in (10, 31):
        train(lm_data, *arguments, "--max-update", stop, "--save-dir", tmp_path / "resumed")
    train(lm_data, *arguments, "--max-update", 31, "--save-dir", tmp_path / "whole")
    assert_same_weights(tmp_path / "resumed", tmp_path / "whole")


@sampled_is_slow
def test_a_moving_average_leaves_counts_alone(layer: str, train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    text = train(lm_data, *flags(layer), "--max-update", 3, "--store-ema", "--ema-decay", 0.9, "--save-dir", tmp_path)
    assert logged(text, "valid_ppl")
    name = "decoder.output." + ("parents" if layer == "tree" else "over.counts")
    averaged = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["extra_state"]["ema"]
    assert torch.equal(averaged[name], model_state(tmp_path)[name])
    assert averaged[name].dtype == torch.int64


@sampled_is_slow
def test_updates_may_have_several_batches_and_bfloat16(layer: str, train: InProcess, lm_data: Path) -> None:
    for more in (("--update-freq", 2), ("--bf16",)):
        first, second = logged(train(lm_data, *flags(layer), *more, "--max-epoch", 2, "--no-save"), "valid_ppl")
        assert second < first


@pytest.mark.slow
@every_layer
def test_two_processes_train(layer: str, run_command: RunCommand, lm_data: Path) -> None:
    arguments = (*flags(layer), "--batch-size", 3, "--max-epoch", 2, "--no-save", "--distributed-world-size", 2)
    first, second = logged(run_command("train", lm_data, *arguments).stdout, "valid_ppl")
    assert second < first


CRITERION = "--criterion: needs tied_cross_entropy with --output-layer {}; got {}, which trains on the logits"


@pytest.mark.parametrize(
    ("layer", "criterion"),
    [("nce", "cross_entropy"), ("sampled", "label_smoothed_cross_entropy"), ("tree", "adaptive_loss")],
)
def test_other_criterions_are_refused_before_the_first_step(
    criterion: str, layer: str, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    name = {"adaptive_loss": "AdaptiveLoss"}.get(criterion, criterion.title().replace("_", "") + "Criterion")
    other = ("--criterion", criterion, "--ddp-backend", "legacy_ddp")
    with pytest.raises(ValueError, match=CRITERION.format(layer, name)):
        train(lm_data, *flags(layer), *other, "--max-update", 1, "--save-dir", tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (*UNTIED, "--output-layer", "tree", "--share-decoder-input-output-embed"),
            "--output-layer tree: needs input embeddings of their own, since it scores words by no table; got "
            "--share-decoder-input-output-embed. Use",
        ),
        (
            (*TIED, "--output-layer", "tree"),
            "since it scores words by no table; got --arch zaremba_lm_small_wt, which ties its embeddings",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--sharing-method", "cosine"),
            "--output-layer tree: needs --sharing-method plain, since it scores words by no table; got cosine",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--tree", "oak"),
            "--tree: needs one of huffman, balanced, classes; got oak",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--tree", "classes"),
            "--tree classes: needs --class-file; got none. Use `fairseq-tiedemb classes` to make one, or",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--class-file", "some"),
            "--class-file: needs --tree classes; got --tree huffman. Use --tree classes, or leave",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--tree", "classes", "--class-file", "nowhere"),
            r"--class-file: needs a text file in UTF-8; got 'nowhere' \(No such",
        ),
        (
            (*UNTIED, "--output-layer", "shrub"),
            "--output-layer: needs a registered layer; got 'shrub'. Use one of: softmax",
        ),
        (
            (*UNTIED, "--output-layer", "tree", "--adaptive-softmax-cutoff", "6"),
            "--output-layer tree: needs one table for all words; got --adaptive-softmax-cutoff 6",
        ),
        ((*UNTIED, "--output-layer", "nce", "--noise-samples", 0), "--noise-samples: needs 1 to 1,000,000; got 0"),
        ((*UNTIED, "--output-layer", "nce", "--noise-power", -1), "--noise-power: needs a number in .0, 10.; got -1"),
        ((*UNTIED, "--output-layer", "nce", "--noise-log-z", "inf"), "--noise-log-z: needs a log.* and 1000; got inf"),
        (
            (*UNTIED, "--output-layer", "nce", "--noise-log-z", "1e308"),
            "--noise-log-z: needs a log.*; got 1e.308. Use 0",
        ),
        (
            (*UNTIED, "--output-layer", "nce", "--noise-log-z", "-1001"),
            "--noise-log-z: needs a log.*; got -1001.0. Use",
        ),
        ((*UNTIED, "--output-bias-init", "high"), "--output-bias-init: needs one of zero, .*; got high"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: tuple, message: str, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(lm_data, *options, "--save-dir", tmp_path / "none")
    assert not (tmp_path / "none" / "checkpoint_last.pt").exists()


def test_the_start_line_counts_the_tree_apart(train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, *flags("tree"), "--tree", "balanced", "--max-update", 1, "--no-save", "--disable-validation")
    words = len((lm_data / "dict.txt").read_text().splitlines()) + 4
    assert f"input {16 * words:,}, output layer {17 * (words - 1):,}, rest" in text
    assert "shares nothing by method plain" in text


def test_a_tree_of_classes(
    run_command: RunCommand, train: InProcess, evaluate: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    """Of the classes that our command makes; neither evaluation nor resuming needs their file."""
    file, folder = tmp_path / "classes", tmp_path / "model"
    assert main(["classes", str(lm_data), "--classes", "4", "--output", str(file)]) == 0
    arguments = (*flags("tree"), "--tree", "classes", "--class-file", file, "--save-dir", folder, "--max-epoch")
    text = run_command("train", lm_data, *arguments, 2).stdout
    first, second = logged(text, "valid_ppl")
    assert second < first
    file.unlink()
    data = shutil.copytree(lm_data, tmp_path / "data", ignore=shutil.ignore_patterns("train.*"))
    command = (*STREAM, "--path", folder / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", 6)
    assert evaluated(evaluate(data, *command)) == (tokens(lm_data, "valid"), pytest.approx(second, abs=0.011))
    parents = model_state(folder)["decoder.output.parents"]
    assert logged(train(lm_data, *arguments, 3), "valid_ppl")[-1] < second
    assert torch.equal(model_state(folder)["decoder.output.parents"], parents)
    file.write_text("a 1\nb 2\nc 1\nd 2\n")
    with pytest.raises(
        ValueError, match="--class-file: needs the file of the checkpoint's training, whose tree .* other"
    ):
        train(lm_data, *arguments, 4)


@pytest.mark.parametrize("layer", ["tree"])
def test_a_tree_that_a_file_of_classes_was_given_for_is_read(
    layer: str, trained: tuple[Path, Any], evaluate: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    """Version 0.1.2 ignored the file."""
    state = torch.load(trained[0] / "checkpoint_last.pt", weights_only=False)
    (tmp_path / "classes").write_text("a 1\nb 2\n")
    found = []
    for file in (None, str(tmp_path / "classes")):
        state["cfg"]["model"]["class_file"] = file
        torch.save(state, tmp_path / "model.pt")
        command = (*STREAM, "--path", tmp_path / "model.pt", "--gen-subset", "valid", "--batch-size", 6)
        found.append(evaluated(evaluate(lm_data, *command)))
    assert found[0] == found[1]


@pytest.mark.parametrize("layer", ["tree"])
@pytest.mark.parametrize("other", [("--tree", "balanced"), ("--output-layer", "softmax")])
def test_weights_mean_what_they_were_trained_as(
    layer: str, other: tuple, trained: tuple[Path, Any], train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    shutil.copy(trained[0] / "checkpoint_last.pt", tmp_path)
    with pytest.raises(
        ValueError, match=f"{other[0]}: needs {'huffman' if 'balanced' in other else 'tree'}, with which"
    ):
        train(lm_data, *flags(layer), *other, "--max-epoch", 3, "--save-dir", tmp_path)


# --- our commands ----------------------------------------------------------------------------------------------------


@sampled_is_slow
def test_our_commands_read_every_layer(
    layer: str, trained: tuple[Path, Any], lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained[0]
    checkpoints = [str(folder / name) for name in ("checkpoint1.pt", "checkpoint2.pt")]
    assert main(["average", "--inputs", *checkpoints, "--output", str(tmp_path / "mean.pt")]) == 0
    assert main(["norms", str(tmp_path / "mean.pt"), "--parameters"]) == 0
    assert ("decoder.output.nodes" in capsys.readouterr().out) == (layer == "tree")
    (tmp_path / "text").write_text("a b c\nj j\n")
    assert main(["score", str(tmp_path / "mean.pt"), str(tmp_path / "text"), "--data", str(lm_data)]) == 0
    assert "perplexity" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "mean.pt"), str(tmp_path / "out.pt")]) == 2
    assert "CHECKPOINT: needs a model that fairseq also has" in capsys.readouterr().err


def test_raw_scores_are_scores_and_no_perplexity(
    run_command: RunCommand,
    lm_data: Path,
    made_once: MadeOnce,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = (*flags("nce"), "--max-epoch", 2, "--save-dir")
    folder, _ = made_once("output-nce", lambda folder: run_command("train", lm_data, *arguments, folder))
    (tmp_path / "text").write_text("a b c\nj\n\na a a a\n")
    command = ["score", str(folder / "checkpoint_last.pt"), str(tmp_path / "text"), "--data", str(lm_data)]
    assert main([*command, "--raw"]) == 0
    out, err = capsys.readouterr()
    hub = TiedLSTMLM.from_pretrained(str(folder), "checkpoint_last.pt", str(lm_data))
    model, sums, log_z, log_p = hub.models[0], [], [], []
    for line in (tmp_path / "text").read_text().splitlines():
        words = [hub.task.source_dictionary.index(word) for word in line.split()] + [2]
        with torch.no_grad():
            scores = model(torch.tensor([[2, *words[:-1]]]))[0][0].double()
        picked = scores.gather(1, torch.tensor(words).unsqueeze(1)).squeeze(1)
        sums.append(picked.sum().item())
        log_z += scores.logsumexp(1).tolist()
        log_p += (picked - scores.logsumexp(1)).tolist()
    assert [float(line.split("\t")[0]) for line in out.splitlines()] == pytest.approx(sums, rel=1e-5)
    z = torch.tensor(log_z)
    assert "4 sentences, 12 tokens (0 unknown), mean raw score" in err
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", err)]
    expected = [sum(sums) / 12, sum(log_p) / 12, z.mean(), z.abs().mean(), z.std(correction=0)]
    assert numbers == pytest.approx([float(each) for each in expected], abs=1e-4)
    assert "no log-probability" in err
    assert "perplexity" not in err
    # However it is batched, the same; with a sample, of as many tokens.
    assert main([*command, "--raw", "--raw-sample", "3", "--max-tokens", "1"]) == 0
    found, err = capsys.readouterr()
    assert [float(line.split("\t")[0]) for line in found.splitlines()] == pytest.approx(sums, rel=1e-5)
    assert "of 3 tokens drawn at random" in err
    assert main([*command, "--raw", "--raw-sample", "0"]) == 2
    assert "--raw-sample: needs a positive number; got 0" in capsys.readouterr().err


@pytest.mark.parametrize("layer", ["tree"])
def test_raw_scores_of_a_tree_are_refused(
    layer: str, trained: tuple[Path, Any], lm_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(trained[0] / "checkpoint_last.pt"), __file__, "--data", str(lm_data), "--raw"]) == 2
    message = "--raw: needs an output layer that scores words, softmax or nce; got --output-layer tree"
    assert message in capsys.readouterr().err
