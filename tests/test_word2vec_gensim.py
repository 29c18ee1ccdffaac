"""Skip-gram beside gensim's, on the same text with the same options."""

import sys
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import data_utils

from fairseq_tiedemb.tasks._pairs import whole_sentences

from .conftest import RunCommand
from .recipes.shell import RECIPES, SHARED_DATA
from .vectors.common import exact_spearman

sys.path.insert(0, str(RECIPES))
from imdb_text import reviews

REVIEWS = 6000  # 1.4 million words
EPOCHS = 3
PAIRS = {"EN-MEN-TR-3k": 1800, "EN-MTurk-771": 400, "EN-SIMLEX-999": 600}


def similarities(rows: np.ndarray, words: list[str], name: str) -> tuple[float, int]:
    place = dict(zip(words, rows / np.linalg.norm(rows, axis=1, keepdims=True), strict=True))
    gold, found = [], []
    for line in (SHARED_DATA / f"wordsim/{name}.txt").read_text().splitlines():
        first, second, score = line.lower().split()[:3]
        if first in place and second in place:
            gold.append(float(score))
            found.append(float(place[first] @ place[second]))
    return exact_spearman(gold, found), len(gold)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first reviews of the archive, which is not unpacked any further."""
    archive = SHARED_DATA / "archives/aclImdb.tar.xz"
    if not archive.exists():
        pytest.skip(f"the reviews are not at {archive}")
    folder = tmp_path_factory.mktemp("reviews")
    (folder / "all").mkdir()
    with tarfile.open(archive, "r|xz") as tar:
        members = (member for member in tar if member.isfile() and "/train/" in member.name)
        for member in islice(members, REVIEWS):
            (folder / "all" / member.name.replace("/", "-")).write_bytes(tar.extractfile(member).read())
    lines = [f"{line}\n" for line in reviews(folder / "all")]
    assert len(lines) == REVIEWS
    (folder / "text").write_text("".join(lines))
    return folder / "text"


@pytest.mark.slow
@pytest.mark.parametrize("noise_for", ["block", "pair"])
@pytest.mark.parametrize("tied", [False, True])
def test_tables_are_gensims(tied: bool, noise_for: str, text: Path, run_command: RunCommand, tmp_path: Path) -> None:
    """Their similarities and mean norms. It does not compare values: gensim updates after each pair, in another order.

    Tied rows differ more in norm, with noise of each pair's own, too (0.93 of gensim's).
    """
    gensim: Any = pytest.importorskip("gensim.models", reason="gensim is not installed")
    peer = gensim.Word2Vec(sg=1, vector_size=100, window=5, negative=5, min_count=5, sample=1e-3, workers=1, seed=1)
    peer.build_vocab(corpus_file=str(text))
    if tied:
        peer.syn1neg = peer.wv.vectors
    sizes = {"total_words": peer.corpus_total_words, "total_examples": peer.corpus_count}
    peer.train(corpus_file=str(text), **sizes, epochs=EPOCHS)
    prefixes = ("--trainpref", text, "--destdir", tmp_path)
    run_command("preprocess", "--only-source", "--padding-factor", 1, "--thresholdsrc", 5, *prefixes)
    flags = ("--arch", "word2vec_skipgram", "--max-epoch", EPOCHS, "--disable-validation", "--cpu")
    flags += ("--noise-for", noise_for, *(("--share-decoder-input-output-embed",) if tied else ()))
    # The learning rate reaches 0 with the last epoch's last update.
    sentences = data_utils.load_indexed_dataset(str(tmp_path / "train"), None, "mmap")
    updates = EPOCHS * (len(whole_sentences(np.cumsum(sentences.sizes), 2000)) - 1)
    steps = ("--max-tokens", 2000, "--max-update", updates, "--no-epoch-checkpoints", "--save-dir", tmp_path)
    run_command("train", tmp_path, *flags, *steps, timeout=3600)
    model = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["model"]
    words = [line.rpartition(" ")[0] for line in (tmp_path / "dict.txt").read_text().splitlines()]
    assert set(words) == set(peer.wv.index_to_key)
    tables = {"decoder.embed_tokens.weight": peer.wv.vectors, "decoder.output.weight": peer.syn1neg}
    for key in list(tables)[: 1 if tied else 2]:
        rows, theirs = model[key][4:].numpy(), tables[key]
        ratio = np.linalg.norm(rows, axis=1).mean() / np.linalg.norm(theirs, axis=1).mean()
        print(f"{key}: mean norm {ratio:.3f} of gensim's")
        assert abs(ratio - 1) <= (0.15 if tied else 0.05)
        for name, at_least in PAIRS.items():
            rho, count = similarities(rows, words, name)
            others, _ = similarities(theirs, peer.wv.index_to_key, name)
            print(f"{name}: {rho:.3f}, gensim {others:.3f} ({count} pairs)")
            assert count >= at_least
            assert abs(rho - others) <= 0.03
