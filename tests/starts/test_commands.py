"""A training goes on from what `extend`, `tie` and `untie` make, and its loss goes down."""

from pathlib import Path

from fairseq_tiedemb.cli import main

from ..conftest import InProcess, RunCommand
from ..test_compat_commands import logged

TIED = "--share-decoder-input-output-embed"
MODEL = ("--task", "contiguous_lm", "--arch", "tied_lstm_lm", "--decoder-embed-dim", 16, "--decoder-hidden-size", 16)
TRAINING = ("--optimizer", "adam", "--lr", "1e-2", "--batch-size", 8, "--tokens-per-sample", 10, "--log-format", "json")
TRAINING += ("--num-workers", 0, "--no-epoch-checkpoints", "--criterion", "tied_cross_entropy")
TRAINING += ("--sharing-method", "scaled")


def test_trainings_start_from_what_was_made(
    run_command: RunCommand, train: InProcess, text_folder: Path, lm_data: Path, tmp_path: Path
) -> None:
    """Of words that were cut into letters before, `extend` brings the letters."""
    (tmp_path / "text").write_text(text_folder.joinpath("train.src").read_text().replace("a b", "a_b"))
    new = tmp_path / "new"
    text = ("--trainpref", tmp_path / "text", "--validpref", tmp_path / "text")
    run_command("preprocess", "--only-source", *text, "--destdir", new)
    (tmp_path / "pieces").write_text("a_b a b\n")

    def trained(data: Path, name: str, *flags: object) -> list[float]:
        losses = logged(train(data, *MODEL, *TRAINING, *flags, "--save-dir", tmp_path / name), "train_loss")
        assert losses[-1] < losses[0]
        return losses

    def made(command: str, name: str, *options: object) -> Path:
        files = (tmp_path / name / "checkpoint_last.pt", tmp_path / f"{command}.pt")
        assert main([command, *map(str, (*files, *options))]) == 0
        return files[1]

    first = trained(lm_data, "first", TIED, "--max-epoch", 3)
    extended = made("extend", "first", "--dictionary", new / "dict.txt", "--pieces", tmp_path / "pieces")
    further = trained(new, "further", TIED, "--finetune-from-model", extended, "--max-epoch", 2)
    assert further[0] < trained(new, "anew", TIED, "--max-epoch", 2)[0]
    untied = made("untie", "further")
    apart = trained(new, "apart", "--finetune-from-model", untied, "--max-epoch", 2)
    assert apart[0] < further[0] < first[0]
    tied = made("tie", "apart")
    trained(new, "tied", TIED, "--restore-file", tied, "--reset-optimizer", "--max-epoch", 2)
