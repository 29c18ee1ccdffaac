"""Language models through fairseq's commands: evaluation, decoding, and refusals of both."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import fairseq_cli.preprocess
import pytest
import torch
from fairseq import options
from fairseq.data import data_utils

from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM
from fairseq_tiedemb.tasks import contiguous_lm

from .conftest import SPLIT_SIZES, USER_DIR, preprocess
from .runs import evaluated, printed, tokens
from .test_compat_commands import noise
from .test_language_model_commands import LOGS, PRESET, STREAM, Evaluate, InProcess, RunCommand
from .test_language_model_commands import language_model as language_model
from .test_language_model_commands import path as path
from .untrained import write_checkpoint

# --- evaluation ------------------------------------------------------------------------------------------------------


def test_eval_lm_predicts_every_token_once(
    run_command: RunCommand, evaluate: Evaluate, path: tuple[str, Path], lm_data: Path
) -> None:
    command = run_command("eval-lm", lm_data, *STREAM, *path, "--tokens-per-sample", 5, "--output-word-probs")
    said = command.stdout + command.stderr
    assert noise(said) == []
    count, perplexity = evaluated(said)
    assert count == tokens(lm_data, "test")
    words = re.findall(r"(\S+) \[(-[\d.]+)\]", said)
    dataset = data_utils.load_indexed_dataset(f"{lm_data}/test")
    text = [line.split()[0] for line in (lm_data / "dict.txt").read_text().splitlines()]
    assert [word for word, _ in words] == [
        "</s>" if index == 2 else text[index - 4] for sentence in dataset for index in sentence.tolist()
    ]
    assert 2 ** (-sum(float(score) for _, score in words) / count / math.log(2)) == pytest.approx(perplexity, abs=0.01)
    # One row: whatever the chunk, the same perplexity, but for the last digit's rounding.
    for chunk in (2, 1024):
        found = evaluate(lm_data, *STREAM, *path, "--tokens-per-sample", chunk)
        assert found == (count, pytest.approx(perplexity, abs=0.011))
    for rows, chunk, workers in ((3, 5, 2), (7, 35, 0)):
        flags = ("--batch-size", rows, "--tokens-per-sample", chunk, "--num-workers", workers)
        # Some words lack what came before their row.
        assert evaluate(lm_data, *STREAM, *path, *flags) == (count, pytest.approx(perplexity, rel=0.02))


def test_shards_share_all_tokens(evaluate: Evaluate, path: tuple[str, Path], lm_data: Path) -> None:
    command = (lm_data, *STREAM, *path, "--tokens-per-sample", 5)
    shards = [evaluate(*command, "--num-shards", 2, "--shard-id", shard) for shard in range(2)]
    assert sum(count for count, _ in shards) == tokens(lm_data, "test")
    whole = evaluate(*command, "--batch-size", 2)
    bits = sum(count * math.log2(perplexity) for count, perplexity in shards)
    assert 2 ** (bits / whole[0]) == pytest.approx(whole[1], abs=0.01)


# --- decoding --------------------------------------------------------------------------------------------------------


def test_eval_lm_scores_by_several_models(evaluate: Evaluate, lm_data: Path, tmp_path: Path) -> None:
    """The mean of their probabilities, against float64."""
    sizes = "--decoder-embed-dim 8 --decoder-hidden-size 8 --decoder-layers 1 --sample-break-mode eos".split()
    flags = (*sizes, "--task", "contiguous_lm", "--arch", "tied_lstm_lm")
    paths, probabilities = [tmp_path / "a.pt", tmp_path / "b.pt"], []
    for file, method in zip(paths, ("plain", "cosine"), strict=True):
        model, task = write_checkpoint(file, lm_data, *flags, "--sharing-method", method)
        task.load_dataset("test")
        with torch.no_grad():
            scores = [
                (model.double()(row["source"][None])[0][0].softmax(-1), row["target"]) for row in task.dataset("test")
            ]
        probabilities.append(torch.cat([p.gather(1, target[:, None]) for p, target in scores]))
    expected = torch.stack(probabilities).mean(0).log().mean().neg().exp().item()
    found = evaluate(lm_data, *flags[-4:-2], *sizes[-2:], "--path", f"{paths[0]}:{paths[1]}")
    assert found == (tokens(lm_data, "test"), pytest.approx(expected, abs=0.01))


def test_generate_goes_on_from_a_prefix(generate: InProcess, path: tuple[str, Path], lm_data: Path) -> None:
    flags = (*STREAM, "--sample-break-mode", "eos", *path, "--gen-subset", "valid", "--batch-size", 7)
    text = generate(lm_data, *flags, "--beam", 2, "--prefix-size", 2, "--max-len-b", 6)
    found, targets = printed(text, "H"), printed(text, "T")
    assert sorted(found) == list(range(SPLIT_SIZES["valid"]))
    for number, target in targets.items():
        assert found[number].split("\t")[1].split()[:2] == target.split()[:2]
    with pytest.raises(ValueError, match="--sample-break-mode: needs eos for fairseq-generate, .* got none"):
        generate(lm_data, *STREAM, *path, "--gen-subset", "valid", "--batch-size", 7)


@pytest.mark.slow
def test_interactive_goes_on_from_what_is_piped_in(
    run_command: RunCommand, path: tuple[str, Path], lm_data: Path
) -> None:
    flags = (*STREAM, "--sample-break-mode", "eos", *path, "--beam", 2, "--max-len-b", 8)
    command = run_command("interactive", lm_data, *flags, "--buffer-size", 2, "--batch-size", 2, input="a b c\nd\n")
    found = printed(command.stdout, "H")
    assert found[0].split("\t")[1].startswith("a b c")
    assert found[1].split("\t")[1].startswith("d")


def test_the_hub_scores_and_samples(path: tuple[str, Path], lm_data: Path) -> None:
    hub = TiedLSTMLM.from_pretrained(str(path[1].parent), path[1].name, str(lm_data), user_dir=str(USER_DIR))
    scores = hub.score("a b c d")["positional_scores"]
    words = hub.encode("a b c d")  # with the end of sentence, which the hub does not score
    log_p = hub.models[0](torch.tensor([[2, *words[:-2]]]))[0].log_softmax(2)[0]
    torch.testing.assert_close(scores, log_p.gather(1, words[:-1].unsqueeze(1)).squeeze(1))
    several = hub.score(["a b", "a b c d"])
    torch.testing.assert_close(several[1]["positional_scores"], scores)
    assert hub.sample("a b c", beam=3, max_len_b=10).startswith("a b c")
    assert hub.sample(["a", "b c"], beam=1, sampling=True, max_len_b=6)[1].startswith("b c")


@pytest.mark.slow
def test_a_translation_model_takes_it_as_its_language_model(
    train: InProcess, generate: InProcess, text_folder: Path, parallel_data: Path, tmp_path: Path
) -> None:
    """fairseq reads the language model's dictionary as dict.txt in the translation's data folder."""
    dictionary = parallel_data / "dict.tgt.txt"
    lm_data = preprocess(tmp_path / "lm", f"{text_folder}/{{split}}.tgt", "--only-source", "--srcdict", str(dictionary))
    train(lm_data, *PRESET, "--max-epoch", 2, "--save-dir", tmp_path / "lm_checkpoints")
    flags = "--arch lstm_nmt_twwt --criterion tied_cross_entropy --optimizer adam --lr 0.01 --batch-size 20".split()
    sizes = [f"--{side}-{part}" for side in ("encoder", "decoder") for part in ("embed-dim", "hidden-size")]
    flags += [part for name in (*sizes, "--decoder-out-embed-dim") for part in (name, "16")]
    train(parallel_data, *flags, *LOGS, "--max-epoch", 3, "--save-dir", tmp_path / "nmt")
    common = ("--path", tmp_path / "nmt" / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", 7)
    fusion = ("--lm-path", tmp_path / "lm_checkpoints" / "checkpoint_last.pt", "--lm-weight")
    (parallel_data / "dict.txt").write_text(dictionary.read_text())
    alone = generate(parallel_data, *common)
    assert printed(generate(parallel_data, *common, *fusion, 0.0), "H") == printed(alone, "H")
    for precision in ((), ("--bf16",)):
        fused = generate(parallel_data, *common, *fusion, 0.5, *precision)
        assert sorted(printed(fused, "H")) == list(range(SPLIT_SIZES["valid"]))
        assert printed(fused, "H") != printed(alone, "H")


# --- refusals --------------------------------------------------------------------------------------------------------


def test_pieces_of_words_and_several_processes_are_refused_in_evaluation(
    evaluate: Evaluate, path: tuple[str, Path], lm_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="--post-process: needs to be left out with one stream of text; got @@ . Use"):
        evaluate(lm_data, *STREAM, *path, "--post-process", "@@ ")
    evaluate(lm_data, *STREAM, *path, "--post-process", "@@ ", "--sample-break-mode", "eos")
    monkeypatch.setattr(contiguous_lm, "get_global_world_size", lambda: 2)
    for mode in ("none", "eos"):
        with pytest.raises(ValueError, match="--distributed-world-size: needs 1 for fairseq-eval-lm, .* got 2. Use"):
            evaluate(lm_data, *STREAM, *path, "--sample-break-mode", mode)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda words: [*words, "else 1"], "17. Use the data folder"),
        (lambda words: ["a 1"], "5. Use the data folder"),
        (lambda words: words[::-1], "16 others, or another"),
    ],
    ids=["more words", "fewer", "another order"],
)
def test_another_dictionary_is_refused(
    change: Callable[[list[str]], list[str]],
    got: str,
    train: InProcess,
    evaluate: Evaluate,
    path: tuple[str, Path],
    lm_data: Path,
    tmp_path: Path,
) -> None:
    other = shutil.copytree(lm_data, tmp_path / "other")
    (other / "dict.txt").write_text("\n".join(change((lm_data / "dict.txt").read_text().splitlines())) + "\n")
    message = f"dict.txt: needs the 16 words .*; got {got}"
    with pytest.raises(ValueError, match=message):
        evaluate(other, *STREAM, *path)
    with pytest.raises(ValueError, match=message):
        TiedLSTMLM.from_pretrained(str(path[1].parent), "checkpoint_last.pt", str(other))
    if got.startswith("5"):
        message = "split valid: needs word indices below 5, the size of dict.txt; got"
    with pytest.raises(ValueError, match=message):
        train(other, *PRESET, "--restore-file", path[1], "--max-epoch", 3, "--no-save")


def test_an_empty_split_is_refused(train: InProcess, text_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    flags = ("--only-source", "--trainpref", text_folder / "train.src", "--validpref", tmp_path / "empty.txt")
    arguments = [str(flag) for flag in (*flags, "--destdir", tmp_path / "data")]
    fairseq_cli.preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    message = "valid.bin: needs at least one sentence; got an empty file. Use a text that is not empty"
    for mode in ("none", "eos"):
        with pytest.raises(ValueError, match=message):
            train(tmp_path / "data", *PRESET, "--sample-break-mode", mode, "--max-epoch", 1, "--no-save")
