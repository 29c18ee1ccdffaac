"""Preparing PTB and BBC news: runs on small corpora, files that are refused, what is left when a step fails."""

import gzip
import hashlib
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import write_ptb, write_stories, write_text8

from .shell import RECIPES, SHARED_DATA, run_recipe, write_programs

# Stands for fairseq-preprocess, which takes 8 seconds: counts as it does, and fails in the middle if told to.
PREPROCESS = """#!/usr/bin/env bash
while (($#)); do
    case $1 in
        --destdir) folder=$2 ;;
        --*pref) files+=("$2") ;;
    esac
    shift
done
mkdir -p "$folder"
tr ' ' '\\n' <"${files[0]}" | grep -v '<unk>' | grep . | sort -u >"$folder/dict.txt"
[[ -z ${FAIL_IN_THE_MIDDLE:-} ]] || exit 9
for file in "${files[@]}"; do
    echo "[None] $file: $(wc -l <"$file") sents, $(($(wc -w <"$file") + $(wc -l <"$file"))) tokens, 0.0% replaced"
done >"$folder/preprocess.log"
"""


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH on which fairseq-preprocess is a short script."""
    return write_programs(tmp_path / "programs", {"fairseq-preprocess": PREPROCESS})


@pytest.fixture
def ptb(tmp_path: Path) -> dict[str, object]:
    """The variables for a small corpus in a local folder."""
    return {**write_ptb(tmp_path / "source"), "RUNS": tmp_path / "runs"}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_ptb_with_the_real_command(ptb: dict[str, object], tmp_path: Path) -> None:
    run_recipe("prepare-ptb.sh", **ptb)
    folder = tmp_path / "runs/ptb"
    assert {path.name for path in folder.iterdir()} == {"text", "bin"}
    for split in ("train", "valid", "test"):
        assert (folder / f"text/{split}.txt").read_bytes() == (tmp_path / f"source/ptb.{split}.txt").read_bytes()
        assert (folder / f"bin/{split}.bin").exists()
    words = {line.split()[0] for line in (folder / "bin/dict.txt").read_text().splitlines()}
    assert not words & {"<unk>", "madeupword0000"}, "<unk> is fairseq's own, and nothing was added"


def test_a_mirror_and_its_second_run(ptb: dict[str, object], programs: str, tmp_path: Path) -> None:
    variables = {**ptb, "FROM": f"file://{ptb['FROM']}", "PATH": programs}
    downloads = tmp_path / "runs/download"
    downloads.mkdir(parents=True)
    # What an interrupted download leaves: the beginning of the file.
    source = tmp_path / "source/ptb.train.txt"
    (downloads / "ptb.train.txt.part").write_bytes(source.read_bytes()[:100])
    run_recipe("prepare-ptb.sh", **variables)
    assert (downloads / "ptb.train.txt").read_bytes() == source.read_bytes()
    assert not list(downloads.glob("*.part"))
    assert "curl" not in run_recipe("prepare-ptb.sh", **variables).stdout
    other = shutil.copytree(tmp_path / "source", tmp_path / "other")
    assert run_recipe("prepare-ptb.sh", **{**variables, "FROM": f"file://{other}"}).stdout.count("curl") == 3


TEXTS_OF = {
    "ptb": ("ptb.train.txt", "FROM: needs the file {place}/ptb.train.txt; found none"),
    "multi30k": ("train.lc.norm.tok.de", "FROM={place}: needs train.lc.norm.tok.de or train.de; found neither"),
}


@pytest.mark.parametrize("corpus", TEXTS_OF)
@pytest.mark.parametrize("place", ["/typo", str(Path(__file__).parent), "file:///nowhere"])
def test_a_wrong_place_leaves_the_corpus(corpus: str, place: str, programs: str, tmp_path: Path) -> None:
    file, message = (text.format(place=place) for text in TEXTS_OF[corpus])
    old = tmp_path / "runs" / corpus / "bin/dict.txt"
    old.parent.mkdir(parents=True)
    old.touch()
    run = run_recipe(f"prepare-{corpus}.sh", FROM=place, RUNS=tmp_path / "runs", PATH=programs, status=1)
    assert re.search(f"{place}/{file}: curl stopped with status 37" if "://" in place else message, run.stderr)
    assert old.exists()


@pytest.mark.parametrize("script", ["prepare-wmt14-enfr.sh", "prepare-wmt15-ende.sh", "prepare-wmt16-ende.sh"])
@pytest.mark.parametrize("text", ["", "train.en"], ids=["archives", "text"])
def test_a_wrong_place_leaves_the_corpus_of_wmt(script: str, text: str, programs: str, tmp_path: Path) -> None:
    (tmp_path / "work/bin").mkdir(parents=True)
    if text:
        (tmp_path / text).touch()
    process = run_recipe(script, FROM=tmp_path, WORK=tmp_path / "work", PATH=programs, status=1)
    archive = "bitexts.tgz" if "enfr" in script else "de-en.tgz"
    assert f"FROM: needs the file {tmp_path}/{'train.' if text else archive}" in process.stderr
    assert (tmp_path / "work/bin").exists()


def test_a_made_up_corpus_is_not_taken_for_the_real_one(programs: str, tmp_path: Path) -> None:
    given = {"WORK": tmp_path / "work", "PATH": programs}
    run_recipe("prepare-ptb.sh", SMOKE=1, **given)
    process = run_recipe("train-table6-small.sh", "kn5", **given, status=1)
    assert f"WORK: needs a folder without a corpus of SMOKE=1; got {tmp_path}/work. Use" in process.stderr
    assert "kn5" in run_recipe("train-table6-small.sh", "kn5", SMOKE=1, DRY_RUN=1, **given).stdout


def test_a_second_source(ptb: dict[str, object], programs: str, tmp_path: Path) -> None:
    """Where the first fails, and with the same checksums; the start of a file of the first is not gone on with."""
    variables = {**ptb, "FROM": "file:///nowhere", "SECOND": f"file://{ptb['FROM']}", "PATH": programs}
    downloads = tmp_path / "runs/download"
    downloads.mkdir(parents=True)
    (downloads / "ptb.train.txt.part").write_text("another text\n")
    process = run_recipe("prepare-ptb.sh", **variables)
    assert f"file:///nowhere/ptb.train.txt: curl stopped with status 37; from {variables['SECOND']}" in process.stderr
    assert (downloads / "ptb.train.txt").read_bytes() == (tmp_path / "source/ptb.train.txt").read_bytes()


def test_any_of_several_checksums_will_do(tmp_path: Path) -> None:
    """SHA-256 or SHA-1."""
    (tmp_path / "text8.zip").write_bytes(b"no archive")
    sums = [sha256(tmp_path / "text8.zip"), hashlib.sha1(b"no archive").hexdigest()]
    for given in (sums[0], sums[1], f"{'0' * 64} {sums[1]}", f"{'0' * 40} {sums[0]}"):
        variables = {"SHA256": given, "RUNS": tmp_path / "runs"}
        process = run_recipe("prepare-text8.sh", FROM=tmp_path / "text8.zip", status=1, **variables)
        assert "needs the checksum" not in process.stderr
    wrong = {"SHA256": f"{'0' * 64} {'1' * 40}", "RUNS": tmp_path / "runs"}
    process = run_recipe("prepare-text8.sh", FROM=tmp_path / "text8.zip", **wrong, status=1)
    assert f"needs the checksum {'0' * 64} or {'1' * 40}; got {sums[1]}." in process.stderr


def test_a_wrong_download_is_not_gone_on_with(ptb: dict[str, object], programs: str, tmp_path: Path) -> None:
    (tmp_path / "source/ptb.valid.txt").write_text("another text\n")
    process = run_recipe("prepare-ptb.sh", **{**ptb, "FROM": f"file://{ptb['FROM']}", "PATH": programs}, status=1)
    found = sha256(tmp_path / "source/ptb.valid.txt")
    assert re.search(rf"download/ptb.valid.txt: needs the checksum \w{{64}}; got {found}\. Remove it", process.stderr)
    assert not (tmp_path / "runs/ptb/bin").exists()


def change(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("damage", "variables", "message"),
    [
        (lambda source: change(source / "ptb.train.txt", " N", " M"), {}, r"needs the checksum \w{64}; got \w+"),
        (lambda source: (source / "ptb.test.txt").unlink(), {}, "FROM: needs the file .*/ptb.test.txt; found none"),
        (lambda source: change(source / "sha256", "ptb.train", "x"), {}, "CHECKSUMS: needs a line for ptb.train.txt"),
        (None, {"COUNTS": "1 2 3"}, "COUNTS: needs tokens of train, valid and test, and types; got 1 2 3."),
        (None, {"CHECKSUMS": "/nowhere"}, "CHECKSUMS: needs a file; found none at /nowhere"),
        (None, {"FROM": "file:///nowhere"}, "file:///nowhere/ptb.train.txt: curl stopped with status 37"),
        (None, {"COUNTS": "7 {1} {2} {3}"}, r"train: needs 7 tokens; got \d+\."),
        (None, {"COUNTS": "{0} {1} 7 {3}"}, r"test: needs 7 tokens; got \d+\."),
        (None, {"COUNTS": "{0} {1} {2} 7"}, r"dict.txt: needs 7 lines; got \d+\."),
    ],
)
def test_refused(
    damage: Callable[[Path], None] | None,
    variables: dict[str, str],
    message: str,
    ptb: dict[str, object],
    programs: str,
    tmp_path: Path,
) -> None:
    if damage:
        damage(tmp_path / "source")
    counts = str(ptb["COUNTS"]).split()
    given = {**ptb, **{name: value.format(*counts) for name, value in variables.items()}}
    process = run_recipe("prepare-ptb.sh", **given, PATH=programs, status=1)
    assert re.search(message, process.stderr)
    assert not (tmp_path / "runs/ptb/bin").exists()


def test_interrupted_and_run_again(ptb: dict[str, object], programs: str, tmp_path: Path) -> None:
    run_recipe("prepare-ptb.sh", **ptb, PATH=programs, FAIL_IN_THE_MIDDLE=1, status=9)
    assert not (tmp_path / "runs/ptb/bin").exists(), "half of it must not be taken for the whole"
    run_recipe("prepare-ptb.sh", **ptb, PATH=programs)
    assert (tmp_path / "runs/ptb/bin/preprocess.log").exists()


def test_the_checksums_are_those_of_the_published_files() -> None:
    folder = SHARED_DATA / "ptb"
    if not folder.is_dir():
        pytest.skip(f"PTB is not at {folder}")
    process = subprocess.run(
        ["sha256sum", "--check", "--strict", RECIPES / "ptb.sha256"], cwd=folder, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout
    assert process.stdout.count(": OK") == 3


def zip_stories(folder: Path, archive: Path) -> dict[str, object]:
    """Zips stories as the BBC's archive does, and returns the variables that make prepare-bbc.sh take it."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*.txt")):
            file.write(path, f"bbc/{path.relative_to(folder)}")
    return {"FROM": archive, "SHA256": sha256(archive)}


