"""The entries of compat about what fairseq is given: text, data, models, and what it says of a model's flags."""

import contextlib
import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq_cli.eval_lm
import fairseq_cli.preprocess
import pytest
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import fairseq_tiedemb.plugin  # noqa: F401 (mends fairseq before its parser begins)
from fairseq_tiedemb.training import recipes

from .conftest import USER_DIR, InProcess, RunCommand, configuration

MARK = "\ufeff"


def preprocess(*arguments: object) -> None:
    """fairseq-preprocess in this process."""
    parser = options.get_preprocessing_parser()
    fairseq_cli.preprocess.main(parser.parse_args([*map(str, arguments), "--user-dir", str(USER_DIR)]))


# --- byte-order marks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_byte_order_mark_is_in_no_word(workers: int, tmp_path: Path) -> None:
    lines = ["the cat sat", "a dog ran", "the dog sat", "a cat ran"]
    # The second mark is where a file with one was joined to another.
    (tmp_path / "train").write_text(f"{MARK}{lines[0]}\n{lines[1]}\n{MARK}{lines[2]}\n{lines[3]}\n", encoding="utf-8")
    (tmp_path / "plain").write_text("".join(f"{line}\n" for line in lines))
    for name in ("train", "plain"):
        flags = ("--trainpref", tmp_path / name, "--workers", workers, "--padding-factor", 1)
        preprocess("--only-source", *flags, "--destdir", tmp_path / f"{name}-bin")
    for name in ("dict.txt", "train.bin", "train.idx"):
        assert (tmp_path / "train-bin" / name).read_bytes() == (tmp_path / "plain-bin" / name).read_bytes()


def test_a_byte_order_mark_in_a_dictionary_or_a_line(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text(f"{MARK}the 3\ncat 2\n", encoding="utf-8")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    assert dictionary.symbols[4:] == ["the", "cat"]
    assert dictionary.encode_line(f"{MARK}the cat", add_if_not_exist=False).tolist() == [4, 5, dictionary.eos()]
    assert Dictionary.load(io.StringIO("the 3\n")).symbols[4:] == ["the"]


# --- other encodings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "content", "place"),
    [
        (1, "café\n".encode("latin-1"), r"line 1 has the byte 0xe9 \(invalid continuation byte\)"),
        (2, b"a\n" * 9000 + "über\n".encode("latin-1"), r"line 9001 has the byte 0xfc"),
        (2, "a b\n".encode("utf-16"), r"line 1 has the byte 0xff"),
    ],
)
def test_text_of_another_encoding_is_named(workers: int, content: bytes, place: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    flags = ("--only-source", "--workers", workers, "--destdir", tmp_path / "bin")
    with pytest.raises(ValueError, match=rf"--trainpref.*: need UTF-8 text; got {tmp_path}/text, whose {place}"):
        preprocess("--trainpref", tmp_path / "text", *flags)
    (tmp_path / "good").write_text("a b\n")
    with pytest.raises(ValueError, match=place):
        preprocess("--trainpref", tmp_path / "good", "--validpref", tmp_path / "text", *flags)


# --- commands --------------------------------------------------------------------------------------------------------


def test_hydra_train_asks_for_the_data(run_command: RunCommand, tmp_path: Path) -> None:
    folder = USER_DIR / "config"
    name = ("--config-dir", folder, "--config-name", "zaremba_lm_small")
    command = run_command("hydra-train", *name, cwd=tmp_path, check=False)
    assert command.returncode != 0
    assert "task.data: needs the folder of fairseq-preprocess; got none. Use task.data=" in command.stderr


def test_eval_lm_names_a_model_that_translates(
    train: InProcess, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    sizes = [f"--{name}=4" for name in ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim")]
    sizes += ["--decoder-hidden-size=4", "--decoder-out-embed-dim=4", "--save-dir", str(tmp_path)]
    flags = "--arch lstm_nmt --optimizer sgd --lr 0.1 --batch-size 4 --max-update 1 --disable-validation"
    train(parallel_data, *flags.split(), *sizes)
    flags = ["--path", str(tmp_path / "checkpoint_last.pt")]
    with pytest.raises(
        ValueError, match="--path: needs a language model; got lstm_nmt, .* Use fairseq-generate .*idate"
    ):
        fairseq_cli.eval_lm.main(configuration(options.get_eval_lm_parser(), lm_data, *flags))
    with pytest.raises(ValueError, match="--arch: needs a language model; got lstm, .* Use --task translation .*pairs"):
        train(lm_data, "--task", "language_modeling", *"--arch lstm --optimizer sgd --batch-size 4".split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--task contiguous_lm --arch lstm_nmt_small_twwt", "a language model; got lstm_nmt_small_twwt, .* --task tra"),
        (
            "--task word_pairs --arch transformer_lm --optimizer adam --max-tokens 100",
            "--arch transformer_lm: needs a task with --add-bos-token, .*--tokens-per-sample; got --task word_pairs",
        ),
        (
            "--arch tied_transformer_lm --optimizer adam --max-tokens 100",
            "--arch: needs a translation model; got tied_transformer_lm, .* Use --task language_modeling",
        ),
    ],
)
def test_a_model_that_does_not_fit_the_task(flags: str, message: str) -> None:
    """Told when settings are made of options; programs that only parse options may name a model and no task."""
    args = options.parse_args_and_arch(options.get_training_parser(), ["data-bin", *flags.split()])
    with pytest.raises(ValueError, match=message):
        convert_namespace_to_omegaconf(args)


@pytest.mark.parametrize(
    ("name", "from_checkpoint", "message"),
    [
        ("transformer_lm", False, "--arch: needs a translation model; got transformer_lm, .* --task language_model"),
        ("zaremba_lm_small_wt", False, "got zaremba_lm_small_wt, a language model. Use --task contiguous_lm for it"),
        ("tied_lstm_lm", True, "--path: needs a translation model; got tied_lstm_lm, .* Use fairseq-eval-lm"),
    ],
)
def test_translation_by_a_language_model(name: str, from_checkpoint: bool, message: str) -> None:
    task = TranslationTask(TranslationConfig(), Dictionary(), Dictionary())
    with pytest.raises(ValueError, match=message):
        task.build_model(SimpleNamespace(_name=name), from_checkpoint)


# --- help ------------------------------------------------------------------------------------------------------------


def shown_help(*arguments: str) -> str:
    """What fairseq-train prints for these, as one line."""
    text = io.StringIO()
    parser = options.get_training_parser()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit, match="0"):
        options.parse_args_and_arch(parser, ["--user-dir", str(USER_DIR), *arguments])
    return " ".join(text.getvalue().split())


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        # of a dataclass
        ("dl4mt_wt", ["--decoder-hidden-size DECODER_HIDDEN_SIZE decoder hidden size (default: 1000)"]),
        # of a recipe, and of its task
        ("zaremba_lm_small", ["at specified epoch (default: 6)", "task (default: contiguous_lm)", "(default: sgd)"]),
        # of fairseq's preset
        ("tied_transformer_iwslt_de_en", ["--encoder-ffn-embed-dim ENCODER_FFN_EMBED_DIM", "FFN (default: 1024)"]),
        ("tied_transformer_lm_gpt", ["--decoder-layers DECODER_LAYERS num decoder layers (default: 12)"]),
        ("tied_lightconv_iwslt_de_en", ["--decoder-kernel-size-list", "(default: [3, 7, 15, 31, 31, 31])"]),
    ],
)
def test_help_shows_the_models_flags_and_their_defaults(arch: str, flags: list[str]) -> None:
    for arguments in (["--arch", arch, "-h"], ["-h", "--arch", arch]):
        text = shown_help(*arguments)
        assert "--sharing-method {plain," in text
        assert "(default: plain)" in text
        for flag in flags:
            assert flag in text
        assert "${" not in text


