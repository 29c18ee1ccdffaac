"""Language models through fairseq's commands: training in all its ways, resume, evaluation, decoding, and refusals.

Each command runs in a process of its own once; where only its options differ, its `main` is called here, which is
quicker. What is rarer is marked slow.
"""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq_cli.eval_lm
import fairseq_cli.generate
import fairseq_cli.preprocess
import fairseq_cli.train
import fairseq_cli.validate
import pytest
import torch
from fairseq import options
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_tiedemb.models.highway_lm import HighwayLM
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM
from fairseq_tiedemb.tasks import contiguous_lm

from .conftest import SPLIT_SIZES, USER_DIR, MadeOnce, preprocess
from .runs import assert_same_weights, evaluated, model_state, printed, tokens
from .test_compat_commands import logged, losses, noise

RunCommand = Callable[..., Any]
InProcess = Callable[..., str]
Evaluate = Callable[..., tuple[int, float]]

LOGS = ("--log-format", "json", "--num-workers", 0)
# Five updates an epoch and more; dropout, so that random numbers are seen.
SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--tokens-per-sample", 5, "--batch-size", 6)
PRESET = ("--arch", "zaremba_lm_small_wt_pr", *SIZES, *LOGS)
DROPOUT = ("--dropout", 0.2)
STREAM = ("--task", "contiguous_lm")


