"""Weights are only read as what they were trained as: options and dictionaries of a checkpoint, in every command."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import fairseq_cli.eval_lm
import fairseq_cli.generate
import pytest
import torch
from fairseq import options

from fairseq_tiedemb.embedding import OF_METHOD
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM
from fairseq_tiedemb.models.transformer import TiedTransformerModel
from fairseq_tiedemb.sharing import SHARING_METHODS

from .conftest import Cli, InProcess, MadeOnce, RunCommand, configuration
from .test_compat_commands import TRANSLATION, logged
from .vectors.common import command

FEW = ("--max-update", 2, "--no-epoch-checkpoints", "--log-format", "json", "--num-workers", 0, "--disable-validation")
LM = ("--arch", "zaremba_lm_small_wt", "--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--batch-size", 6, *FEW)
TRANSFORMER = ("--arch", "tied_transformer_iwslt_de_en", *TRANSLATION[2:], "--batch-size", 20, *FEW)


def trained(train: InProcess, data: Path, folder: Path, *flags: object) -> Path:
    train(data, *flags, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    ("data", "flags", "other", "message"),
    [
        ("lm_data", LM, ("--arch", "zaremba_lm_small"), r"--share-decoder-.*: needs True, .*_wt\); got False"),
        ("parallel_data", TRANSFORMER, ("--decoder-attention-heads", 2), "--decoder-attention-heads: needs 4, .* 2"),
    ],
    ids=["tying of a preset", "heads"],
)
def test_resume_with_another_meaning_is_refused(
    data: str,
    flags: tuple,
    other: tuple,
    message: str,
    train: InProcess,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    folder = request.getfixturevalue(data)
    path = trained(train, folder, tmp_path, *flags)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"^{message}.* Use the same, or another --save-dir"):
        train(folder, *flags, *other, "--max-update", 4, "--save-dir", tmp_path)
    assert path.read_bytes() == before


def test_either_adam_goes_on_from_the_other(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    command = (lm_data, *LM, "--lr", 0.01, "--save-dir", tmp_path)
    train(*command, "--optimizer", "adam")
    for updates, optimizer in ((3, "fused_adam"), (4, "adam")):
        text = train(*command, "--optimizer", optimizer, "--max-update", updates)
        assert f"(epoch 1 @ {updates - 1} updates)" in text
    with pytest.raises(ValueError, match=r"^--optimizer: needs adam, as in .*; got nag. Use --reset-opt"):
        train(*command, "--optimizer", "nag", "--max-update", 5)
    message = r"^--bf16, --fp16, or memory-efficient: needs FairseqAdam, as in .*; got FP16Optimizer. Use --reset-opt"
    with pytest.raises(ValueError, match=message):
        train(*command, "--optimizer", "adam", "--max-update", 5, "--bf16")
    with pytest.raises(
        ValueError, match=r"^--lr-scheduler: needs the one .*; got inverse_sqrt. Use it, or --reset-lr-s"
    ):
        train(*command, "--optimizer", "adam", "--max-update", 5, "--lr-scheduler", "inverse_sqrt")
    with pytest.raises(ValueError, match=r"needs a checkpoint of the same model; got another \(.*weight_ih.2"):
        train(*command, "--optimizer", "adam", "--max-update", 5, "--decoder-layers", 3)
    start = ("--decoder-layers", 3, "--finetune-from-model", tmp_path / "checkpoint_last.pt")
    with pytest.raises(ValueError, match=r"weight_ih.2.*Use the --arch and .* for other tables, fairseq-tiedemb tie"):
        train(lm_data, *LM, "--lr", 0.01, "--optimizer", "adam", *start, "--save-dir", tmp_path / "finetuned")
    path = tmp_path / "checkpoint_last.pt"
    state = torch.load(path, weights_only=False)
    state["last_optimizer_state"]["param_groups"][0]["params"].append(99)
    torch.save(state, path)
    with pytest.raises(ValueError, match=r"^--optimizer: needs the parameters of its state; got those of .*_last.pt"):
        train(*command, "--optimizer", "adam", "--max-update", 5)


def test_another_optimizer_in_half_precision_is_refused(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    """fairseq compares its wrappers, which have one name."""
    command = (lm_data, *LM, "--lr", 0.01, "--save-dir", tmp_path, "--bf16", "--optimizer")
    train(*command, "adam")
    with pytest.raises(ValueError, match=r"^--optimizer: needs adam, as in .*_last.pt; got sgd. Use --reset-optimizer"):
        train(*command, "sgd", "--max-update", 3)
    assert "(epoch 1 @ 2 updates)" in train(*command, "fused_adam", "--max-update", 3)
    train(*command, "sgd", "--max-update", 4, "--reset-optimizer")


def test_one_process_with_an_address_trains(run_command: RunCommand, lm_data: Path, tmp_path: Path) -> None:
    """fairseq starts a process for each GPU: none here, and the command ends with status 0."""
    alone = ("--distributed-world-size", 1, "--distributed-rank", 0, "--distributed-init-method")
    flags = (*LM, "--lr", 0.01, "--cpu", "--save-dir", tmp_path, *alone, f"file://{tmp_path}/store")
    assert logged(run_command("train", lm_data, *flags, fresh=True).stdout, "train_num_updates") == [2]


def test_the_best_value_of_another_metric_is_forgotten(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    command = (lm_data, *[flag for flag in LM if flag != "--disable-validation"], "--lr", 0.01, "--save-dir", tmp_path)
    train(*command)
    perplexity = ("--best-checkpoint-metric", "ppl", "--max-update")
    text = train(*command, *perplexity, 3)
    assert logged(text, "valid_best_ppl") == []
    assert logged(train(*command, "--lr", 0, *perplexity, 4), "valid_best_ppl") == logged(text, "valid_ppl") != []


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize("section", ["checkpoint", "optimizer"])
def test_settings_without_a_section_are_read(
    section: str, flag: str, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    path = trained(train, lm_data, tmp_path, *LM)
    state = torch.load(path, weights_only=False)
    del state["cfg"][section]
    torch.save(state, tmp_path / "cut.pt")
    command = (lm_data, *LM, flag, tmp_path / "cut.pt", "--max-update", 3, "--save-dir", tmp_path / "new")
    assert logged(train(*command), "train_num_updates") == [3]


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model", "--continue-once"])
def test_a_checkpoint_that_is_missing_is_refused(flag: str, train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{flag}: needs a checkpoint; got nowhere.pt, which is none"):
        train(lm_data, *LM, flag, "nowhere.pt", "--save-dir", tmp_path)
    path = trained(train, lm_data, tmp_path, *LM)
    if flag == "--finetune-from-model":  # read once, and the training goes on where its start is gone
        text = train(lm_data, *LM, flag, "nowhere.pt", "--save-dir", tmp_path, "--max-update", 4)
        assert f"Loaded checkpoint {path}" in text


def test_finetuning_may_change_the_meaning_and_says_so(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    path = trained(train, lm_data, tmp_path / "first", *LM)
    flags = (*LM, "--sharing-method", "cosine", "--finetune-from-model", path, "--save-dir", tmp_path / "second")
    text = train(lm_data, *flags)
    assert f"--finetune-from-model {path}: --sharing-method was plain in its training, and is cosine now" in text
    text = train(lm_data, *flags, "--max-update", 4)  # resumes what is cosine by now
    assert "(epoch 1 @ 2 updates)" in text
    assert "was plain" not in text


@pytest.mark.parametrize(("first", "second"), [("scaled", "plain"), ("plain", "fixnorm"), ("scaled", "own")])
def test_finetuning_starts_the_parameters_of_another_method(
    first: str, second: str, train: InProcess, lm_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dataclasses.replace(SHARING_METHODS.find("scaled", flag=""), name="own", input_scale=lambda n: n)
    monkeypatch.setitem(SHARING_METHODS, "own", own)  # with a parameter of the same name
    flags = (*LM, "--store-ema", "--ema-fp32", "--ema-decay", 0.9, "--sharing-method")
    path = trained(train, lm_data, tmp_path / "first", *flags, first, "--lr", 0.1)
    more = ("--lr", 0, "--finetune-from-model", path)
    after = torch.load(trained(train, lm_data, tmp_path / "second", *flags, second, *more), weights_only=False)
    fresh = torch.load(trained(train, lm_data, tmp_path / "fresh", *flags, second, "--lr", 0), weights_only=False)
    before = torch.load(path, weights_only=False)
    for part in ("ema", "ema_fp32_params"):
        for each in (before, after, fresh):
            each[part] = each["extra_state"][part]
    added = {key for key in fresh["model"] if OF_METHOD.search(key)}
    assert bool(added) == (second != "plain")
    for part in ("model", "ema", "ema_fp32_params"):
        assert after[part].keys() == fresh[part].keys()
        for key in added if part != "model" else fresh[part]:  # averages go on with the other weights
            assert torch.equal(after[part][key], (fresh if key in added else before)[part][key]), (part, key)


def test_a_model_of_fairseqs_goes_on_as_ours_by_the_plain_method(
    train: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    trained(train, parallel_data, tmp_path, *TRANSLATION, "--batch-size", 20, *FEW)
    with pytest.raises(ValueError, match=r"--sharing-method: needs plain, .*\(--arch transformer_iwslt_de_en\); got l"):
        train(parallel_data, *TRANSFORMER, "--sharing-method", "l2-input", "--max-update", 4, "--save-dir", tmp_path)
    assert "(epoch 1 @ 2 updates)" in train(parallel_data, *TRANSFORMER, "--max-update", 4, "--save-dir", tmp_path)


COMMANDS = {
    "generate": (fairseq_cli.generate.main, options.get_generation_parser),
    "eval-lm": (fairseq_cli.eval_lm.main, options.get_eval_lm_parser),
}


def run(command: str, data: Path, *flags: object) -> None:
    main, parser = COMMANDS[command]
    brief = ("--max-len-b", 5, "--beam", 1) if command == "generate" else ()
    main(configuration(parser(), data, *flags, *brief))


@pytest.fixture
def translator(train: InProcess, parallel_data: Path, made_once: MadeOnce, tmp_path: Path) -> Path:
    folder, _ = made_once("translator", lambda folder: trained(train, parallel_data, folder, *TRANSFORMER))
    return shutil.copytree(folder, tmp_path / "translator") / "checkpoint_last.pt"


def test_overrides_of_another_meaning_are_refused(
    translator: Path, train: InProcess, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    message = "^--sharing-method: needs plain, .* got cosine. Leave it out of --model-overrides"
    overrides = ("--model-overrides", "{'sharing_method': 'cosine'}", "--batch-size", 20)
    with pytest.raises(ValueError, match=message):
        run("generate", parallel_data, "--path", translator, *overrides)
    run("generate", parallel_data, "--path", translator, "--model-overrides", "{'sharing_method': 'plain'}")
    names = (str(translator.parent), translator.name, str(parallel_data))
    with pytest.raises(ValueError, match=message):
        TiedTransformerModel.from_pretrained(*names, sharing_method="cosine")
    path = trained(train, lm_data, tmp_path / "lm", *LM)
    with pytest.raises(ValueError, match=message):
        run("eval-lm", lm_data, "--task", "contiguous_lm", "--path", path, *overrides)
    with pytest.raises(ValueError, match=message):
        TiedLSTMLM.from_pretrained(str(path.parent), path.name, str(lm_data), sharing_method="cosine")


@pytest.fixture
def other_order(parallel_data: Path, tmp_path: Path) -> Path:
    """The parallel data with the words of one dictionary in another order."""
    folder = shutil.copytree(parallel_data, tmp_path / "other_order")
    words = (folder / "dict.tgt.txt").read_text().splitlines(keepends=True)
    (folder / "dict.tgt.txt").write_text("".join(words[::-1]))
    return folder


SIZES = "--encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 8".split()
NMT = ("--arch", "lstm_nmt", *SIZES, "--decoder-out-embed-dim", 8, "--optimizer", "adam", "--batch-size", 20, *FEW)
OTHER_ORDER = r"^dict\.tgt\.txt: needs the 16 words .* in their order; got 16 others, .* Use .* --tgtdict"


def test_a_translator_refuses_another_order_of_words(
    run_command: RunCommand, train: InProcess, parallel_data: Path, other_order: Path, tmp_path: Path
) -> None:
    path = trained(train, parallel_data, tmp_path / "nmt", *NMT)
    paths = ("--path", path, "--batch-size", 20)
    with pytest.raises(ValueError, match=OTHER_ORDER):
        run("generate", other_order, *paths)
    command = run_command("validate", other_order, "--task", "translation", *paths, check=False)
    assert command.returncode == 2
    assert re.search(OTHER_ORDER.replace("^", "error: "), command.stderr), command.stderr
    with pytest.raises(ValueError, match=OTHER_ORDER):
        TiedLSTMLM.from_pretrained(str(path.parent), path.name, str(other_order))
    with pytest.raises(ValueError, match=OTHER_ORDER):
        train(other_order, *NMT, "--max-update", 4, "--save-dir", path.parent)
    text = train(other_order, *NMT, "--finetune-from-model", path, "--save-dir", tmp_path / "tuned")
    assert "dict.tgt.txt was 16 words in its training, and is 16 others, or another order now" in text
    run("generate", parallel_data, *paths)


def test_an_untied_start_of_a_tied_model_is_refused(
    train: InProcess, parallel_data: Path, tmp_path: Path, cli: Cli
) -> None:
    tuned = ("--save-dir", tmp_path / "tuned")
    path, tied = trained(train, parallel_data, tmp_path / "nmt", *NMT), tmp_path / "tied.pt"
    message = (
        "decoder.output.weight: needs the table of the input, .* Use `fairseq-tiedemb tie` on the checkpoint, or the"
    )
    with pytest.raises(ValueError, match=f"^{message} options of its training.$"):
        train(parallel_data, *NMT, "--share-decoder-input-output-embed", "--finetune-from-model", path, *tuned)
    cli("tie", path, tied)
    train(parallel_data, *NMT, "--share-decoder-input-output-embed", "--finetune-from-model", tied, *tuned)
    shutil.rmtree(tuned[1])
    message = (
        "--share-all-embeddings: needs .* one table for encoder.* and decoder.*; got two that differ. Use the options"
    )
    with pytest.raises(ValueError, match=f"^{message} of its training, or fairseq-tiedemb tie.$"):
        train(parallel_data, *NMT, "--share-all-embeddings", "--finetune-from-model", tied, *tuned)
    cli("tie", tied, tmp_path / "three.pt", "--share-all-embeddings")
    train(parallel_data, *NMT, "--share-all-embeddings", "--finetune-from-model", tmp_path / "three.pt", *tuned)


def test_merged_dictionaries_are_merged_again(train: InProcess, parallel_data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(parallel_data, tmp_path / "more_words")
    with (folder / "dict.tgt.txt").open("a") as words:
        words.write("more 1\nand-more 1\n")
    merged = (*(flag for flag in TRANSFORMER if flag != "--share-all-embeddings"), "--merge-src-tgt-embed")
    path = trained(train, folder, tmp_path / "merged", *merged)
    run("generate", folder, "--path", path, "--batch-size", 20)
    train(folder, *merged, "--max-update", 4, "--save-dir", path.parent)
    with pytest.raises(ValueError, match=r"dict\.src\.txt: needs the 18 words .*; got 16\."):
        run("generate", parallel_data, "--path", path, "--batch-size", 20)


OTHER_WORDS = "{flag}: needs the 16 words that .* trained with, in their order; got {path}, with other words or another"


def test_tables_refuse_another_order_of_words(
    train: InProcess, parallel_data: Path, other_order: Path, tmp_path: Path, cli: Cli
) -> None:
    languages = ("--source-lang", "src", "--target-lang", "tgt")
    path = trained(train, parallel_data, tmp_path / "nmt", *NMT, *languages)
    right, wrong, output = parallel_data / "dict.tgt.txt", other_order / "dict.tgt.txt", tmp_path / "x.vec"
    tables = (f"{path}:in", f"{path}:source", f"{path}:encoder.embed_tokens.weight")
    refusal = OTHER_WORDS.format(flag="^--dict", path=wrong)
    for table in tables:
        with pytest.raises(ValueError, match=refusal):
            command("vectors", table, "--dict", wrong, "--output", output)
        assert not output.exists()
        command("vectors", table, "--dict", right, "--output", output)
        output.unlink()
    with pytest.raises(ValueError, match=OTHER_WORDS.format(flag="^--dictionary", path=wrong)):
        command("norms", path, "--dictionary", wrong)
    command("norms", path, "--dictionary", right)
    # The file that is found where nobody names one.
    command("neighbours", tables[0], "--words", "a")
    beside = path.parent / wrong.name
    shutil.copy(wrong, beside)
    with pytest.raises(ValueError, match=OTHER_WORDS.format(flag="^--dict", path=beside)):
        command("neighbours", tables[0], "--words", "a")
    beside.write_text("\ufeff" + right.read_text())  # a mark at its beginning, which is part of no word
    command("neighbours", tables[0], "--words", "a")
    state: dict[str, Any] = torch.load(path, weights_only=True)
    del state["task_state"]
    torch.save(state, path)
    assert "words by frequency" in cli("norms", path, "--dictionary", wrong).out
    for table in tables:
        command("vectors", table, "--dict", wrong, "--output", output)


@pytest.mark.parametrize("size", [9, 16])
def test_another_size_of_the_output_is_refused(
    size: int, train: InProcess, lm_data: Path, tmp_path: Path, cli: Cli
) -> None:
    def flags(words: int) -> tuple[object, ...]:
        return "--task", "language_modeling", "--output-dictionary-size", words

    path, other = trained(train, lm_data, tmp_path, *LM, *flags(size)), 25 - size
    message = f"^--output-dictionary-size: needs {size}, as in the checkpoint's training; got {other}. Use the same.$"
    with pytest.raises(ValueError, match=message):
        train(lm_data, *LM, *flags(other), "--max-update", 4, "--save-dir", tmp_path)
    with pytest.raises(ValueError, match=message):
        run("eval-lm", lm_data, *flags(other), "--path", path)
    run("eval-lm", lm_data, *flags(size), "--path", path)
    second = trained(train, lm_data, tmp_path / "other", *LM, *flags(other))
    with pytest.raises(ValueError, match="^--inputs: needs models trained with one dictionary; got .* output diction"):
        command("average", "--inputs", path, second, "--output", tmp_path / "mean.pt")
    reversed_words = shutil.copytree(lm_data, tmp_path / "reversed")
    words = (lm_data / "dict.txt").read_text().splitlines(keepends=True)
    (reversed_words / "dict.txt").write_text("".join(words[::-1]))
    tuning = ("--finetune-from-model", path, "--save-dir", tmp_path / "tuned")
    text = train(reversed_words, *LM, *flags(size), *tuning)
    assert "dict.txt was 16 words in its training" in text
    assert "--output-dictionary-size was" not in text
    # Up to version 0.1.39 checkpoints knew the whole list alone.
    state: dict[str, Any] = torch.load(path, weights_only=True)
    del state["task_state"]["dictionaries_of_training"]["output"]
    torch.save(state, path)
    run("eval-lm", lm_data, *flags(size), "--path", path)


def test_a_checkpoint_without_a_fingerprint_loads_as_ever(
    translator: Path, other_order: Path, capsys: pytest.CaptureFixture
) -> None:
    state: dict[str, Any] = torch.load(translator, weights_only=True)
    assert set(state["task_state"].pop("dictionaries_of_training")) == {"source", "target"}
    torch.save(state, translator)
    # An order of words that three-way sharing would refuse first.
    shutil.copy(other_order / "dict.tgt.txt", other_order / "dict.src.txt")
    run("generate", other_order, "--path", translator, "--batch-size", 20)
    assert "Generate test" in capsys.readouterr().out
