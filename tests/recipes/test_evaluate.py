"""`recipes/evaluate.sh`, and what a recipe shows of a score that failed."""

import subprocess
import sys
from pathlib import Path

from .shell import needs_sacremoses, prepared, run_recipe, write_programs


def test_a_failed_score_shows_why(tmp_path: Path) -> None:
    python = f'exec {sys.executable} "$@"'
    failing = {"fairseq-train": "true", "fairseq-eval-lm": "echo some reason >&2; exit 1", "python": python}
    path = write_programs(tmp_path / "programs", failing)
    process = run_recipe("train-table6-small.sh", "wt", RUNS=prepared(tmp_path), PATH=path, status=1)
    assert "some reason" in process.stderr
    assert f"all it said is in {tmp_path}/ptb/wt-1/score-train.log" in process.stderr


SENTENCES = ["a man sleeps .", "two dogs run on the beach ."]
SENTENCES += [f"number {number} sits here ." for number in range(2, 12)]


def evaluate(folder: Path, translations: list[str], **variables: object) -> subprocess.CompletedProcess[str]:
    """Scores translations of a fairseq-generate that is not one: it prints them as they are."""
    (folder / "reference").write_text("\n".join(SENTENCES) + "\n")
    (folder / "checkpoint.pt").touch()
    path = write_programs(folder / "bin", {"fairseq-generate": "cat <<'END'\n" + "\n".join(translations) + "\nEND"})
    files = (folder / "checkpoint.pt", "test", folder / "reference")
    return run_recipe("evaluate.sh", "bin", *files, PATH=path, RUNS=folder, **variables)


@needs_sacremoses
def test_evaluate_puts_translations_in_order(tmp_path: Path) -> None:
    shuffled = [f"S-{n}\tx\nH-{n}\t-0.{n}\t{SENTENCES[n]}\nP-{n}\t-0.2" for n in (2, 0, 10, 11, 1, *range(3, 10))]
    process = evaluate(tmp_path, shuffled, DETOKENIZE="en")
    assert (tmp_path / "test.hyp").read_text() == (tmp_path / "reference").read_text()
    assert "a man sleeps.\n" in (tmp_path / "test.detok.hyp").read_text()
    assert "two dogs run on the beach." in (tmp_path / "test.detok.ref").read_text()
    detokenised, score = (line for line in process.stdout.splitlines() if line.startswith("BLEU|"))
    assert "tok:13a" in detokenised
    assert "tok:none" in score
    assert " = 100.00 " in score


def test_evaluate_refuses_missing_files(tmp_path: Path) -> None:
    (tmp_path / "reference").touch()
    for checkpoint, reference, flag in (("none", "no", "REFERENCE"), ("no", "reference", "CHECKPOINT")):
        process = run_recipe("evaluate.sh", "bin", tmp_path / checkpoint, "test", tmp_path / reference, status=1)
        assert f"evaluate.sh: {flag}: needs a file; got {tmp_path}/no" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["reference"]


def test_evaluate_refuses_lost_sentences(tmp_path: Path) -> None:
    process = evaluate(tmp_path, ["H-0\t-0.2\ta man sleeps .", "H-2\t-0.1\tthe third one sits here ."], status=1)
    assert "test.hyp: needs 12 lines; got 2" in process.stderr
