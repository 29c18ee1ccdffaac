"""fairseq's own commands and models with the plugin, each as a real command line in a process of its own.

The tests of one trained model share it, and what is rarer is marked slow.
"""

import functools
import json
import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

import fairseq_tiedemb.plugin  # noqa: F401  (mends fairseq in this process)

from .conftest import USER_DIR, InProcess, MadeOnce, RunCommand, run
from .runs import assert_same_weights
from .untrained import write_checkpoint

TRANSLATION = (
    "--arch transformer_iwslt_de_en --encoder-layers 1 --decoder-layers 1 "
    "--encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--share-all-embeddings --dropout 0 --optimizer adam --lr 1e-3 --log-format json --num-workers 0"
).split()
LANGUAGE_MODEL = (
    "--task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --decoder-attention-heads 2 --optimizer adam --lr 1e-3 --log-format json "
    "--num-workers 0 --no-epoch-checkpoints"
).split()


def logged(text: str, name: str) -> list[float]:
    """The values of `"name": "1.23"` in the order in which the command logged them."""
    return [float(value) for value in re.findall(rf'"{name}": "([\d.]+)"', text)]


def shown(text: str, name: str) -> list[float]:
    """The values of `| name 1.23` in the order in which fairseq-validate showed them."""
    return [float(value) for value in re.findall(rf"\| {name} ([\d.]+)", text)]


def noise(text: str) -> list[str]:
    """Warnings and debugging, but for the one of torch >= 2.14 while fairseq is imported, before a plugin."""
    lines = [line for line in text.splitlines() if "Warning" in line or line.startswith("DEBUG")]
    return [line for line in lines if "`torch.jit.script` is deprecated" not in line]


@pytest.fixture(scope="module")
def run_command() -> RunCommand:
    """`run_command` of conftest.py, of commands that import the plugin themselves."""
    return functools.partial(run, loads_plugin=True)


@pytest.fixture(scope="module")
def translator(run_command: RunCommand, parallel_data: Path, made_once: MadeOnce) -> tuple[Path, Any]:
    """The checkpoints of a tiny tied transformer, trained for an epoch, and the command that made them."""
    flags = (*TRANSLATION, "--batch-size", 20, "--max-epoch", 1, "--save-dir")
    return made_once("transformer", lambda folder: run_command("train", parallel_data, *flags, folder, fresh=True))


@pytest.fixture
def language_model(lm_data: Path, tmp_path: Path) -> Path:
    """The checkpoint of a tiny language model that reads 20 tokens."""
    write_checkpoint(tmp_path / "model.pt", lm_data, *LANGUAGE_MODEL, "--tokens-per-sample", 20)
    return tmp_path / "model.pt"


def test_training_takes_every_sentence_and_says_nothing_else(translator: tuple[Path, Any]) -> None:
    folder, command = translator
    assert logged(command.stdout, "train_bsz") == [20]
    assert logged(command.stdout, "valid_num_updates") == [5]
    assert noise(command.stdout + command.stderr) == []
    assert {"checkpoint1.pt", "checkpoint_best.pt", "checkpoint_last.pt"} == {path.name for path in folder.iterdir()}


