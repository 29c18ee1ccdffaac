"""Recipes for the tables of Liu et al. 2020: what they run (DRY_RUN=1), what they refuse, whole runs on a few lines."""

import re
from pathlib import Path

import pytest
from fairseq import options

from fairseq_tiedemb.sharing import SHARING_METHODS

from .corpora import real_pairs, write_iwslt, write_wmt
from .shell import RECIPES, command_of, dry_run, needs_sacremoses, option, refusal, run_recipe

TABLE_1 = "train-liu-table1-transformer-wmt16.sh"
TABLE_2 = "train-liu-table2-dynamicconv-wmt16.sh"
TABLE_3 = "train-liu-table3-transformer-iwslt14.sh"
TABLE_4 = "train-liu-table4-dynamicconv-iwslt14.sh"
# The paper's results by method.
PAPER = {
    TABLE_1: {"plain": 29.3, "l2-input": 29.9, "square-output": 29.4, "distance": 29.8, "cosine": 29.7},
    TABLE_2: {"plain": 29.7, "l2-input": 30.2, "square-output": 30.0, "distance": 29.8, "cosine": 29.9},
    TABLE_3: {"plain": 34.30, "l2-input": 35.00, "square-output": 35.16, "distance": 35.09, "cosine": 34.92},
    TABLE_4: {"plain": 34.52, "l2-input": 34.86, "square-output": 34.74, "distance": 34.88, "cosine": 34.93},
}
# Script and language, corpus, architecture, what is shared, (tokens of a batch, batches of an update), (beam, penalty).
RUNS = [
    ((TABLE_1,), "wmt16-ende", "tied_transformer_vaswani_wmt_en_de_big", "all", (3584, 128), ("4", "0.6")),
    ((TABLE_2,), "wmt16-ende", "tied_lightconv_wmt_en_de_big", "all", (3584, 128), ("5", "0.5")),
    ((TABLE_3, "de"), "iwslt14-de", "tied_transformer_iwslt_de_en", "all", (4096, 1), ("5", "1")),
    ((TABLE_3, "es"), "iwslt14-es", "tied_transformer_iwslt_de_en", "decoder", (4096, 1), ("5", "1")),
    ((TABLE_3, "ro"), "iwslt14-ro", "tied_transformer_iwslt_de_en", "decoder", (4096, 1), ("5", "1")),
    ((TABLE_4,), "iwslt14-de", "tied_lightconv_iwslt_de_en", "all", (4000, 1), ("4", "1")),
]
PARAMETERS = ("script", "corpus", "arch", "shared", "batch", "beam")


def prepared(folder: Path) -> Path:
    for corpus in ("wmt16-ende", "iwslt14-de", "iwslt14-es", "iwslt14-ro"):
        (folder / corpus / "bin").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(PARAMETERS, RUNS)
