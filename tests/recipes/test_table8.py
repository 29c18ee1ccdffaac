"""The recipes of table 8, on WMT and on Tatoeba, and of table 1: commands, refusals, whole runs on a few lines."""

import json
import re
from pathlib import Path

import pytest
from fairseq import options

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .corpora import real_pairs
from .shell import RECIPES, SHARED_DATA, command_of, dry_run, needs_sacremoses, option, refusal, run_recipe

WMT, TATOEBA = "train-table8-dl4mt.sh", "train-table8-tatoeba.sh"
CORPORA = {"en-fr": "wmt14-enfr", "en-de": "wmt15-ende"}
PRESETS = {"untied": "dl4mt", "wt": "dl4mt_wt", "twwt": "dl4mt_twwt"}


def prepared(folder: Path) -> Path:
    for corpus in (*CORPORA.values(), "tatoeba-de", "tatoeba-es", "tatoeba-fr"):
        (folder / corpus / "bin").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("row", PRESETS)
@pytest.mark.parametrize("pair", CORPORA)
def test_the_commands_of_a_row(pair: str, row: str, tmp_path: Path) -> None:
    commands = dry_run(WMT, pair, row, RUNS=prepared(tmp_path), GPUS=4)
    train = command_of(commands, "fairseq-train")
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    # Three-way tying alone needs one dictionary; the others have the paper's two.
    data = f"{tmp_path}/{CORPORA[pair]}/{'joint' if row == 'twwt' else 'bin'}"
    assert (args.data, args.arch, args.source_lang, args.target_lang) == (data, PRESETS[row], "en", pair[3:])
    # The sizes of the paper come with the preset.
    assert not any(word.startswith(("--encoder-", "--decoder-")) for word in train)
    assert (args.optimizer, args.adadelta_rho, args.adadelta_eps, args.lr) == ("adadelta", 0.95, 1e-6, [1.0])
    assert (args.batch_size, args.distributed_world_size, args.fp16, args.max_update) == (20, 4, True, 300_000)
    assert (args.sentence_avg, args.clip_norm, args.label_smoothing) == (True, 1.0, 0.0)
    assert (args.max_source_positions, args.max_target_positions) == (50, 50)
    translated = [words for words in commands if words[0] == "fairseq-generate"]
    splits = ["valid", "test"] + ["test1"] * (pair == "en-de")
    assert [option(words, "--gen-subset") for words in translated] == splits
    assert all("1024" in option(words, "--model-overrides") and words[1] == data for words in translated)


def test_the_header_and_the_table_have_the_papers_results() -> None:
    header = (RECIPES / WMT).read_text().partition("source")[0]
    rows = {row["name"]: row["paper"] for row in json.loads((RECIPES / "tables/table8.json").read_text())["rows"]}
    for row in PRESETS:
        line = next(line for line in header.splitlines() if line.startswith(f"#   {row} "))
        found = [float(number) for number in re.findall(r"\d+\.\d\d", line)]
        assert found == [rows[f"{pair},{row}"][split] for pair in CORPORA for split in ("valid", "test")]
        assert line.split()[-1] == PRESETS[row]


@pytest.mark.parametrize(
    ("pair", "archives"),
    [
        ("en-fr", ["bitexts.tgz", "dev+test.tgz"]),
        ("en-de", ["de-en.tgz", "training-parallel-commoncrawl.tgz", "training-parallel-nc-v10.tgz"]),
    ],
)
def test_the_corpus_is_prepared_where_it_is_missing(pair: str, archives: list[str], tmp_path: Path) -> None:
    commands = dry_run(WMT, pair, "wt", RUNS=tmp_path)
    assert [words[-1].rpartition("/")[2] for words in commands if words[0] == "curl"] == archives
    learn = next(words for words in commands if words[:2] == ["subword-nmt", "learn-bpe"])
    assert option(learn, "--symbols") == "89500"
    joint, apart = (words for words in commands if words[0] == "fairseq-preprocess")
    assert ("--joined-dictionary" in joint, "--joined-dictionary" in apart) == (True, False)
    folder = f"{tmp_path}/{CORPORA[pair]}"
    tests = ["test"] + ["test1"] * (pair == "en-de")
    assert option(joint, "--testpref") == ",".join(f"{folder}/bpe/{name}" for name in tests)
    # What tells that the corpus is there appears last.
    moved = [words[2] for words in commands if words[0] == "mv" and words[1].endswith(".partial")]
    assert moved[-2:] == [f"{folder}/joint", f"{folder}/bin"]


def test_local_archives(tmp_path: Path) -> None:
    commands = dry_run("prepare-wmt15-ende.sh", RUNS=tmp_path, FROM="/a/folder")
    assert not [words for words in commands if words[0] == "curl"]
    unpacked = [words[2] for words in commands if words[1].endswith("unpack.py")]
    assert unpacked[0] == "/a/folder/de-en.tgz"