def test_a_log_has_each_line_once(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    """Also where a training goes on in it."""
    flags = (*LANGUAGE_MODEL, "--tokens-per-sample", 20, "--batch-size", 50, "--save-dir", tmp_path / "run")
    for epochs in (1, 2):
        train(lm_data, *flags, "--max-epoch", epochs, "--log-file", tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    progress = [line for line in lines if line.startswith('{"')]  # the rest is of the command itself
    assert [json.loads(line)["epoch"] for line in progress if "train_loss" in line] == [1, 2]
    assert len(progress) == len(set(progress)) >= 4


def test_every_sentence_is_translated(
    run_command: RunCommand, translator: tuple[Path, Any], parallel_data: Path
) -> None:
    path = translator[0] / "checkpoint_best.pt"
    flags = ("--path", path, "--batch-size", 7, "--beam", 2, "--max-len-b", 10)
    command = run_command("generate", parallel_data, *flags)
    assert sorted(re.findall(r"^H-(\d+)", command.stdout, re.M), key=int) == [str(number) for number in range(100)]
    # Standard output is the result and nothing but the result.
    assert [line for line in command.stdout.splitlines() if not re.match(r"[STHDP]-\d+\t|Generate test", line)] == []
    assert noise(command.stderr) == []


class RunsCode:
    """Unpickling it would create the file `marker`."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def by_pickle(state: dict[str, Any], marker: Path) -> None:
    state["extra_state"]["surprise"] = RunsCode(marker)


def by_setting(state: dict[str, Any], marker: Path) -> None:
    state["cfg"]["model"].adaptive_softmax_cutoff = f"__import__('os').system('touch {marker}')"


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (by_pickle, r"bad\.pt: needs tensors.* got \w+\.system, which could run code\. Nothing of it was run"),
        (by_setting, r"setting in a checkpoint .* got .*system.* could run code, so nothing of it was run"),
    ],
)
def test_a_checkpoint_that_would_run_code_is_refused(
    attack: Callable[..., None],
    message: str,
    run_command: RunCommand,
    translator: tuple[Path, Any],
    parallel_data: Path,
    tmp_path: Path,
) -> None:
    marker = tmp_path / "marker"
    # weights_only=False: this test made the file.
    state = torch.load(translator[0] / "checkpoint_last.pt", weights_only=False)
    attack(state, marker)
    torch.save(state, tmp_path / "bad.pt")
    # The stronger attack: a user who follows old advice for fairseq on torch 2.6.
    environment = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    flags = ("--path", tmp_path / "bad.pt", "--batch-size", 7)
    command = run_command("generate", parallel_data, *flags, env=environment, check=False)
    assert command.returncode != 0
    assert re.search(message, command.stderr), command.stderr
    assert not marker.exists()


def test_interactive_translates_what_is_piped_in(
    run_command: RunCommand, translator: tuple[Path, Any], parallel_data: Path
) -> None:
    path = translator[0] / "checkpoint_best.pt"
    flags = ("--path", path, "--source-lang", "src", "--target-lang", "tgt", "--beam", 2, "--max-len-b", 10)
    command = run_command("interactive", parallel_data, *flags, input="a b c\nd e\n")
    assert re.findall(r"^H-(\d+)", command.stdout, re.M) == ["0", "1"]


def test_eval_lm_scores_every_token(
    run_command: RunCommand, language_model: Path, lm_data: Path, text_folder: Path
) -> None:
    tokens = sum(len(line.split()) + 1 for line in text_folder.joinpath("test.src").read_text().splitlines())
    flags = ("--path", language_model, "--tokens-per-sample", 20, "--batch-size", 7, "--sample-break-mode", "eos")
    command = run_command("eval-lm", lm_data, *flags)
    assert f"Evaluated {tokens:,} tokens" in command.stdout + command.stderr


@pytest.mark.parametrize("name", ["generate", pytest.param("eval-lm", marks=pytest.mark.slow)])
def test_evaluation_in_bfloat16(name: str, run_command: RunCommand, request: pytest.FixtureRequest) -> None:
    """The scores of the same words, in other digits."""
    if name == "generate":
        path = request.getfixturevalue("translator")[0] / "checkpoint_best.pt"
        flags = (request.getfixturevalue("parallel_data"), "--score-reference", "--batch-size", 50)
    else:
        path = request.getfixturevalue("language_model")
        flags = (request.getfixturevalue("lm_data"), "--output-word-probs", "--tokens-per-sample", 20)
    commands = [run_command(name, *flags, "--path", path, *more) for more in ((), ("--bf16",))]
    exact, rounded = (
        [float(score) for score in re.findall(r"(?<=[\t\[ ])-\d+\.\d{4,}", command.stdout + command.stderr)]
        for command in commands
    )
    assert sum(exact) / len(exact) == pytest.approx(sum(rounded) / len(rounded), rel=0.003)
    assert sum(a != b for a, b in zip(exact, rounded, strict=True)) > len(exact) / 2 > 100


def test_a_model_trained_in_bfloat16_is_loaded_in_float32(lm_data: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model.pt", lm_data, *LANGUAGE_MODEL, "--tokens-per-sample", 20, "--bf16")
    model = TransformerLanguageModel.from_pretrained(str(tmp_path), "model.pt", str(lm_data))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_eval_lm_runs_no_code_of_its_overrides(
    run_command: RunCommand, language_model: Path, lm_data: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    flags = ("--path", language_model, "--tokens-per-sample", 20, "--model-overrides")
    command = run_command("eval-lm", lm_data, *flags, f"__import__('os').system('touch {marker}')", check=False)
    assert command.returncode != 0
    assert re.search(r"needs numbers, text, lists or dicts; got .*system.* nothing of it was run", command.stderr)
    assert not marker.exists()


# --- rarer, or several processes -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_of_hydra_train_and_eval_lm_of_both(run_command: RunCommand, lm_data: Path, tmp_path: Path) -> None:
    settings = (
        f"task=language_modeling task.data={lm_data} task.tokens_per_sample=20 criterion=cross_entropy optimizer=adam "
        "optimization.lr=[0.001] lr_scheduler=fixed dataset.batch_size=7 dataset.num_workers=0 "
        "optimization.max_epoch=1 "
        "model=transformer_lm model._name=tied_transformer_lm +model.sharing_method=l2-input "
        "model.share_decoder_input_output_embed=true +model.embedding_rank=8 model.decoder_layers=1 "
        "model.decoder_embed_dim=16 model.decoder_input_dim=16 model.decoder_output_dim=16 "
        "model.decoder_ffn_embed_dim=16 model.decoder_attention_heads=2 common.log_format=json common.seed=1,2"
    )
    places = (f"hydra.sweep.dir={tmp_path}", f"checkpoint.save_dir={tmp_path}/seed-${{common.seed}}")
    command = run_command("hydra-train", "-m", *settings.split(), *places, cwd=tmp_path, fresh=True)
    assert logged(command.stdout + command.stderr, "valid_loss")
    assert "shares input = output (weight tying) by method l2-input" in command.stdout + command.stderr
    paths = ":".join(str(tmp_path / f"seed-{seed}/checkpoint_last.pt") for seed in (1, 2))
    scored = run_command("eval-lm", lm_data, "--path", paths, "--tokens-per-sample", 20, "--batch-size", 7)
    assert "Perplexity" in scored.stdout + scored.stderr


@pytest.fixture(scope="module")
def one_process(run_command: RunCommand, parallel_data: Path) -> dict[str, list[float]]:
    """The losses of one process that sums two batches an update, the law for two processes."""
    flags = ("--batch-size", 10, "--max-epoch", 2, "--update-freq", 2, "--no-save")
    return losses(run_command("train", parallel_data, *TRANSLATION, *flags).stdout)


def losses(text: str) -> dict[str, list[float]]:
    """What a training run logged of its losses, norms of gradients and sizes."""
    return {name: logged(text, name) for name in ("train_loss", "train_gnorm", "train_bsz", "valid_loss")}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_two_processes_train_like_one_with_twice_the_batches(
    backend: str, run_command: RunCommand, parallel_data: Path, one_process: dict[str, list[float]]
) -> None:
    flags = ("--batch-size", 10, "--max-epoch", 2, "--no-save", "--distributed-world-size", 2, "--ddp-backend", backend)
    command = run_command("train", parallel_data, *TRANSLATION, *flags, fresh=True)
    assert losses(command.stdout) == one_process
    assert noise(command.stdout + command.stderr) == []


@pytest.mark.slow
def test_two_processes_started_by_hand(
    parallel_data: Path, one_process: dict[str, list[float]], run_command: RunCommand, tmp_path: Path
) -> None:
    address = f"file://{tmp_path}/store"
    flags = ("--batch-size", 10, "--max-epoch", 2, "--no-save", "--distributed-world-size", 2)
    flags += ("--distributed-init-method", address)

    def start(rank: int) -> Any:
        return run_command("train", parallel_data, *TRANSLATION, *flags, "--distributed-rank", rank, fresh=True)

    with ThreadPoolExecutor() as pool:
        commands = list(pool.map(start, (0, 1)))
    assert losses(commands[0].stdout) == one_process


@pytest.mark.slow
def test_two_machines_end_as_two_processes_of_one(run_command: RunCommand, parallel_data: Path, tmp_path: Path) -> None:
    """Two agents of torchrun with a process each, as two machines have them, meet at an address."""
    flags = (*TRANSLATION, "--batch-size", 10, "--max-epoch", 2, "--user-dir", USER_DIR, "--no-epoch-checkpoints")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    agents = ("--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}")
    train = ("-m", "fairseq_cli.train", parallel_data, *flags, "--save-dir", tmp_path / "machines")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: run_command("torch.distributed.run", *agents, *train, fresh=True), range(2)))
    one_machine = ("--save-dir", tmp_path / "processes", "--distributed-world-size", 2)
    run_command("train", parallel_data, *flags, *one_machine, fresh=True)
    assert_same_weights(tmp_path / "machines", tmp_path / "processes")


@pytest.mark.slow
def test_torchrun_trains_resumes_and_validates(
    run_command: RunCommand, parallel_data: Path, one_process: dict[str, list[float]], tmp_path: Path
) -> None:
    user_dir = ("--user-dir", Path(__file__).parent.parent / "fairseq_tiedemb")

    def torchrun(command: str, *args: Any) -> Any:
        launcher = ("--nproc_per_node", 2, "--standalone", "-m", f"fairseq_cli.{command}")
        return run_command("torch.distributed.run", *launcher, parallel_data, *user_dir, *args, fresh=True)

    flags = (*TRANSLATION, "--batch-size", 10, "--save-dir", tmp_path)
    first = torchrun("train", *flags, "--max-epoch", 1)
    assert losses(first.stdout) == {name: values[:1] for name, values in one_process.items()}
    second = torchrun("train", *flags, "--max-epoch", 2)
    assert "Loaded checkpoint" in second.stdout
    assert logged(second.stdout, "train_num_updates") == [10]
    # An odd number of batches: 7 of 3 sentences.
    flags = ("--task", "translation", "--path", tmp_path / "checkpoint_last.pt", "--batch-size", 3)
    one = run_command("validate", parallel_data, *flags)
    two = torchrun("validate", *flags, "--distributed-world-size", 2)
    for name in ("loss", "bsz"):
        assert set(shown(two.stdout, name)) == set(shown(one.stdout, name))