def test_commands(
    script: tuple[str, ...],
    corpus: str,
    arch: str,
    shared: str,
    batch: tuple[int, int],
    beam: tuple[str, str],
    tmp_path: Path,
) -> None:
    commands = dry_run(*script, "cosine", RUNS=prepared(tmp_path), GPUS=8)
    train = command_of(commands, "fairseq-train")
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert args.data == f"{tmp_path}/{corpus}/bin"
    assert (args.arch, args.sharing_method, args.criterion) == (arch, "cosine", "tied_cross_entropy")
    assert (args.share_all_embeddings, args.share_decoder_input_output_embed) == (
        (True, args.share_decoder_input_output_embed) if shared == "all" else (False, True)
    )
    assert (args.label_smoothing, args.dropout, args.adam_betas) == (0.1, 0.3, "(0.9, 0.98)")
    assert args.weight_decay == (0 if "wmt" in corpus else 1e-4)
    tokens, batches = batch
    assert (args.max_tokens, args.update_freq, args.fp16) == (tokens, [max(1, batches // 8)], True)
    # The sizes of the paper come with the architecture.
    sizes = (args.encoder_embed_dim, args.encoder_ffn_embed_dim, args.encoder_attention_heads)
    assert sizes == ((1024, 4096, 16) if "wmt" in corpus else (512, 1024, 4))
    assert (args.encoder_layers, args.decoder_layers) == (7 if "lightconv" in arch else 6, 6)

    generate = command_of(commands, "fairseq-generate")
    assert (option(generate, "--beam"), option(generate, "--lenpen")) == beam
    averages = [words for words in commands if "average" in words]
    checkpoint = option(generate, "--path").rpartition("/")[2]
    if "wmt" in corpus:
        assert option(averages[0], "--num-epoch-checkpoints") == option(train, "--keep-last-epochs") == "10"
        assert (checkpoint, option(generate, "--post-process")) == ("average.pt", "sentencepiece")
        assert any("##AT##-##AT##" in word for words in commands for word in words)
    else:
        assert (checkpoint, option(generate, "--post-process"), averages) == ("checkpoint_best.pt", "subword_nmt", [])
    assert option(commands[-1], "--tokenize") == "none"


@pytest.mark.parametrize("script", PAPER)
def test_the_header_names_every_method_and_its_result(script: str) -> None:
    assert set(PAPER[script]) <= set(SHARING_METHODS)
    header = (RECIPES / script).read_text().partition("source")[0]
    for method, bleu in PAPER[script].items():
        line = next(line for line in header.splitlines() if line.startswith(f"#   {method} "))
        assert re.search(rf" {bleu:.1f}0?\b| {bleu:.2f}\b", line)
    for word in ("Liu, Zhai & Chen (2020), table", "Hardware", "Expected", "Check"):
        assert word in header


def test_methods_differ_in_nothing_else(tmp_path: Path) -> None:
    def rest(method: str) -> str:
        return str(dry_run(TABLE_2, method, RUNS=tmp_path)).replace(method, "METHOD")

    assert rest("plain") == rest("l2-input") == rest("distance")


@pytest.mark.parametrize(
    ("gpus", "updates"), [(None, "128"), ("0", "128"), ("1", "128"), ("8", "16"), ("16", "8"), ("6", "22")]
)
def test_a_batch_is_spread_over_gpus(gpus: str | None, updates: str, tmp_path: Path) -> None:
    variables = {} if gpus is None else {"GPUS": gpus}
    train = command_of(dry_run(TABLE_1, "plain", RUNS=prepared(tmp_path), **variables), "fairseq-train")
    assert option(train, "--update-freq") == updates
    assert option(train, "--distributed-world-size") == str(max(1, int(gpus or 0)))
    assert ("--fp16" in train, "--cpu" in train) == (gpus not in (None, "0"), gpus == "0")


def test_settings_from_variables(tmp_path: Path) -> None:
    variables = {"SEED": 7, "UPDATES": 123, "PLUGIN": "/a/plugin"}
    train = command_of(dry_run(TABLE_4, "plain", RUNS=prepared(tmp_path), **variables), "fairseq-train")
    assert option(train, "--seed") == "7"
    assert option(train, "--max-update") == "123"
    assert option(train, "--user-dir") == "/a/plugin"


def test_corpora_are_prepared_where_they_are_missing(tmp_path: Path) -> None:
    wmt = dry_run(TABLE_1, "plain", RUNS=tmp_path)
    addresses = [words[-1] for words in wmt if words[0] == "curl"]
    assert [address.rpartition("/")[2] for address in addresses] == [
        "de-en.tgz",
        "training-parallel-commoncrawl.tgz",
        "training-parallel-nc-v11.tgz",
    ]
    assert "--joined-dictionary" in command_of(wmt, "fairseq-preprocess")
    german = dry_run(TABLE_3, "de", "plain", RUNS=tmp_path)
    spanish = dry_run(TABLE_3, "es", "plain", RUNS=tmp_path, FROM="/a/es-en.tgz")
    assert "--joined-dictionary" in command_of(german, "fairseq-preprocess")
    assert "--joined-dictionary" not in command_of(spanish, "fairseq-preprocess")
    # Only German has a mirror, and takes its validation set from the training text.
    assert [words[0] for words in german].count("curl") == 1
    assert [words[0] for words in spanish].count("curl") == 0
    assert [words[0] for words in german].count("awk") == 4
    assert [words[0] for words in spanish].count("awk") == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([TABLE_1], "needs one METHOD; got 0 arguments"),
        ([TABLE_2, "cosinus"], "METHOD: needs plain, .* or cosine; got cosinus"),
        ([TABLE_3, "cosine"], "needs LANGUAGE METHOD; got 1 arguments"),
        ([TABLE_3, "fr", "cosine"], "LANGUAGE: needs de, es or ro; got fr"),
        ([TABLE_4, "wt"], "METHOD: needs .*; got wt"),
        ([TABLE_4], "needs one METHOD; got 0 arguments"),
        (["prepare-iwslt14.sh"], "needs one LANGUAGE; got 0 arguments"),
        (["prepare-iwslt14.sh", "fr"], "LANGUAGE: needs de, es or ro; got fr"),
        (["prepare-iwslt14.sh", "es"], "FROM: needs the file es-en.tgz, which no mirror has; got none"),
    ],
)
def test_refused(command: list[str], message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(*command, RUNS=tmp_path))


def test_refused_gpus(tmp_path: Path) -> None:
    assert "GPUS: needs a number; got two" in refusal(TABLE_4, "plain", RUNS=prepared(tmp_path), GPUS="two")


def real_iwslt(folder: Path, language: str) -> Path:
    """An archive with 300 pairs of real text, and 100 in the sets."""
    pairs = real_pairs(language, 400)
    return write_iwslt(folder, language, pairs[:300], talks=pairs[300:])


def sentences(folder: Path, language: str) -> dict[str, list[str]]:
    return {
        split: (folder / f"text/{split}.{language}").read_text().splitlines() for split in ("train", "valid", "test")
    }


@pytest.mark.slow
@needs_sacremoses
def test_whole_iwslt_german(tmp_path: Path) -> None:
    archive = real_iwslt(tmp_path, "de")
    variables = {"FROM": archive, "RUNS": tmp_path / "runs", "SMOKE": 1, "GPUS": 0}
    process = run_recipe(TABLE_3, "de", "square-output", **variables)
    assert process.returncode == 0, process.stderr
    assert f"{archive}: no SHA-256 of it is published; this one has " in process.stderr
    assert process.stdout.splitlines()[-1].startswith("BLEU|")
    folder = tmp_path / "runs/iwslt14-de-smoke"
    lines = sentences(folder, "de")
    kept = len(lines["train"]) + len(lines["valid"])
    # Some pairs have a ratio that is too large; every 23rd of the others is for validation; all five sets are the test.
    assert 200 < kept <= 300
    assert (len(lines["valid"]), len(lines["test"])) == (kept // 23, 100)
    assert len((folder / "transformer-square-output-1/test.hyp").read_text().splitlines()) == 100

    process = run_recipe(TABLE_4, "cosine", **variables)
    assert process.returncode == 0, process.stderr
    assert "fairseq-preprocess" not in process.stdout, "the corpus is there"
    assert (folder / "dynamicconv-cosine-1/test.hyp").exists()


@pytest.mark.slow
@needs_sacremoses
@pytest.mark.parametrize("language", ["es", "ro"])
def test_whole_iwslt_other(language: str, tmp_path: Path) -> None:
    archive = real_iwslt(tmp_path, language)
    process = run_recipe(TABLE_3, language, "distance", FROM=archive, RUNS=tmp_path / "runs", SMOKE=1, GPUS=0)
    assert process.returncode == 0, process.stderr
    lines = sentences(tmp_path / f"runs/iwslt14-{language}-smoke", language)
    # One set for validation, three for the test.
    assert (len(lines["valid"]), len(lines["test"])) == (20, 60)
    assert 200 < len(lines["train"]) <= 300
    assert all(line == line.lower() for split in lines.values() for line in split)


@pytest.mark.slow
@needs_sacremoses
@pytest.mark.parametrize("script", [TABLE_1, TABLE_2])
def test_whole_wmt(script: str, tmp_path: Path) -> None:
    write_wmt(tmp_path / "text", real_pairs("de", 340))
    variables = {"FROM": tmp_path / "text", "RUNS": tmp_path / "runs", "SMOKE": 1, "GPUS": 0}
    process = run_recipe(script, "l2-input", **variables)
    assert process.returncode == 0, process.stderr
    scores = [line for line in process.stdout.splitlines() if line.startswith("BLEU|")]
    assert len(scores) == 2
    assert "tok:13a" in scores[0]
    assert "tok:none" in scores[1]
    folders = [path for path in (tmp_path / "runs/wmt16-ende-smoke").iterdir() if path.name.endswith("l2-input-1")]
    assert (folders[0] / "average.pt").exists()
    assert "▁" not in (folders[0] / "test.hyp").read_text()
