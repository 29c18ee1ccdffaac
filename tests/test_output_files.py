"""Files and folders that commands write: whole, or absent."""

from pathlib import Path

import pytest

from fairseq_tiedemb.cli._output import folder_aside, written_aside


@pytest.mark.parametrize("left", ["file", "folder"])
def test_what_a_killed_process_left_is_in_nobodys_way(left: str, tmp_path: Path) -> None:
    aside = tmp_path / ".out.part"
    for number, write in enumerate((written_aside, folder_aside)):
        path = tmp_path / "out"
        if left == "file":
            aside.write_text("half")
        else:
            aside.mkdir()
            (aside / "model.bin").write_text("half")
        with write(path) as new:
            if number:
                assert list(new.iterdir()) == []
            else:
                new.write_text("whole")
        assert [each.name for each in tmp_path.iterdir()] == ["out"]
        if path.is_file():
            assert path.read_text() == "whole"
            path.unlink()
