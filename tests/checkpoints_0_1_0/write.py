"""Wrote the checkpoints beside it, by version 0.1.0 of the package. Kept to say how; no test runs it.

In a checkout of version 0.1.0 with this folder in it:

    OMP_NUM_THREADS=1 python -m tests.checkpoints_0_1_0.write

trains every model of `cases.py` for three updates with fairseq-train, writes its last checkpoint, the answers of
`cases.answers`, and those after two more updates. A checkpoint of a later version says nothing about old ones: if one
of these files does not load any more, mend the package, and leave the file as it is.
"""

import json
import lzma
import os
import random
import re
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import fairseq_cli.train
import numpy as np
import torch
from fairseq import checkpoint_utils, options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from .cases import CASES, FOLDER, RESUMED, UPDATES, answers, flags, machine

PACKAGE = FOLDER.parent.parent / "fairseq_tiedemb"
USER_DIR = ("--user-dir", PACKAGE.name)


def write_data() -> None:
    """Writes sixteen words, with the sentences of two languages; the target is the source reversed."""
    words = [f"w{index:02}" for index in range(16)]
    rng = random.Random(1)
    sides: dict[str, list[tuple[str, str]]] = {}
    for split, size in {"train": 60, "valid": 4}.items():
        sentences = [rng.choices(words, k=rng.randint(1, 6)) for _ in range(size)]
        sides[split] = [(" ".join(each), " ".join(reversed(each))) for each in sentences]
    dictionary = "".join(f"{word} {100 - index}\n" for index, word in enumerate(words))
    for kind, names in {"translation": ("dict.src.txt", "dict.tgt.txt"), "language_modeling": ("dict.txt",)}.items():
        folder = FOLDER / "data" / kind
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_text(dictionary)
        for split, pairs in sides.items():
            texts = dict(zip(("src", "tgt"), zip(*pairs, strict=True), strict=True))
            for language, lines in texts.items():
                name = f"{split}.src-tgt.{language}" if kind == "translation" else split
                if kind == "translation" or language == "src":
                    (folder / name).write_text("".join(line + "\n" for line in lines))


def train(name: str, folder: Path, updates: int) -> Path:
    """Trains a model, or trains it on, and returns its last checkpoint."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    arguments = [*flags(name, updates), *USER_DIR, "--save-dir", str(folder)]
    parser = options.get_training_parser()
    fairseq_cli.train.main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments)))
    return folder / "checkpoint_last.pt"


def write(name: str) -> dict[str, np.ndarray]:
    """Writes one checkpoint; returns its answers, and the log-probabilities of the model when it was trained on."""
    folder = Path(name)
    path = train(name, folder, UPDATES)
    content = path.read_bytes()
    paths = re.findall(rb"/(?:home|root|tmp|usr|work|mnt|Users)/[a-z/.]*", content)
    assert all(path.startswith(b"/tmp/plasma") for path in paths), (name, paths)  # a default of fairseq
    (FOLDER / f"{name}.pt.xz").write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    found = answers(path)
    resumed = answers(train(name, folder, RESUMED))
    return {**found, "resumed_log_p": resumed["log_p"]}


def main() -> None:
    torch.set_num_threads(1)
    write_data()
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copytree(FOLDER / "data", "data")
        os.symlink(PACKAGE, PACKAGE.name)
        utils.import_user_module(SimpleNamespace(user_dir=PACKAGE.name))
        expected = {f"{name}/{key}": value for name in CASES for key, value in write(name).items()}
        os.chdir(here)
    np.savez_compressed(FOLDER / "expected.npz", **expected)
    (FOLDER / "machine.json").write_text(json.dumps(machine(), indent=2) + "\n")


if __name__ == "__main__":
    main()