@pytest.mark.parametrize("source", ["fr", "de", "es"])
@pytest.mark.parametrize("row", PRESETS)
def test_the_commands_of_a_small_row(row: str, source: str, tmp_path: Path) -> None:
    commands = dry_run(TATOEBA, f"{source}-en", row, RUNS=prepared(tmp_path), SEED=3, UPDATES=200)
    train = command_of(commands, "fairseq-train")
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert args.arch == PRESETS[row].replace("dl4mt", "lstm_nmt")
    assert (args.data, str(args.cell), args.encoder_hidden_size) == (f"{tmp_path}/tatoeba-{source}/bin", "gru", 256)
    assert args.encoder_embed_dim == args.decoder_embed_dim == args.decoder_out_embed_dim == 256
    assert (args.max_update, args.warmup_updates, args.seed) == (200, 10, 3)
    assert args.save_dir == f"{tmp_path}/tatoeba-{source}/gru-{row}-3-UPDATES-200"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([WMT, "en-de"], "needs PAIR and ROW; got 1 arguments"),
        ([WMT, "de-en", "wt"], "PAIR: needs en-fr or en-de; got de-en"),
        ([WMT, "en-de", "tied"], "ROW: needs untied, wt or twwt; got tied"),
        ([TATOEBA, "wt"], "needs PAIR and ROW; got 1 arguments"),
        ([TATOEBA, "en-de", "wt"], "PAIR: needs fr-en, de-en or es-en; got en-de"),
        ([TATOEBA, "de-en", "tied"], "ROW: needs untied, wt or twwt; got tied"),
    ],
)
def test_refused(command: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal(*command, RUNS=tmp_path)


def test_refused_gpus(tmp_path: Path) -> None:
    assert "GPUS: needs a number; got two" in refusal(WMT, "en-de", "wt", RUNS=prepared(tmp_path), GPUS="two")


def write_text(folder: Path, target: str) -> Path:
    """Writes the texts that stand for the archives: 400 real pairs, and 20 in each other set."""
    if target == "de":
        pairs = real_pairs("de", 460)
    else:
        files = [SHARED_DATA / f"multi30k/train.{language}" for language in ("fr", "en")]
        if not files[0].exists():
            pytest.skip(f"Multi30k is not at {files[0].parent}")
        pairs = list(zip(*(path.read_text().splitlines()[:460] for path in files), strict=True))
    folder.mkdir()
    for name, part in {"train": pairs[60:], "valid": pairs[:20], "test": pairs[20:40], "test1": pairs[40:60]}.items():
        for language, text in zip((target, "en"), zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in text))
    return folder


@pytest.mark.slow
@needs_sacremoses
@pytest.mark.parametrize(("pair", "row"), [("en-de", "twwt"), ("en-fr", "wt")])
def test_whole_recipe(pair: str, row: str, tmp_path: Path) -> None:
    source = write_text(tmp_path / "text", pair[3:])
    results = tmp_path / "results"
    variables = {"FROM": source, "RUNS": tmp_path / "runs", "RESULTS": results, "SMOKE": 1, "GPUS": 0}
    process = run_recipe(WMT, pair, row, **variables)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1].startswith("BLEU|")
    folder = tmp_path / f"runs/{CORPORA[pair]}-smoke"
    # Table 1's counts are those of the dictionaries.
    assert run_recipe("measure-table1.sh", CORPORA[pair], **variables).returncode == 0
    figures = json.loads((results / f"table1/{CORPORA[pair]}.json").read_text())["figures"]
    types = {
        language: {line.split()[0] for line in (folder / f"bin/dict.{language}.txt").read_text().splitlines()}
        for language in ("en", pair[3:])
    }
    types = {language: {each for each in words if "madeupword" not in each} for language, words in types.items()}
    source_types, target_types = types["en"], types[pair[3:]]
    assert {name: figure["value"] for name, figure in figures.items() if name != "shared"} == {
        "english": len(source_types - target_types),
        "other": len(target_types - source_types),
        "both": len(source_types & target_types),
    }
    assert (results / f"table8/{pair},{row}-1.json").exists()
    again = run_recipe(WMT, pair, row, **variables)
    assert again.returncode == 0, again.stderr
    assert "fairseq-preprocess" not in again.stdout
    assert "Loaded checkpoint" in again.stdout
    assert "begin training epoch" not in again.stdout


@pytest.mark.slow
@needs_sacremoses
def test_whole_small_recipe(tmp_path: Path) -> None:
    path = tmp_path / "deu.tsv"
    path.write_text("".join(f"{english}\t{german}\n" for german, english in real_pairs("de", 400)))
    process = run_recipe(TATOEBA, "de-en", "twwt", FROM=path, RUNS=tmp_path / "runs", SMOKE=1)
    assert process.returncode == 0, process.stderr
    assert len([line for line in process.stdout.splitlines() if line.startswith("BLEU|")]) == 2