def test_help_without_a_model() -> None:
    text = shown_help("--help")
    assert "Model-specific configuration" not in text
    assert "--clip-norm CLIP_NORM clip threshold of gradients (default: 0.0)" in text


@pytest.mark.parametrize(
    ("arch", "near"),
    [("lstm_nmt_wtt", "lstm_nmt_wt, "), ("tied-transformer-lm", "tied_transformer_lm"), ("zzz", "another")],
)
def test_a_mistyped_model_is_refused_with_its_neighbours(arch: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"--arch: needs a model; got '{arch}'\. Use {near}"):
        given("--arch", arch)


# --- recipes ---------------------------------------------------------------------------------------------------------


def given(*arguments: str) -> Any:
    """What a command makes of these options, and of a recipe's."""
    return configuration(options.get_training_parser(), Path("data"), *arguments)


def test_the_options_of_a_recipes_choices_are_known() -> None:
    cfg = given("--arch", "zaremba_lm_small", "--momentum", "0.5", "--lr-shrink", "0.25")
    assert (cfg.optimizer._name, cfg.optimizer.momentum, cfg.lr_scheduler.lr_shrink) == ("sgd", 0.5, 0.25)
    cfg = given("-a", "word2vec_skipgram", "--clip-row-norm", "2", "--window", "3")
    assert (cfg.optimizer._name, cfg.optimizer.clip_row_norm, cfg.task.window) == ("row_sgd", 2.0, 3)
    assert (cfg.common.fp16_no_flatten_grads, cfg.common.user_dir) == (True, str(USER_DIR))


def test_another_optimiser_than_the_recipes_has_its_own_defaults() -> None:
    cfg = given("--arch=zaremba_lm_small", "--optimizer", "nag")
    assert (cfg.optimizer._name, cfg.optimizer.momentum, cfg.optimizer.lr) == ("nag", 0.99, [1.0])
    cfg = given("-agal_lm_large", "--optimizer=adam")
    assert (cfg.optimizer._name, cfg.optimizer.weight_decay) == ("adam", 0.0)
    assert given("--arch", "gal_lm_large", "--optimizer=sgdw").optimizer.weight_decay == 1e-7


