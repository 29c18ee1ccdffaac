"""`fairseq-tiedemb`, in process; tests/test_install.py runs the installed command."""

from pathlib import Path

import pytest

import fairseq_tiedemb
from fairseq_tiedemb import cli

FOLDER = Path(fairseq_tiedemb.__file__).parent


def test_path_prints_the_folder_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["path"]) == 0
    assert capsys.readouterr() == (f"{FOLDER}\n", "")


def test_path_names_another_copy_that_the_bare_name_would_mean_here(tmp_path, monkeypatch, capsys):
    other = tmp_path / FOLDER.name
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["path"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{FOLDER}\n"
    assert f"means another copy, {other}" in output.err


def test_path_is_silent_beside_the_copy_that_it_prints(monkeypatch, capsys):
    monkeypatch.chdir(FOLDER.parent)
    assert cli.main(["path"]) == 0
    assert capsys.readouterr().err == ""


def test_version_says_which_copy_it_is(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.split(", ") == [
        f"fairseq-tiedemb {fairseq_tiedemb.__version__}",
        f"{FOLDER}\n",
    ]


def test_version_is_one_line_in_a_narrow_window(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"fairseq-tiedemb {fairseq_tiedemb.__version__}, {FOLDER}\n"


def test_help_lists_every_command_with_its_first_line(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())  # as one line
    for command in cli.COMMANDS:
        assert command.__name__.rpartition(".")[2] in text
        assert command.__doc__.partition("\n")[0] in text


@pytest.mark.parametrize(("argv", "message"), [([], "COMMAND"), (["paths"], "invalid choice: 'paths'")])
def test_a_missing_or_unknown_command_is_named(argv, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(argv)
    assert message in capsys.readouterr().err
