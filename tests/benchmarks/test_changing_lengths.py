"""Updates of the whole fairseq-train on sentences of all lengths: a small Transformer of ours, and fairseq's.

Batches of a real text differ in their number of rows and words, and libraries prepare a kernel for each new shape of a
product. Benchmarks of one batch cannot see what that costs; here each contestant is a process of its own. What its
start takes is measured once, so ranges are those of the long runs.
"""

import random
import statistics
import sys
from pathlib import Path

import pytest

from ..conftest import USER_DIR, run
from .conftest import Record, cpu_seconds
from .interleave import SHIPPED, ratio
from .language_model_peers import VOCABULARY, text

SENTENCES, SHORTEST, LONGEST, MEAN = 20_000, 2, 60, 12
FEW, MANY = 50, 150
PLUGIN = ("--user-dir", str(USER_DIR))
OURS = (*PLUGIN, "--arch", "tied_transformer", "--criterion", "tied_cross_entropy")
THEIRS = ("--arch", "transformer", "--criterion", "label_smoothed_cross_entropy")
FAIRSEQ = "fairseq"
# Those of recipes/train-liu-small.sh.
SIZES = tuple(
    word
    for side, layers in (("encoder", "4"), ("decoder", "2"))
    for flag, value in (("embed-dim", "128"), ("ffn-embed-dim", "512"), ("layers", layers), ("attention-heads", "4"))
    for word in (f"--{side}-{flag}", value)
)
TRAINING = ("--share-all-embeddings", "--label-smoothing", "0.1", "--optimizer", "adam", "--lr", "1e-4", "--cpu")
TRAINING += ("--max-tokens", "1000", "--required-batch-size-multiple", "1", "--num-workers", "0")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Binarised sentences of 10,000 word types in two languages, short ones more often than long ones."""
    folder = tmp_path_factory.mktemp("pairs")
    numbers = random.Random(1)
    lengths = [SHORTEST + int(numbers.expovariate(1 / (MEAN - SHORTEST))) for _ in range(SENTENCES)]
    for language in ("de", "en"):
        with open(folder / f"train.{language}", "w") as file:
            for length, words in zip(lengths, text(SENTENCES, LONGEST).tolist(), strict=True):
                its_length = max(SHORTEST, length + numbers.randint(-2, 2))
                file.write(" ".join(f"w{word}" for word in words[:its_length]) + "\n")
    languages = ("--source-lang", "de", "--target-lang", "en", "--joined-dictionary", "--nwordssrc", VOCABULARY)
    run("preprocess", *languages, "--trainpref", folder / "train", "--destdir", folder / "bin")
    return folder / "bin"


@pytest.mark.benchmark
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_update(pairs: Path, precision: str, record: Record) -> None:
    half = ("--bf16",) if precision == "bf16" else ()
    flags = {"ours": (*OURS, *half), FAIRSEQ: (*PLUGIN, *THEIRS, *half), FAIRSEQ + SHIPPED: THEIRS}
    common = (*SIZES, *TRAINING, "--no-save", "--disable-validation", "--max-update")
    commands = {
        name: [sys.executable, "-m", "fairseq_cli.train", str(pairs), *its_flags, *common]
        for name, its_flags in flags.items()
    }
    begun = {name: cpu_seconds([*command, str(FEW)]) for name, command in commands.items()}
    seconds: dict[str, list[float]] = {name: [] for name in flags}
    for _ in range(3):
        for name, command in commands.items():
            seconds[name].append((cpu_seconds([*command, str(MANY)]) - begun[name]) / (MANY - FEW))
    for name, times in seconds.items():
        print(f"  {name:24s} {statistics.median(times):7.3f} CPU s an update, {ratio(seconds, name, 'ours')} of ours")
    over = {"fairseq": FAIRSEQ, "fairseq-shipped": FAIRSEQ + SHIPPED}
    figures = {column: ratio(seconds, "ours", peer) for column, peer in over.items()}
    record("speed-transformer", "update" if precision == "float32" else "update,bf16", figures)