def test_bbc_from_a_small_archive(programs: str, tmp_path: Path) -> None:
    variables = zip_stories(write_stories(tmp_path / "stories"), tmp_path / "bbc.zip")
    run_recipe("prepare-bbc.sh", **variables, RUNS=tmp_path / "runs", PATH=programs, SMOKE=1)
    folder = tmp_path / "runs/bbc-smoke"
    assert {path.name for path in folder.iterdir()} == {"text", "bin", ".smoke"}
    # 2 stories of 40 in each held-out set, 5 lines each; and the first 400 lines, of which there are 180.
    lines = {split: len((folder / f"text/{split}.txt").read_text().splitlines()) for split in ("train", "valid")}
    assert lines == {"train": 36 * 5, "valid": 2 * 5}


def test_bbc_refuses_an_archive_that_leads_out(programs: str, tmp_path: Path) -> None:
    archive = tmp_path / "bbc.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("bbc/tech/001.txt", "Title\n\nText.\n")
        file.writestr("../../escaped.txt", "out")
    variables = {"FROM": archive, "SHA256": sha256(archive), "RUNS": tmp_path / "runs"}
    process = run_recipe("prepare-bbc.sh", **variables, PATH=programs, status=1)
    assert "needs members inside its own folder; got '../../escaped.txt'" in process.stderr
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not list(tmp_path.rglob("001.txt")), "nothing at all may be unpacked"