@pytest.mark.parametrize("arch", ["lstm_nmt_wt", "dl4mt"])
def test_a_recipe_that_yields_leaves_a_command_with_an_optimiser_as_it_was(
    arch: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as those of versions in which the preset had none: the same settings, of all sections, as without it."""
    recipes._say_that_no_recipe_is_used.cache_clear()
    caplog.set_level(logging.INFO)
    cfg = given("--arch", arch)
    assert "disables the recipe" not in caplog.text
    assert cfg.optimizer._name == ("adam" if arch.startswith("lstm") else "adadelta")
    assert (cfg.criterion._name, cfg.optimization.clip_norm) == ("tied_cross_entropy", 1.0)
    for flags in (("--optimizer", "adam"), ("--optimizer=adadelta", "--lr", "1")):
        with_recipe = given("--arch", arch, *flags)
        assert (with_recipe.criterion._name, with_recipe.optimization.max_update) == ("cross_entropy", 0)
        with monkeypatch.context() as without:
            without.setattr(ARCH_MODEL_REGISTRY[arch], "recipe", {})
            assert with_recipe == given("--arch", arch, *flags)
    assert caplog.text.count(f"--optimizer disables the recipe of {arch}") == 1


def test_another_schedule_or_criterion_has_the_recipes_numbers_where_it_has_any() -> None:
    cfg = given("--arch", "word2vec_skipgram", "--lr-scheduler", "inverse_sqrt")
    schedule = cfg.lr_scheduler
    assert (schedule._name, schedule.warmup_updates, schedule.lr) == ("inverse_sqrt", 4000, [0.025])
    flags = ("--lr-scheduler", "inverse_sqrt", "--criterion", "label_smoothed_cross_entropy")
    cfg = given("--arch", "lstm_nmt_small", *flags)
    assert (cfg.lr_scheduler.warmup_updates, cfg.criterion.label_smoothing) == (200, 0.1)


def test_who_calls_the_parser_prevails_over_a_recipe() -> None:
    parser = options.get_training_parser()
    arguments = ["data", "--user-dir", str(USER_DIR), "--arch", "zaremba_lm_small"]
    args = options.parse_args_and_arch(
        parser, arguments, modify_parser=lambda parser: parser.set_defaults(lr=[0.7], momentum=0.3)
    )
    assert (args.lr, args.momentum, args.max_epoch) == ([0.7], 0.3, 13)
    args = options.parse_args_and_arch(options.get_training_parser(), arguments, suppress_defaults=True)
    assert vars(args) == {"data": "data", "user_dir": str(USER_DIR), "arch": "zaremba_lm_small"}


def test_a_recipe_is_there_where_the_parser_imports_the_plugin(run_command: RunCommand, tmp_path: Path) -> None:
    """As it does for a program of one's own, when fairseq's function runs already."""
    program = (
        "from fairseq import options\n"
        "args = options.parse_args_and_arch(options.get_training_parser(), "
        f"['data', '--user-dir', {str(USER_DIR)!r}, '--arch', 'zaremba_lm_small'])\n"
        "print(args.task, args.criterion, args.optimizer, args.lr, args.max_epoch)"
    )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "program.py").write_text(program)
    process = run_command("own.program", cwd=tmp_path)
    assert process.stdout.split() == ["contiguous_lm", "tied_cross_entropy", "sgd", "[1.0]", "13"]


@pytest.mark.parametrize("preset", ["word2vec_skipgram", "lstm_lm"])
def test_the_rate_falls_until_max_update_where_no_other_number_is_given(preset: str) -> None:
    flags = ("--arch", preset, "--lr-scheduler", "polynomial_decay")
    assert given(*flags, "--max-update", "50").lr_scheduler.total_num_update == 50
    assert given(*flags, "--max-update", "50", "--total-num-update", "70").lr_scheduler.total_num_update == 70


# --- what it prints --------------------------------------------------------------------------------------------------


def test_interactive_says_what_it_cannot_print(capsys: pytest.CaptureFixture[str]) -> None:
    parser = options.get_interactive_generation_parser()
    assert parser.parse_known_args(["--print-alignment"])[0].print_alignment == "hard"
    with pytest.raises(SystemExit, match="2"):
        parser.parse_known_args(["--print-alignment", "soft"])
    assert "invalid choice: 'soft' (choose from" in capsys.readouterr().err
    generation = options.get_generation_parser().parse_known_args(["--print-alignment", "soft"])[0]
    assert generation.print_alignment == "soft"


def test_interactive_reads_no_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.get_interactive_generation_parser().parse_known_args(["--lm-path", "lm.pt"])
    assert "argument --lm-path: needs fairseq-generate; got lm.pt, which is not read" in capsys.readouterr().err
    assert options.get_generation_parser().parse_known_args(["--lm-path", "lm.pt"])[0].lm_path == "lm.pt"
