"""What reaches a terminal: names and words of files cannot steer it, and what programs read stays as it is."""

import contextlib
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import torch

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.terminal import error_line, printable

from .conftest import Cli
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
    assert main(["curves", str(tmp_path / ATTACK), "--label", "a"]) == 2
    assert f"LOG: needs a log of fairseq-train; got {tmp_path}/{SHOWN} (" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["curves", str(tmp_path / "log"), f"--{ATTACK}"])
    assert f"unrecognized arguments: --{SHOWN}" in capsys.readouterr().err


def test_names_and_words_in_results_are_printable(tmp_path: Path, cli: Cli):
    vectors = tmp_path / f"{ATTACK}.txt"
    vectors.write_text(f"{ATTACK} 1 0\n漢字 0 1\nb 1 1\n", encoding="utf-8")
    out = cli("neighbours", vectors, "--words", ATTACK).out
    assert SHOWN in out.splitlines()
    assert f"{SHOWN}.txt" in out
    assert "漢字 0.000" in out
    (tmp_path / "questions").write_text(f": {ATTACK}\nb 漢字 b 漢字\n", encoding="utf-8")
    assert SHOWN in cli("analogy", vectors, "--questions", tmp_path / "questions").out
    log = tmp_path / "log"
    log.write_text('{"epoch": 1, "train_ppl": "5.2", "train_num_updates": "3"}\n')
    assert f"{SHOWN} train" in cli("curves", log, "--label", ATTACK).out
    tensors = write_safetensors(tmp_path / "model.safetensors", {ATTACK: torch.zeros(2, 2)})
    error = cli("neighbours", f"{tensors}:none", "--words", "a", status=2).err
    assert SHOWN in error
    assert "\x1b" not in error


PROGRAM = """
import sys
from fairseq_tiedemb import cli
from fairseq_tiedemb.cli import path
path.run = lambda arguments: print(sys.argv[1])
sys.exit(cli.main(["path"]))
"""


def test_what_programs_read_is_exact_except_on_a_terminal():
    command = {"args": [sys.executable, "-c", PROGRAM, ATTACK], "cwd": Path(__file__).parent.parent}
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    assert subprocess.run(**command, env=environment, capture_output=True).stdout.decode() == f"{ATTACK}\n"
    ours, theirs = os.openpty()
    process = subprocess.Popen(**command, env=environment, stdout=theirs)
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):  # as Linux says that the other side is closed
        while part := os.read(ours, 4096):
            output += part
    os.close(ours)
    assert output.decode() == f"{SHOWN}\r\n"
    assert process.wait() == 0


def test_a_note_comes_after_what_was_printed_before(tmp_path: Path) -> None:
    """A recipe reads the summary of `score` from the last line of a file that has both streams."""
    program = "from fairseq_tiedemb.cli._output import note; print('a score'); note('the summary')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, check=True, env=environment)
    assert (tmp_path / "log").read_text() == "a score\nthe summary\n"