def test_bbc_refuses_another_archive(programs: str, tmp_path: Path) -> None:
    variables = zip_stories(write_stories(tmp_path / "stories"), tmp_path / "bbc.zip")
    process = run_recipe("prepare-bbc.sh", FROM=variables["FROM"], RUNS=tmp_path / "runs", PATH=programs, status=1)
    assert re.search(r"bbc.zip: needs the checksum 8e7881a2b5dc\w+ or a351031a6232\w+; got", process.stderr)
    assert f"got {variables['SHA256']}" in process.stderr


def test_text8_refuses_another_archive(tmp_path: Path) -> None:
    write_text8(tmp_path / "text8.zip")
    process = run_recipe("prepare-text8.sh", FROM=tmp_path / "text8.zip", RUNS=tmp_path / "runs", status=1)
    assert "text8.zip: needs the checksum a6640522afe8" in process.stderr
    assert f"; got {sha256(tmp_path / 'text8.zip')}." in process.stderr


@pytest.mark.slow
def test_bbc_from_the_real_archive(tmp_path: Path) -> None:
    archive = SHARED_DATA / "archives/bbc-fulltext.zip"
    if not archive.exists():
        pytest.skip(f"the archive is not at {archive}")
    run_recipe("prepare-bbc.sh", FROM=archive, RUNS=tmp_path)
    assert len((tmp_path / "bbc/bin/dict.txt").read_text().splitlines()) == 9998


def test_wmts_texts_have_an_end(tmp_path: Path) -> None:
    """A small archive of WMT14 English to French whose texts unpack to any number of zeros."""
    folder = tmp_path / "bitexts.selected"
    folder.mkdir()
    for name in ("ep7_pc45", "nc9", "dev08_11", "crawl", "ccb2_pc30", "un2000_pc34"):
        for language in ("en", "fr"):
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(bytes(100_000)))
    (tmp_path / "dev").mkdir()
    for archive, member in (("bitexts.tgz", folder), ("dev+test.tgz", tmp_path / "dev")):
        with tarfile.open(tmp_path / archive, "w:gz") as file:
            file.add(member, member.name)
    process = run_recipe("prepare-wmt14-enfr.sh", FROM=tmp_path, WORK=tmp_path / "work", LARGEST_TEXT=300, status=1)
    assert "bitexts.tgz: needs at most 10 GB of text for en; got more" in process.stderr
    assert (tmp_path / "work/text/train.en").stat().st_size <= 300 * 1024
