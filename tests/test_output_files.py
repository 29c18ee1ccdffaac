"""Files and folders that commands write: whole, or absent, and never in the place of what is read."""

import os
from pathlib import Path

import pytest

from fairseq_tiedemb.cli._output import check_output, check_output_folder, written_aside

from .conftest import Cli


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".out.part").write_text("half")  # version 0.1.2 wrote to this name
    path = tmp_path / "out"
    with written_aside(path) as new:
        new.write_text("whole")
    assert path.read_text() == "whole"
    path.unlink()
    with written_aside(path) as new:
        new.mkdir()
    assert {each.name for each in tmp_path.iterdir()} == {"out", ".out.part"}


def test_two_writers_of_one_file_are_not_in_each_others_way(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with written_aside(path) as first, first.open("w") as file:
        file.write("fir")
        file.flush()
        with written_aside(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
        file.write("st")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    for umask, mode in ((0o022, 0o755), (0o002, 0o775), (0o077, 0o700)):
        old = os.umask(umask)
        try:
            with written_aside(tmp_path / "file") as new:
                new.touch()
            with written_aside(tmp_path / f"folder-{umask}") as new:
                new.mkdir()
        finally:
            os.umask(old)
        assert (tmp_path / "file").stat().st_mode & 0o777 == mode & 0o666
        assert (tmp_path / f"folder-{umask}").stat().st_mode & 0o777 == mode


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), written_aside(tmp_path / "out") as new:  # noqa: PT012
        new.mkdir()
        (new / "half").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_name_may_be_as_long_as_the_system_lets_it_be(tmp_path: Path) -> None:
    for letter in "aé":
        path = tmp_path / (letter * (255 // len(letter.encode())))
        check_output(path, flag="--output")
        with written_aside(path) as new:
            new.write_text("whole")
        assert path.read_text() == "whole"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other/file")
    check_output(tmp_path / "link", flag="--output")
    with written_aside(tmp_path / "link") as new:
        new.write_text("whole")
    assert (tmp_path / "other/file").read_text() == "whole"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("name", "cause"), [("/proc/x.txt", "No such file"), ("a" * 256, "File name too long")])
def test_what_cannot_be_written_is_refused_before_any_work(name: str, cause: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for check in (check_output, check_output_folder):
        with pytest.raises(ValueError, match=f"--output: needs a name that the system .*; got {path} .{cause}"):
            check(path, flag="--output")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ValueError, match=f"--output: needs a name that the system .*; got {tmp_path}/link .{cause}"):
        check_output(tmp_path / "link", flag="--output")
    assert [each.name for each in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("command", ["classes", "counts"])
def test_commands_say_so_before_they_read_anything(command: str, cli: Cli) -> None:
    err = cli(command, "none", "--output", "/proc/x.txt", status=2).err
    assert "--output: needs a name that the system lets be written; got /proc/x.txt (" in err


SCORE = "score own.pt text --data data --per-word"
NGRAM = "ngram train --test text --held-out valid --smoothing jelinek-mercer"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        *(("vectors own.pt --role in --dict words.txt --output", name) for name in ("own.pt", "words.txt", "link")),
        ("vectors own.pt:in --output", "own.pt"),
        ("average --inputs text own.pt --output", "link"),
        ("vectors own.pt --output", "dict.txt"),
        ("vectors own.pt --output", "dict.en.txt"),
        *(("vectors data --output", f"data/{name}") for name in ("vocab.txt", "model.safetensors", "config.json")),
        ("vectors data/model.safetensors:wte --output", "data/vocab.txt"),
        ("map train own.svg --output", "own.svg"),
        ("norms own.svg --output", "own.svg"),
        ("norms own.pt --dictionary own.svg --output", "own.svg"),
        ("curves train own.svg --output", "own.svg"),
        *((f"{NGRAM} --dict words.txt --arpa", name) for name in ("train", "text", "valid", "words.txt")),
        ("ngram --read-arpa train --arpa", "train"),
        ("ngram train --held-out valid --interpolate own.arpa --arpa", "own.arpa"),
        *((SCORE, name) for name in ("own.pt", "text", "data/dict.txt")),
        *(("classes data --classes 3 --output", f"data/{name}") for name in ("dict.txt", "train.bin", "train.idx")),
        *(("counts data --train-subset valid --output", f"data/{name}") for name in ("dict.txt", "valid.bin")),
    ],
)
def test_no_command_replaces_what_it_reads(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    names = ["own.pt", "own.svg", "own.arpa", "words.txt", "dict.txt", "dict.en.txt", "train", "text", "valid"]
    of_data = ("dict.txt", "train.bin", "train.idx", "valid.bin", "vocab.txt", "model.safetensors", "config.json")
    for name in (*names, *(f"data/{name}" for name in of_data)):
        Path(name).write_text("a 1\n")
    Path("link").symlink_to("own.pt")
    flag = command.split()[-1]
    err = cli(*command.split(), f"./{output}", status=2).err
    assert f"{flag}: needs a name that is not among the inputs; got {output}. Use another." in err
    assert Path(output).read_text() == "a 1\n"


def test_the_page_of_a_training_does_not_replace_its_log(tmp_path: Path, cli: Cli) -> None:
    log = tmp_path / "report.html"
    line = '{"epoch": 1, "train_ppl": "5.2", "train_loss": "2.4", "train_num_updates": "3"}'
    log.write_text(f"2026-11-21 08:55:13 | INFO | train | {line}\n")
    err = cli("report", log, "--output", tmp_path, status=2).err
    assert f"--output: needs a name that is not among the inputs; got {log}. Use another." in err
    assert line in log.read_text()
