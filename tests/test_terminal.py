"""What reaches a terminal: names and words of files cannot steer it, and what programs read stays as it is."""

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.terminal import error_line, printable

from .test_score import checkpoint as checkpoint  # a fixture
from .vectors.common import write_safetensors

ATTACK = "\x1b[2Jab\x07\x9b31m\u202ecd\x7f"
SHOWN = r"\x1b[2Jab\x07\x9b31m\u202ecd\x7f"


def test_every_control_character_is_shown_as_python_escapes_it():
    steering = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
    steering += map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
    for character in {*steering} - {"\t", "\n"}:
        shown = printable(f"a{character}b")
        assert shown.isascii()
        assert shown[1:-1].encode().decode("unicode_escape") == character


@pytest.mark.parametrize(
    "text", ["漢字\tかな\n", "e\u0301 \u0928\u093f", "👩\u200d👩\u200d👧", "עברית\u200f", "\\x1b", "ﷺ"]
)
def test_words_of_every_language_stay(text: str):
    assert printable(text) == text


def test_an_error_is_one_line():
    assert error_line("program", f"a\nprogram: {ATTACK}") == f"program: error: a program: {SHOWN}"


def test_a_name_in_an_error_is_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "log").touch()
    assert cli.main(["curves", str(tmp_path / f"{ATTACK}"), "--label", "a"]) == 2
    assert f"LOG: needs a log of fairseq-train; got {tmp_path}/{SHOWN} (" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["curves", str(tmp_path / "log"), f"--{ATTACK}"])
    assert f"unrecognized arguments: --{SHOWN}" in capsys.readouterr().err


def test_names_and_words_in_results_are_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    vectors = tmp_path / f"{ATTACK}.txt"
    vectors.write_text(f"{ATTACK} 1 0\n漢字 0 1\nb 1 1\n", encoding="utf-8")
    assert cli.main(["neighbours", str(vectors), "--words", ATTACK]) == 0
    out = capsys.readouterr().out
    assert SHOWN in out.splitlines()
    assert f"{SHOWN}.txt" in out
    assert "漢字 0.000" in out
    (tmp_path / "questions").write_text(f": {ATTACK}\nb 漢字 b 漢字\n", encoding="utf-8")
    assert cli.main(["analogy", str(vectors), "--questions", str(tmp_path / "questions")]) == 0
    assert SHOWN in capsys.readouterr().out
    log = tmp_path / "log"
    log.write_text('{"epoch": 1, "train_ppl": "5.2", "train_num_updates": "3"}\n')
    assert cli.main(["curves", str(log), "--label", ATTACK]) == 0
    assert f"{SHOWN} train" in capsys.readouterr().out


def test_the_names_of_tensors_are_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import torch

    path = tmp_path / "model.safetensors"
    write_safetensors(path, {ATTACK: torch.zeros(2, 2)})
    assert cli.main(["neighbours", f"{path}:none", "--words", "a"]) == 2
    error = capsys.readouterr().err
    assert SHOWN in error
    assert "\x1b" not in error


def on_terminal(*arguments: object) -> str:
    """What a terminal gets that runs `fairseq-tiedemb ARGUMENTS`."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 4096):
            output += part
    except OSError:  # as Linux says that the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return output.decode().replace("\r\n", "\n")


def test_what_programs_read_is_exact_except_on_a_terminal(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    text = tmp_path / "text"
    text.write_text(f"a {ATTACK} b\n", encoding="utf-8")
    arguments = ["score", str(checkpoint), str(text), "--data", str(lm_data), "--cpu"]
    assert cli.main(arguments) == 0
    exact = capsys.readouterr().out
    assert exact.endswith(f"\ta {ATTACK} b\n")
    assert on_terminal(*arguments) == exact.replace(ATTACK, SHOWN)
