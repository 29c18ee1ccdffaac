"""Gives a trained model another dictionary: rows by word, and rows for its new words."""

import copy
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tiedemb.analysis.dictionaries import load_dictionary
from fairseq_tiedemb.checkpoints.dictionaries import KEY
from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.option_checks import flag_of
from fairseq_tiedemb.starts.trained import Trained, Weights

# Entries of tables and of what stands beside their rows; each band has a number.
TABLE = re.compile(r"(?:encoder|decoder)\.(?:embed_tokens|output_projection|output|fc_out|embed_out)(?:\.|$)")
BAND = re.compile(
    r"decoder\.(embed_tokens|adaptive_softmax)\.(?:embeddings\.(\d+)\.0|head\.word_proj|tail\.(\d+)\.2)\."
)
# Output layers of which nothing but rows is made from the words.
HEADS = ("softmax", "adaptive", "mixture", "joint", "nce", "sampled")
# Options by which a table has other rows than one for each word of a dictionary.
OTHER_ROWS = ("merge_src_tgt_embed", "character_embeddings")
BANDS = ("adaptive_input", "adaptive_softmax_cutoff")


@dataclass(frozen=True)
class NewRows:
    """How the rows of new words start; without both, they are drawn as those of a new model.

    Attributes:
        vectors: rows of the input tables, and of what is tied to them, by word.
        pieces: words of the old dictionary by new word, whose mean row is the new row in every table.
    """

    vectors: Mapping[str, Any] = field(default_factory=dict)
    pieces: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def flag(self) -> str:
        """The option that brings them."""
        return "--vectors" if self.vectors else "--pieces"

    def of(self, word: str, key: str, old: Tensor, index: Mapping[str, int]) -> Tensor | None:
        """The row of a new word in a table, or None if it is drawn; ``index`` has the rows of old words.

        Raises:
            ValueError: for vectors of another width, and pieces that the old dictionary lacks.
        """
        if word in self.vectors and key.endswith("embed_tokens.weight"):
            row = torch.from_numpy(self.vectors[word]).to(old)
            if row.shape != old[0].shape:
                raise ValueError(
                    f"--vectors: needs vectors as wide as {key}, {old.size(1)}; got {len(row)}. Use another file."
                )
            return row
        if word not in self.pieces:
            return None
        lacking = [piece for piece in self.pieces[word] if piece not in index]
        if lacking:
            raise ValueError(
                f"--pieces: needs pieces that the training's dictionary has; got {lacking[0]!r} of {word!r}. Use the "
                "segmentation of the training."
            )
        return old[[index[piece] for piece in self.pieces[word]]].mean(0)


class Vocabulary:
    """The words of a model's rows.

    Args:
        model: the model.
        task: its task, with the dictionaries.
    """

    def __init__(self, model: Any, task: Any):
        self.model = model
        self.sides = {"source": task.source_dictionary, "target": task.target_dictionary}
        self.all = {word for words in self.sides.values() for word in words.symbols}

    def side(self, key: str) -> Any:
        """The dictionary that an entry's rows belong to."""
        is_source = key.startswith("encoder.") or not hasattr(self.model, "encoder")
        return self.sides["source" if is_source else "target"]

    def words(self, key: str) -> list[str]:
        """The words of an entry's rows, if it has one for each; empty for an entry that is none of a table."""
        band, words = BAND.match(key), self.side(key).symbols
        if band is None:
            return words if TABLE.match(key) else []
        number = int(band[2]) if band[2] else int(band[3]) + 1 if band[3] else 0
        ends = [0, *getattr(self.model.decoder, band[1]).cutoff]
        return words[ends[number] : ends[number + 1]]


def extend(trained: Trained, dictionaries: Sequence[Path], rows: NewRows) -> tuple[dict[str, Any], str]:
    """Returns the checkpoint of the same model for another dictionary, and what became of the words.

    Words of both dictionaries keep their rows. New words get the rows of a new model, or those of ``rows``; the mean
    of the old output biases; and the count in their dict.txt, by which noise words are drawn. Bands keep their ends,
    but for the last, which grows.

    Args:
        trained: the model.
        dictionaries: dict.txt of a language model, or of both languages; or of source and target.
        rows: how the rows of new words start.

    Raises:
        ValueError: if another part of the model is made from the words, a word would change its band, or ``rows`` have
            no new word.
    """
    _check(trained, dictionaries, rows)
    task = _task(trained, dictionaries)
    paths = {name: None for name in ("encoder_embed_path", "decoder_embed_path") if hasattr(trained.options, name)}
    new = trained.built(task, **paths)
    before, after = Vocabulary(trained.model, trained.task), Vocabulary(new, task)
    added = after.all - before.all
    started = len(added & {*rows.vectors, *rows.pieces})
    if (rows.vectors or rows.pieces) and not started:
        raise ValueError(f"{rows.flag}: needs words that --dictionary adds; got none of {len(added):,}. Leave it out.")
    drawn = {key: entry.clone() for key, entry in new.state_dict().items()}

    def convert(old: Weights) -> Weights:
        entries: dict[str, Tensor] = {}
        first: dict[tuple[int, torch.Size], str] = {}  # a tied table has several names, and one start
        for key in filter(old.__contains__, drawn):
            known = first.setdefault((old[key].data_ptr(), old[key].shape), key)
            entries[key] = entries.get(known, old[key])
            if known == key:
                entries[key] = _entry(key, old[key], drawn[key], before, after, rows)
        return entries

    state = trained.start(new, convert, **paths)
    of_task = trained.settings["task"]
    options = {**(of_task if isinstance(of_task, Mapping) else vars(of_task)), "data": str(dictionaries[0].parent)}
    state["cfg"]["task"] = options if isinstance(of_task, Mapping) else type(of_task)(**options)
    kept = {key: value for key, value in (state.get("task_state") or {}).items() if key != "dictionary"}
    state["task_state"] = {**kept, KEY: task.state_dict()[KEY]}
    of_rows = f", {started:,} of them by {rows.flag}" if started else ""
    lost = len(before.all - after.all)
    return state, f"{len(after.all) - len(added):,} words as before, {len(added):,} new{of_rows}, {lost:,} left out"


