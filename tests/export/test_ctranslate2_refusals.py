"""Checkpoints and dictionaries that CTranslate2's format cannot have, and exports that break off."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary

from ..conftest import Cli
from .test_to_ctranslate2 import OF_ENCODER, SIZES, needs_engine, refused, write_checkpoint


@needs_engine
def test_other_dictionaries_than_those_of_the_weights_are_refused(tmp_path: Path, cli: Cli) -> None:
    words = tmp_path / "dict.txt"
    words.write_text("a 9\nb 9\nc 9\n")
    write_checkpoint(tmp_path / "model.pt", tmp_path, "--task", "language_modeling", "--arch", "transformer_lm", *SIZES)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    del state["task_state"]  # as stock fairseq saves it, without the dictionary's fingerprint
    torch.save(state, tmp_path / "model.pt")
    for lines, message in (
        (b"a 9\nb 9\n", r"model.pt: needs dictionaries that fit its weights; got others \(.*size mismatch"),
        (b"a 9\na 9\n", r"--data: needs the dictionary of fairseq-preprocess; got \S+/dict.txt \(Duplicate word"),
        (b"a\n", r"--data: needs the dictionary of fairseq-preprocess; got \S+/dict.txt \(Incorrect dictionary format"),
    ):
        words.write_bytes(lines)
        error = refused(tmp_path, cli, "--to", "ctranslate2")
        assert re.search(message, error), error


@needs_engine
def test_weights_that_are_missing_are_named(parallel_data: Path, tmp_path: Path, cli: Cli) -> None:
    write_checkpoint(tmp_path / "model.pt", parallel_data, "--arch", "tied_transformer", *OF_ENCODER, *SIZES)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    del state["model"]["decoder.layers.0.fc1.weight"]
    torch.save(state, tmp_path / "model.pt")
    error = refused(tmp_path, cli, "--to", "ctranslate2")
    assert re.search("model.pt: needs exactly the weights of its model; .*decoder.layers.0.fc1.weight", error), error


@needs_engine
def test_words_that_are_twice_in_a_dictionary_are_refused() -> None:
    from fairseq_tiedemb.export.to_ctranslate2 import _vocabulary

    words = Dictionary()
    words.add_symbol("a")
    words.add_symbol("<s>", overwrite=True)
    with pytest.raises(ValueError, match="--data: needs dictionaries without repeated words; got '<s>' twice"):
        _vocabulary(words)


@needs_engine
def test_a_name_that_is_taken_is_refused_and_a_failure_leaves_nothing(
    parallel_data: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctranslate2.specs import model_spec

    write_checkpoint(tmp_path / "model.pt", parallel_data, "--arch", "tied_transformer", *OF_ENCODER, *SIZES)

    def save(spec: Any, folder: str) -> None:
        Path(folder, "model.bin").write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(model_spec.SequenceToSequenceModelSpec, "save", save)
        assert f"{tmp_path}/engine: needs a disk that takes" in refused(tmp_path, cli, "--to", "ctranslate2")
    (tmp_path / "engine").mkdir()
    error = refused(tmp_path, cli, "--to", "ctranslate2")
    assert f"OUT: needs the name of a new folder; got {tmp_path}/engine, which is there" in error


def test_options_of_the_other_target_and_a_missing_engine_are_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"model": {}}, tmp_path / "model.pt")
    for flags, message in (
        ("--to ctranslate2 --settings dict", "--settings: needs --to fairseq; got dict. Leave it out."),
        ("--quantization int8", "--quantization: needs --to ctranslate2; got int8. Leave it out."),
        ("--data bin", "--data: needs --to ctranslate2; got bin. Leave it out."),
    ):
        assert message in refused(tmp_path, cli, *flags.split())
    monkeypatch.setitem(sys.modules, "ctranslate2.converters.fairseq", None)
    monkeypatch.delitem(sys.modules, "fairseq_tiedemb.export.to_ctranslate2", raising=False)
    error = refused(tmp_path, cli, "--to", "ctranslate2")
    assert "--to ctranslate2: needs the package ctranslate2; got a Python without it" in error
    assert "pip install ctranslate2" in error
