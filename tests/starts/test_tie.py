"""A model tied or untied: what it scores, and by which tables."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.sharing import SHARING_METHODS

from ..conftest import Cli
from ..crossing import crossed
from ..untrained import write_checkpoint
from .test_extend import ALL, BANDS, DECODER, LM, OF_ENCODER, OLD, SIZES, STREAM, TRANSLATION, folder_of, loaded, scores

TEXT = list("abcdabdc")
TIED: dict[str, tuple[Any, ...]] = {
    "lstm": (*STREAM, DECODER),
    "preset": (*STREAM[:2], "--arch", "zaremba_lm_small_wt", *STREAM[4:]),
    "preset with P": (*STREAM[:2], "--arch", "zaremba_lm_small_wt_pr", *STREAM[4:]),
    "joint space": (*STREAM, DECODER, "--output-layer", "joint"),
    "transformer": (*TRANSLATION, DECODER),
    "three-way": (*TRANSLATION, ALL),
    "fairseq's": ("--arch", "transformer", *TRANSLATION[2:], ALL),
    "language model": (*LM, *SIZES, DECODER, "--projection"),
    "factors": (*LM, *SIZES, DECODER, "--embedding-rank", 5),
}
UNTIED = {
    name: tuple(flag for flag in flags if flag not in (DECODER, ALL))
    for name, flags in TIED.items()
    if name in ("lstm", "transformer", "language model", "fairseq's")
}
WITHOUT_METHOD = ("fairseq's", "joint space")


def made(tmp_path: Path, flags: tuple[Any, ...], *command: str) -> tuple[Any, Any]:
    """The model and the task of a checkpoint, and those of what a command makes of it."""
    model, task = write_checkpoint(tmp_path / "model.pt", folder_of(tmp_path / "data", OLD), *flags)
    assert main([command[0], str(tmp_path / "model.pt"), str(tmp_path / "out.pt"), *command[1:]]) == 0
    return (model, task), loaded(tmp_path / "out.pt")


@pytest.mark.parametrize(("name", "method"), crossed(TIED, list(SHARING_METHODS)))
def test_an_untied_model_scores_as_the_tied_one(name: str, method: str, tmp_path: Path) -> None:
    flags = TIED[name] if name in WITHOUT_METHOD else (*TIED[name], "--sharing-method", method)
    before, after = made(tmp_path, flags, "untie")
    torch.testing.assert_close(scores(*after, TEXT, OLD), scores(*before, TEXT, OLD))
    places = [entry.data_ptr() for key, entry in after[0].state_dict().items() if "embed_tokens" in key or "out" in key]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("name", "method", "way"),
    [
        *(pytest.param(*each.values, "mean", marks=each.marks) for each in crossed(UNTIED, list(SHARING_METHODS))),
        *(("transformer", "cosine", way) for way in ("input", "output")),
    ],
)
def test_the_shared_table_is_made_of_both(
    name: str, method: str, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = UNTIED[name] if name in WITHOUT_METHOD else (*UNTIED[name], "--sharing-method", method)
    (model, _), (tied, _) = made(tmp_path, flags, "tie", "--from", way)
    assert "it needs training" in capsys.readouterr().out
    old, new = model.state_dict(), tied.state_dict()
    names = ("embed_tokens.weight", "output.weight" if "decoder.output.weight" in new else "output_projection.weight")
    first, second = (old[f"decoder.{each}"] for each in names)
    assert new[f"decoder.{names[0]}"].data_ptr() == new[f"decoder.{names[1]}"].data_ptr()
    expected = {"mean": (first + second) / 2, "input": first, "output": second}[way]
    torch.testing.assert_close(new[f"decoder.{names[0]}"], expected)
    for key in new.keys() & old.keys():
        if "embed_tokens" not in key and "output" not in key:
            assert torch.equal(new[key], old[key])
    if "decoder.output.bias" in new:
        assert torch.equal(new["decoder.output.bias"], old["decoder.output.bias"])


ATTENTION = ("--arch", "lstm_nmt", *TRANSLATION[2:8], "--decoder-out-embed-dim", 8, *OF_ENCODER[:2])
OF_THREE = {
    "transformer": (*TRANSLATION, "--sharing-method", "scaled-words"),
    "fairseq's": UNTIED["fairseq's"],
    "attention": (*ATTENTION, "--sharing-method", "distance"),
    "tied decoder": TIED["transformer"],
}


@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, "mean") for name in OF_THREE), *(("transformer", way) for way in ("input", "output", "source"))],
)
def test_one_table_is_made_of_all_three(name: str, way: str, tmp_path: Path, cli: Cli) -> None:
    (model, _), (tied, task) = made(tmp_path, OF_THREE[name], "tie", ALL, "--from", way)
    old, new = model.state_dict(), tied.state_dict()
    names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    names += [key for key in new if re.fullmatch(r"decoder\.output(_projection)?\.weight", key)]
    assert len(names) == 3
    assert len({new[each].data_ptr() for each in names}) == 1
    source, first, last = (old[each] for each in names)
    whole = (source + first) / 2 if name == "tied decoder" else (source + first + last) / 3
    expected = {"mean": whole, "input": first, "output": last, "source": source}[way]
    torch.testing.assert_close(new[names[0]], expected)
    for key in new.keys() & old.keys():
        if "embed_tokens" not in key and "output" not in key:
            assert torch.equal(new[key], old[key])
    assert tied.decoder.embed_tokens is tied.encoder.embed_tokens
    assert scores(tied, task, TEXT, OLD).isfinite().all()
    refusal = cli("tie", tmp_path / "out.pt", tmp_path / "again.pt", ALL, status=2).err
    assert re.search("needs an untied model; got .*out.pt, whose tables are one. Use it", refusal)


@pytest.mark.parametrize("layer", [("nce",), ("classes", "--classes", 3)], ids=lambda layer: layer[0])
def test_whole_numbers_of_an_output_layer_are_kept(layer: tuple[Any, ...], tmp_path: Path) -> None:
    (model, _), (tied, _) = made(tmp_path, (*STREAM, "--output-layer", *layer), "tie")
    whole = {key: entry for key, entry in model.state_dict().items() if not entry.is_floating_point()}
    assert whole
    assert all(torch.equal(tied.state_dict()[key], entry) for key, entry in whole.items())


def test_tied_tables_that_were_untied_come_together_again(tmp_path: Path) -> None:
    before, _ = made(tmp_path, (*STREAM, DECODER, "--sharing-method", "scaled"), "untie")
    assert main(["tie", str(tmp_path / "out.pt"), str(tmp_path / "again.pt")]) == 0
    torch.testing.assert_close(scores(*loaded(tmp_path / "again.pt"), TEXT, OLD), scores(*before, TEXT, OLD))


STOCK = ("--arch", "lstm", *TRANSLATION[2:6])
STOCK += ("--decoder-embed-dim", 8, "--decoder-out-embed-dim", 8, "--encoder-embed-dim", 8)
REFUSALS = {
    "one table": ("tie", TIED["lstm"], "needs an untied model; got .*model.pt, whose tables are one. Use it"),
    "dictionary": ("untie", TIED["lstm"], "OUT: needs a name that is not among the inputs; got data/dict.txt. Use"),
    "apart": ("untie", UNTIED["lstm"], "needs shared tables; got .*model.pt, with none that can be taken apart. Use"),
    "factors": ("tie", (*LM, *SIZES, "--embedding-rank", 5), "in one basis; got --embedding-rank 5. Use a new"),
    "bands": ("tie", (*STREAM, "--adaptive-softmax-cutoff", 6), "one basis; got --adaptive-softmax-cutoff 6. Use"),
    "widths": ("tie", (*STREAM[:-1], 12), "CHECKPOINT: needs a model that can change so; got .*model.pt, .* equal"),
    "widths of fairseq's": (
        "tie",
        ("--arch", "transformer", *TRANSLATION[2:], "--decoder-output-dim", 12),
        "needs input and output vectors of one width; got 8 and 12. Use a new",
    ),
    "fewer words": (
        "tie",
        (*LM, *SIZES, "--output-dictionary-size", 9),
        "needs input and output tables of as many words; got 10 and 9. Use a new",
    ),
    "characters of fairseq's": (
        "tie",
        (*LM[:3], "transformer_lm", *SIZES, "--character-embeddings", "--character-filters", "[(1, 8)]"),
        "needs an input table that .* got .*model.pt, without one. Use a new",
    ),
    "fairseq's lstm": ("tie", STOCK, "needs an output table that .* got .*model.pt, without one. Use a new"),
    "fairseq's lstm, one table": ("untie", (*STOCK, DECODER), "needs shared tables; got .*model.pt, with none that"),
    "fairseq's lstm, already tied": (
        "tie",
        (*STOCK, DECODER),
        "untied model; got .*model.pt, whose tables are one. Use",
    ),
    "method of bands": (
        "untie",
        (*LM, *SIZES, *BANDS, "--sharing-method", "scaled"),
        "CHECKPOINT: needs a model that can change so; got .*model.pt, which cannot .--sharing-method scaled: needs",
    ),
    "words of both languages": (
        "untie",
        (*TRANSLATION, "--merge-src-tgt-embed"),
        r"needs encoder.embed_tokens.weight of shape \(10, 8\) for the new model; got \(12, 8\) in .*model.pt",
    ),
    "bands of both": ("untie", (*LM, *SIZES, *BANDS), "decoder.project_out_dim.weight of .*; got none in .*model.pt"),
}


@pytest.mark.parametrize(
    ("flags", "command", "message"),
    [
        (TRANSLATION, ("--from", "source"), "--from: needs --share-all-embeddings; got source without it. Use both"),
        (TIED["lstm"], (ALL,), "--share-all-embeddings: needs a translation model; got .*model.pt, without an encoder"),
        (
            TRANSLATION,
            (ALL,),
            "CHECKPOINT: needs a model that can change so; got .*model.pt, .* one dictionary for both",
        ),
        ((*TRANSLATION[:-8], *OF_ENCODER[2:], "--encoder-embed-dim", 4), (ALL,), "got .*model.pt, .*embed-dim"),
        (
            (*TRANSLATION, "--merge-src-tgt-embed"),
            (ALL,),
            "needs an untied model; got .*model.pt, whose tables are one",
        ),
    ],
)
def test_tables_of_three_roles_that_cannot_be_one(
    flags: tuple[Any, ...], command: tuple[str, ...], message: str, tmp_path: Path, cli: Cli
) -> None:
    data = folder_of(tmp_path / "data", OLD)
    if "one dictionary" in message:
        (data / "dict.src.txt").write_text("g 1\n")
    write_checkpoint(tmp_path / "model.pt", data, *flags)
    error = cli("tie", tmp_path / "model.pt", tmp_path / "out.pt", *command, status=2).err
    assert re.search(message, error), error
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_leave_nothing(name: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    command, flags, message = REFUSALS[name]
    monkeypatch.chdir(tmp_path)
    data = folder_of(tmp_path / "data", OLD)
    if "--merge-src-tgt-embed" in flags:
        with (data / "dict.tgt.txt").open("a") as file:
            file.write("g 1\nh 1\n")
    write_checkpoint(tmp_path / "model.pt", data, *flags)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    output = "data/dict.txt" if name == "dictionary" else "out.pt"
    assert re.search(message, error := cli(command, tmp_path / "model.pt", output, status=2).err), error
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_no_dictionary_of_the_training_is_written_over(tmp_path: Path, cli: Cli) -> None:
    folders = [folder_of(tmp_path / name, OLD) for name in ("first", "second")]
    write_checkpoint(tmp_path / "model.pt", folders[0], *TIED["lstm"])
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    state["cfg"]["task"]["data"] = ":".join(map(str, folders))
    torch.save(state, tmp_path / "model.pt")
    for folder in folders:
        output = folder / "dict.txt"
        assert (
            f"OUT: needs a name that is not among the inputs; got {output}"
            in cli("untie", tmp_path / "model.pt", output, status=2).err
        )
        assert output.read_text() == (folders[0] / "dict.txt").read_text()