def read_pieces(path: Path) -> dict[str, list[str]]:
    """Returns the pieces of each word in a text with lines ``word piece piece ...``.

    Raises:
        ValueError: naming the first line of another form.
    """
    pieces = {}
    for number, line in read_lines(path, flag="--pieces"):
        word, *parts = line.split() or [""]
        if not parts:
            raise ValueError(
                f"--pieces: needs lines of a word and its pieces; got {line.rstrip()[:60]!r} in line {number} of "
                f"{path}. Use lines such as `lower low@@ er`."
            )
        pieces[word] = parts
    return pieces


def _check(trained: Trained, dictionaries: Sequence[Path], rows: NewRows) -> None:
    """Raises ValueError for a model or options that do not go with another dictionary."""
    options = trained.options
    head = getattr(options, "output_layer", None) or "softmax"
    if head not in HEADS:
        raise ValueError(
            f"CHECKPOINT: needs an output layer whose rows alone are made from the words, {', '.join(HEADS)}; got "
            f"--output-layer {head}. Use a new training with --dictionary's words."
        )
    refused = {name: getattr(options, name, None) for name in OTHER_ROWS}
    refused["output_dictionary_size"] = max(0, getattr(trained.of_task, "output_dictionary_size", 0))
    for name, value in refused.items():
        if value:
            raise ValueError(
                f"CHECKPOINT: needs tables with a row for each word of a dictionary; got {flag_of(name)} {value}. Use "
                "a new training."
            )
    for name in (*BANDS, *(["embedding_rank"] if rows.vectors else [])):
        if (rows.vectors or rows.pieces) and getattr(options, name, None):
            raise ValueError(
                f"{rows.flag}: needs tables of one width, as wide as the vectors; got {flag_of(name)} "
                f"{getattr(options, name)}. Leave it out."
            )
    most = 2 if hasattr(trained.model, "encoder") else 1
    if len(dictionaries) > most:
        raise ValueError(
            f"--dictionary: needs {most} at most, for {'source and target' if most == 2 else 'a language model'}; got "
            f"{len(dictionaries)}. Use the new dict.txt."
        )


def _task(trained: Trained, dictionaries: Sequence[Path]) -> Any:
    """Returns the training's task with other dictionaries."""
    from fairseq import tasks

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our tasks)

    options = copy.deepcopy(trained.of_task)
    names = ["dict.txt"]
    if hasattr(trained.model, "encoder"):
        names = [f"dict.{options.source_lang}.txt", f"dict.{options.target_lang}.txt"]
    with tempfile.TemporaryDirectory() as folder:
        for name, path in zip(names, [*dictionaries, dictionaries[0]], strict=False):
            load_dictionary(path, flag="--dictionary")
            shutil.copy(path, Path(folder, name))
        options.data = folder
        return tasks.setup_task(options)


def _entry(key: str, old: Tensor, drawn: Tensor, before: Vocabulary, after: Vocabulary, rows: NewRows) -> Tensor:
    """An entry of the new model: of rows by word, else unchanged.

    Raises:
        ValueError: for a word that is in another band than before.
    """
    was, now = before.words(key), after.words(key)
    if not was or old.dim() == 0 or (len(old), len(drawn)) != (len(was), len(now)):
        return old
    index = {word: row for row, word in enumerate(was)}
    kept = [row for row, word in enumerate(now) if word in index]
    others = [row for row, word in enumerate(now) if word not in index]
    moved = BAND.match(key) and next((now[row] for row in others if now[row] in before.side(key).indices), None)
    if moved:
        raise ValueError(
            f"--dictionary: needs words that stay in the band of their rows; got {moved!r}, which another band of "
            f"{key} has. Use a dictionary that has the new words after the old ones."
        )
    entry = drawn.to(old.dtype, copy=True)
    if key.endswith(".bias"):
        entry[others] = old.mean(0)
    elif key.endswith(".counts"):
        entry[others] = torch.tensor([after.side(key).count[after.side(key).index(now[row])] for row in others]).to(old)
    elif old.dim() == 2:
        for row in others:
            start = rows.of(now[row], key, old, index)
            entry[row] = entry[row] if start is None else start
    entry[kept] = old[[index[now[row]] for row in kept]]
    return entry
