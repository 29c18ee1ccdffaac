"""`fairseq-tiedemb`, in process; tests/test_install.py runs the installed command."""

import argparse
import importlib
import io
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fairseq_tiedemb
from fairseq_tiedemb import cli

FOLDER = Path(fairseq_tiedemb.__file__).parent


def test_path_prints_the_folder_and_names_another_copy_that_the_bare_name_would_mean_here(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(FOLDER.parent)
    assert cli.main(["path"]) == 0
    assert capsys.readouterr() == (f"{FOLDER}\n", "")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["path"]) == 0
    assert capsys.readouterr() == (f"{FOLDER}\n", "")
    other = tmp_path / FOLDER.name
    other.mkdir()
    assert cli.main(["path"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{FOLDER}\n"
    assert f"means another copy, {other}" in output.err


def test_version_says_which_copy_it_is_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"fairseq-tiedemb {fairseq_tiedemb.__version__}, {FOLDER}\n"


def test_commands_are_the_modules_of_the_folder_with_their_first_lines():
    modules = [path.stem for path in Path(cli.__file__).parent.glob("*.py") if not path.stem.startswith("_")]
    assert sorted(cli.COMMANDS) == sorted(modules)
    for name, help_line in cli.COMMANDS.items():
        assert importlib.import_module(f"fairseq_tiedemb.cli.{name}").__doc__.partition("\n")[0] == help_line


def test_help_of_a_command_is_its_docstring_and_arguments(capsys):
    parser = cli.create_parser()
    for _ in range(2):
        with pytest.raises(SystemExit, match="0"):
            parser.parse_args(["ngram", "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert text.startswith("usage: fairseq-tiedemb ngram [-h]")
        assert " ".join(importlib.import_module("fairseq_tiedemb.cli.ngram").__doc__.split()) in text
        assert "--order" in text


@pytest.mark.parametrize(
    "argv",
    [
        ["export", "model.pt", "stock.pt"],
        ["export", "model.pt", "engine", "--to", "ctranslate2"],
        ["score", "model.pt", "--data", "bin"],
        ["updates", "bin"],
        ["neighbours", "model.pt", "--words", "a"],
    ],
    ids=" ".join,
)
def test_commands_that_look_a_sharing_method_up_import_the_users_code_first(argv, tmp_path, monkeypatch, capsys):
    if "ctranslate2" in argv:
        pytest.importorskip("ctranslate2", reason="pip install ctranslate2")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*argv, "--user-dir", "gone"]) == 2
    assert "error: --user-dir: needs a folder of Python code; got gone. Use" in capsys.readouterr().err
    Path("code.py").touch()
    assert cli.main([*argv, "--user-dir", "code.py"]) == 2
    assert "error: --user-dir: needs a folder of Python code; got code.py, a file. Use" in capsys.readouterr().err


def test_no_help_of_a_command_waits_for_torch_or_fairseq():
    program = (
        "import sys; from fairseq_tiedemb import cli; slow = []\n"
        "for name in cli.COMMANDS:\n"
        "    try: cli.create_parser().parse_args([name, '--help'])\n"
        "    except SystemExit: slow += {'torch', 'fairseq', 'matplotlib'} & {*sys.modules} and [name]\n"
        "print(slow, file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=FOLDER.parent, capture_output=True, text=True)
    assert process.stderr == "[]\n"
    assert process.stdout.count("usage: ") == len(cli.COMMANDS)


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_has_gone_is_no_fault(unbuffered):
    """As in `fairseq-tiedemb arch | head`."""
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", "path"]
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": writer, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.run(command, cwd=FOLDER.parent, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, **streams)
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


# argparse is silent where it cannot write, as it cannot without a buffer.
@pytest.mark.parametrize(
    ("words", "unbuffered"), [("path", ""), ("path", "1"), ("", ""), ("score -h", ""), ("--version", "")]
)
def test_a_full_disk_under_standard_output_is_said(words, unbuffered):
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", *words.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        streams = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.run(command, cwd=FOLDER.parent, env=environment, **streams)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "error: standard output: needs a disk that takes it all; got an error of the system (No sp" in process.stderr


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams_take_what_nobody_reads(closed):
    command = f"{shlex.quote(sys.executable)} -m fairseq_tiedemb.cli path {closed}"
    process = subprocess.run(command, shell=True, cwd=FOLDER.parent, capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_file_that_the_system_does_not_open_is_named(cli, tmp_path, monkeypatch):
    sentence = "a sentence in the place of a file " * 9
    message = f"error: {sentence}: needs a file that the system opens; got an error of the system (File name too long)"
    assert message in cli("score", "x.pt", sentence, "--data", tmp_path, status=2).err
    monkeypatch.setenv("FAIRSEQ_TIEDEMB_DEBUG", "1")
    with pytest.raises(OSError, match="File name too long"):
        cli("score", "x.pt", sentence, "--data", tmp_path)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("average --output x --inputs", "inputs"),
        ("ngram --test", "test"),
        ("ngram --cutoff", "cutoff"),
        ("similarity t --sets", "sets"),
        ("updates d --checkpoint", "checkpoint"),
        ("extend a b --dictionary", "dictionary"),
        ("neighbours t --words", "words"),
        ("map t --output x --words", "words"),
        ("curves t --label", "label"),
    ],
)
def test_an_option_for_several_values_may_be_repeated(words, name):
    *command, flag = words.split()
    for _ in range(2):  # and nothing is left of the first time
        found = cli.create_parser().parse_args([*command, flag, "1", "2", flag, "3"])
        assert list(map(str, getattr(found, name))) == ["1", "2", "3"]


def test_what_follows_an_option_has_its_type():
    found = cli.create_parser().parse_args(["report", "a", "--output", "f", "b"])
    assert found.runs == [Path("a"), Path("b")]


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", r"\u2581"), ("utf-8", "\u2581")])
def test_help_is_shown_in_every_encoding(encoding, shown):
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", "neighbours", "--help"]
    found = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True)
    assert shown in found.stdout.decode(encoding)


def test_what_programs_read_is_utf8_in_every_encoding(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.run(argparse.Namespace(exact=True, run=lambda _: print("\xfc\udcff") or 0)) == 0
    assert written.getvalue() == b"\xc3\xbc\xff\n"


def test_without_a_command_all_are_shown_in_groups_with_a_line_each(capsys):
    assert cli.main([]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 80
    places = [lines.index(f"{group}:") for group in ("train", "measure", "look", "export", "maintain")]
    assert places == sorted(places)
    shown = [line.split(maxsplit=1) for line in lines[places[0] :] if line.startswith("  ") and "COMMAND" not in line]
    assert [name for name, _ in shown if not name.startswith("-")] == list(cli.COMMANDS)


def test_what_argparse_refuses_has_its_words_and_what_a_type_refuses_ours(capsys):
    for argv, message in (
        (["paths"], "invalid choice: 'paths'"),
        (["ngram", "x", "--order", "y"], "error: argument --order: invalid int value: 'y'"),
        (["ngram", "x", "--smoothing", "y"], "error: argument --smoothing: invalid choice: 'y'"),
        (["neighbours", "x"], "fairseq-tiedemb neighbours: error: the following arguments are required: --words"),
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(argv)
        assert message in capsys.readouterr().err
    for value in ("0", "x", "1.5"):
        assert cli.main(["neighbours", "x", "--words", "y", "--count", value]) == 2
        error = f"fairseq-tiedemb: error: --count: needs 1 or more; got {value}. Use 10, say.\n"
        assert capsys.readouterr().err == error


def test_the_traceback_of_a_refusal_is_shown_on_demand(tmp_path, monkeypatch, capsys):
    argv = ["curves", str(tmp_path / "none")]
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.startswith("fairseq-tiedemb: error: LOG: needs ")
    monkeypatch.setenv("FAIRSEQ_TIEDEMB_DEBUG", "1")
    with pytest.raises(ValueError, match="LOG: needs a log of fairseq-train; got .*none"):
        cli.main(argv)


def test_torchs_warnings_about_fairseqs_code_are_none_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.14 and newer give this one while fairseq is imported."""
    warning = "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`."
    monkeypatch.setattr(cli, "run", lambda arguments: warnings.warn(warning, FutureWarning, stacklevel=1) or 0)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = warnings.filters[:]
        assert cli.main(["path"]) == 0
        assert warnings.filters == before
    assert shown == []


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    for name in ("fairseq.data", "fairseq_tiedemb.loading"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "fairseq", None)
    assert cli.main(["updates", "data-bin"]) == 2
    assert "error: this command needs the package fairseq; got a Python without it" in capsys.readouterr().err


def test_a_module_of_ours_that_is_missing_is_no_users_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairseq_tiedemb.cli.score", None)
    with pytest.raises(ModuleNotFoundError, match="fairseq_tiedemb.cli.score"):
        cli.main(["score", "checkpoint.pt", "--data", "data-bin"])