@pytest.fixture(scope="module")
def language_model(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> tuple[Path, Any]:
    """Checkpoints of a tied model that has begun to learn, and the command that trained it."""
    flags = (*PRESET, *DROPOUT, "--max-epoch", 2, "--save-dir")
    return made_once("zaremba_lm_small_wt_pr", lambda folder: run_command("train", lm_data, *flags, folder))


@pytest.fixture
def path(language_model: tuple[Path, Any]) -> tuple[str, Path]:
    """`--path` and the last checkpoint."""
    return "--path", language_model[0] / "checkpoint_last.pt"


# --- training --------------------------------------------------------------------------------------------------------


def test_a_preset_is_the_whole_command(language_model: tuple[Path, Any], lm_data: Path) -> None:
    folder, command = language_model
    shares = "shares input = output (weight tying) by method plain, with P and its bias; "
    assert f"zaremba_lm_small_wt_pr: {shares}" in command.stdout
    assert noise(command.stdout + command.stderr) == []
    assert logged(command.stdout, "train_bsz") == [6, 6]
    rows = math.ceil(tokens(lm_data, "train") / 6)
    assert logged(command.stdout, "train_num_updates") == [math.ceil(rows / 5) * epoch for epoch in (1, 2)]
    assert logged(command.stdout, "train_lr") == [1, 1]
    assert logged(command.stdout, "train_penalty")[0] > 0
    first, second = logged(command.stdout, "valid_ppl")
    assert second < first < 16  # words of the dictionary
    assert {"checkpoint1.pt", "checkpoint2.pt"} < {each.name for each in folder.iterdir()}
    state = model_state(folder)
    assert torch.equal(state["decoder.embed_tokens.weight"], state["decoder.output.weight"])


def test_updates_may_have_several_chunks(train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, *PRESET, "--update-freq", 2, "--max-epoch", 2, "--no-save")
    chunks = math.ceil(math.ceil(tokens(lm_data, "train") / 6) / 5)
    assert logged(text, "train_num_updates")[0] == math.ceil(chunks / 2)
    assert logged(text, "train_bsz")[0] == pytest.approx(6 * chunks / math.ceil(chunks / 2), abs=0.1)
    first, second = logged(text, "train_ppl")
    assert second < first


def test_other_criterions_optimizers_and_schedules_train(train: InProcess, lm_data: Path) -> None:
    flags = "--criterion cross_entropy --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 4"
    text = train(lm_data, *PRESET, *flags.split(), "--clip-norm", 0.1, "--max-epoch", 2, "--no-save")
    assert "CrossEntropyCriterion" in text
    warning = "--criterion CrossEntropyCriterion: trains without --projection-regularization 0.15, which belongs to"
    assert text.count(warning) == 1
    assert logged(text, "train_clip") == [100, 100]
    assert "train_penalty" not in text
    first, second = logged(text, "train_ppl")
    assert second < first
    assert logged(text, "train_lr")[0] < 0.01


def test_fairseqs_criterion_trains_the_same(train: InProcess, lm_data: Path) -> None:
    flags = ("--arch", "zaremba_lm_small_wt", *SIZES, *LOGS, *DROPOUT, "--max-epoch", 1, "--no-save")
    ours, theirs = (train(lm_data, *flags, "--criterion", name) for name in ("tied_cross_entropy", "cross_entropy"))
    for name in ("train_loss", "valid_loss", "train_gnorm"):
        assert logged(theirs, name) == pytest.approx(logged(ours, name), abs=2e-3), name  # three digits are shown


def test_bfloat16_trains_on_a_cpu(train: InProcess, lm_data: Path) -> None:
    flags = (*PRESET, "--batch-size", 20, "--max-epoch", 2, "--no-save")
    expected, found = (logged(train(lm_data, *flags, *more), "train_loss") for more in ((), ("--bf16",)))
    assert found == pytest.approx(expected, rel=2e-2)  # bfloat16 has eight bits


@pytest.mark.parametrize("preset", ["gal_lm_large_wt", "highway_lm_8x890_wt"])
def test_every_family_trains_by_its_recipe(preset: str, train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, "--arch", preset, *SIZES, *LOGS, "--batch-size", 12, "--max-epoch", 2, "--no-save")
    first, second = logged(text, "valid_ppl")
    assert second < first
    assert ("train_penalty" in text) == preset.startswith("highway")  # its weight decay is in the loss
    assert "trains without" not in text


@pytest.mark.parametrize(
    ("arch", "criterion"),
    [
        pytest.param("zaremba_lm_small", "adaptive_loss", marks=pytest.mark.slow),
        ("zaremba_lm_small_wt_pr", "adaptive_loss"),
        ("zaremba_lm_small_wt_pr", "tied_cross_entropy"),
    ],
)
def test_an_adaptive_softmax_trains_and_scores_every_token(
    arch: str, criterion: str, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    flags = ("--criterion", criterion, "--ddp-backend", "legacy_ddp", "--adaptive-softmax-cutoff", "6,10")
    flags += ("--batch-size", 12, "--lr", 0.4, "--max-epoch", 2, "--no-epoch-checkpoints", "--save-dir", tmp_path)
    text = train(lm_data, "--arch", arch, *SIZES, *LOGS, *flags)
    first, second = logged(text, "train_ppl")
    assert second < first
    shares = "nothing" if arch == "zaremba_lm_small" else "input = output in bands (weight tying)"
    assert f"{arch}: shares {shares} by method plain" in text
    lost, penalty = arch.endswith("_pr") and criterion == "adaptive_loss", "tied" in criterion
    assert ("AdaptiveLoss: trains without --projection-regularization 0.15" in text) == lost
    assert ("train_penalty" in text) == penalty
    path = (*STREAM, "--path", tmp_path / "checkpoint_last.pt", "--tokens-per-sample")
    count, perplexity = evaluate(lm_data, *path, 5)
    assert count == tokens(lm_data, "test")
    assert evaluate(lm_data, *path, 1024) == (count, pytest.approx(perplexity, abs=0.011))


def test_epochs_take_folders_in_turn(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    shorter = first_tokens(lm_data, 600, tmp_path / "shorter")
    text = train(f"{lm_data}:{shorter}", *PRESET, "--max-epoch", 3, "--no-save")
    ends = logged(text, "train_num_updates")
    updates = [math.ceil(math.ceil(tokens(folder, "train") / 6) / 5) for folder in (lm_data, shorter, lm_data)]
    assert ends == [sum(updates[: epoch + 1]) for epoch in range(3)]
    assert updates[0] != updates[1]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["zaremba_lm_small_wt_pr", "gal_lm_large_wt", "highway_lm_8x890_wt"])
def test_hydra_trains_a_tied_model(
    preset: str, run_command: RunCommand, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    settings = ["model.decoder_embed_dim=16", "model.decoder_hidden_size=16", "task.tokens_per_sample=5"]
    settings += ["dataset.batch_size=6", "dataset.num_workers=0", "common.log_format=json", f"task.data={lm_data}"]
    settings += ["optimization.max_epoch=2", f"checkpoint.save_dir={tmp_path / 'hydra'}"]
    name = ("--config-dir", USER_DIR / "config", "--config-name", preset)
    hydra = run_command("hydra-train", *name, *settings, cwd=tmp_path)
    flags = ("--arch", preset, *SIZES, *LOGS, "--max-epoch", 2)
    command_line = train(lm_data, *flags, "--save-dir", tmp_path / "command_line")
    assert losses(hydra.stdout) == losses(command_line)
    assert f"{preset}: shares input = output (weight tying)" in hydra.stdout
    assert_same_weights(tmp_path / "hydra", tmp_path / "command_line")
    family = HighwayLM if preset.startswith("highway") else TiedLSTMLM
    loaded = family.from_pretrained(str(tmp_path / "hydra"), "checkpoint_last.pt", str(lm_data)).models[0]
    assert loaded.decoder.embed_tokens is loaded.decoder.output.head
    assert evaluate(lm_data, *STREAM, "--path", tmp_path / "hydra" / "checkpoint_last.pt")[0] > 0


# --- resume ----------------------------------------------------------------------------------------------------------


def test_resume_with_batches_of_another_shape_is_refused(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = (*PRESET, *DROPOUT, "--save-dir", tmp_path, "--max-update")
    train(lm_data, *flags, 7)
    for more in (("--batch-size", 7), ("--batch-size", 1), ("--tokens-per-sample", 10)):
        with pytest.raises(ValueError, match=f"{more[0]}: needs [56] .* got {more[1]}. .* --reset-dataloader"):
            train(lm_data, *flags, 60, *more)
    with pytest.raises(ValueError, match="--random-length: needs no such flag .* got it with --seed 1. .* --reset-dat"):
        train(lm_data, *flags, 60, "--random-length")
    train(lm_data, *flags, 9, *more, "--reset-dataloader")


def test_validation_in_mid_epoch_changes_nothing(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = (*PRESET, *DROPOUT, "--max-epoch", 1, "--no-epoch-checkpoints")
    once = train(lm_data, *flags, "--save-dir", tmp_path / "once")
    often = train(lm_data, *flags, "--validate-interval-updates", 7, "--save-dir", tmp_path / "often")
    assert (len(logged(often, "valid_ppl")), len(logged(once, "valid_ppl"))) == (4, 1)
    assert_same_weights(tmp_path / "often", tmp_path / "once")


# --- several processes -----------------------------------------------------------------------------------------------


# Of 729 tokens in 8 rows, the second of two processes has one left in an epoch's last step, and the first none.
UNEVEN = 729
ROWS, CHUNK = 8, 7


def first_tokens(data: Path, number: int, folder: Path) -> Path:
    """A corpus whose training text has fewer tokens."""
    shutil.copytree(data, folder)
    text = torch.cat(list(data_utils.load_indexed_dataset(f"{data}/train")))
    builder = MMapIndexedDatasetBuilder(f"{folder}/train.bin")
    builder.add_item(text[:number])
    builder.finalize(f"{folder}/train.idx")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_two_processes_are_one_with_twice_the_rows(
    backend: str, run_command: RunCommand, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    data = first_tokens(lm_data, UNEVEN, tmp_path / "data")
    flags = (*PRESET, "--tokens-per-sample", CHUNK, "--max-epoch", 2, "--no-epoch-checkpoints")
    one = train(data, *flags, "--batch-size", ROWS, "--save-dir", tmp_path / "one")
    several = ("--distributed-world-size", 2, "--ddp-backend", backend, "--batch-size", ROWS // 2)
    two = run_command("train", data, *flags, *several, "--save-dir", tmp_path / "two", fresh=True)
    for name in ("train_loss", "train_ppl", "train_penalty", "train_gnorm", "valid_loss", "valid_ppl", "train_wpb"):
        assert logged(two.stdout, name) == pytest.approx(logged(one, name), abs=2e-3), name  # three digits are shown
    for name, value in model_state(tmp_path / "one").items():
        torch.testing.assert_close(model_state(tmp_path / "two")[name], value, rtol=1e-4, atol=1e-5)


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


def test_sentences_are_evaluated_one_by_one(evaluate: Evaluate, path: tuple[str, Path], lm_data: Path) -> None:
    model = TiedLSTMLM.from_pretrained(str(path[1].parent), path[1].name, str(lm_data)).models[0]
    nats = 0.0
    for sentence in data_utils.load_indexed_dataset(f"{lm_data}/test"):
        target = sentence.long().unsqueeze(0)
        previous = torch.cat((torch.tensor([[2]]), target[:, :-1]), 1)
        nats += model(previous, target=target).loss.item()
    count = tokens(lm_data, "test")
    expected = (count, pytest.approx(math.exp(nats / count), abs=0.01))
    for rows in (1, 7):
        assert evaluate(lm_data, *STREAM, "--sample-break-mode", "eos", *path, "--batch-size", rows) == expected


# --- decoding --------------------------------------------------------------------------------------------------------


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
    fused = generate(parallel_data, *common, *fusion, 0.5)
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
    message = "split valid: needs at least one token; got none. Use a file that is not emp"
    for mode in ("none", "eos"):
        with pytest.raises(ValueError, match=message):
            train(tmp_path / "data", *PRESET, "--sample-break-mode", mode, "--max-epoch", 1, "--no-save")
