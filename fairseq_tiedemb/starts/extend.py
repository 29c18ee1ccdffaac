"""Gives a trained model another dictionary: rows by word, and rows for its new words."""

import copy
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import tasks
from fairseq.data.dictionary import TruncatedDictionary
from torch import Tensor

from fairseq_tiedemb.checkpoints.dictionaries import KEY
from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.checkpoints.word_vectors import read_word_vectors
from fairseq_tiedemb.loading import load_dictionary
from fairseq_tiedemb.option_checks import flag_of
from fairseq_tiedemb.outputs import OUTPUT_HEADS
from fairseq_tiedemb.starts.trained import Trained, Weights

# Entries of bands, each of which has a number.
BAND = re.compile(
    r"decoder\.(embed_tokens|adaptive_softmax)\.(?:embeddings\.(\d+)\.0|head\.word_proj|head(?=\.weight)|tail\.(\d+)\.2)\."
)
BANDS = ("adaptive_input", "adaptive_softmax_cutoff")


class Side(NamedTuple):
    """A model and its task, with the old dictionary or with the new one."""

    model: Any
    task: Any

    def dictionary(self, key: str) -> Any:
        """The dictionary with the words of the rows of a state dict's entry."""
        reads = key.startswith("encoder.") or (not hasattr(self.model, "encoder") and "embed_tokens" in key)
        return self.task.source_dictionary if reads else self.task.target_dictionary

    def words(self, key: str) -> list[str]:
        """The words of the rows of a state dict's entry that has a row for each word."""
        dictionary, band = self.dictionary(key), BAND.match(key)
        # Of --output-dictionary-size, fewer; dict.txt may have a word of the name of one of fairseq's own.
        words = [f"\0{word}" for word in dictionary.symbols[: dictionary.nspecial]]
        words += dictionary.symbols[dictionary.nspecial : len(dictionary)]
        if band is None:
            return words
        number = int(band[2]) if band[2] else int(band[3]) + 1 if band[3] else 0
        ends = [0, *getattr(self.model.decoder, band[1]).cutoff]
        clusters = len(ends) - 2 if key.endswith(".head.weight") else 0  # rows after the words of the first band
        return [*words[ends[number] : ends[number + 1]], *(f"\0{cluster}" for cluster in range(clusters))]

    def all(self) -> set[str]:
        """The words of both dictionaries."""
        return {*self.task.source_dictionary.symbols, *self.task.target_dictionary.symbols}


def extend(
    trained: Trained, dictionaries: Sequence[Path], given: tuple[str, Path] | None = None
) -> tuple[dict[str, Any], str]:
    """Returns the checkpoint of the same model for another dictionary, and what became of the words.

    Words of both dictionaries keep their rows. Those of new words are a new model's, unless they are given; their
    biases are the mean of the old ones, and their counts those in dict.txt. Of bands, the last one grows.

    Args:
        trained: the model.
        dictionaries: dict.txt of a language model, or of both languages; or of source and target.
        given: a file of rows for new words: "--vectors" of input tables, and of what is tied to them; or "--pieces",
            old words by new word, whose mean row is the new row in every table.

    Raises:
        ValueError: if another part of the model is made from the words, a word would change its band, or none of the
            words with a given row is new.
    """
    flag, rows = (given[0], _read(*given)) if given else ("", {})
    _check(trained, dictionaries, flag)
    task = _task(trained, dictionaries)
    before, after = Side(trained.model, trained.task), Side(trained.built(task), task)
    added = after.all() - before.all()
    if given and not added & rows.keys():
        raise ValueError(f"{flag}: needs words that --dictionary adds; got none of {len(added):,}. Leave it out.")
    longer = _lengths_with_a_word_more(trained, dictionaries)
    drawn = {key: entry.clone() for key, entry in after.model.state_dict().items()}

    def convert(old: Weights) -> Weights:
        entries: dict[str, Tensor] = {}
        first: dict[tuple[int, torch.Size], str] = {}  # a tied table has several names, and one start
        for key in filter(old.__contains__, drawn):
            known = first.setdefault((old[key].data_ptr(), old[key].shape), key)
            if known != key:
                entries[key] = entries[known]
            elif BAND.match(key) or drawn[key].shape[:1] != longer.get(key):
                entries[key] = _entry(key, old[key], drawn[key], before, after, rows)
            else:
                entries[key] = old[key]
        return entries

    inferred = {name: getattr(task.cfg, name) for name in ("source_lang", "target_lang") if hasattr(task.cfg, name)}
    state = trained.start(after.model, convert, task={"data": str(dictionaries[0].parent), **inferred})
    state["task_state"] = {**(state.get("task_state") or {}), KEY: task.state_dict()[KEY]}
    state["task_state"].pop("dictionary", None)
    return state, _described(before, after, flag, rows)


def _described(before: Side, after: Side, flag: str, rows: Mapping[str, Any]) -> str:
    """What became of the words; of source and target, where it is not the same."""
    texts = {}
    for side in ("source", "target"):
        old, new = (set(getattr(each.task, f"{side}_dictionary").symbols) for each in (before, after))
        kept, added, left_out, given = map(len, (old & new, new - old, old - new, (new - old) & rows.keys()))
        of_given = f", {given:,} of them by {flag}" if given else ""
        texts[side] = f"{kept:,} words as before, {added:,} new{of_given}, {left_out:,} left out"
    both = "; ".join(f"{side}: {text}" for side, text in texts.items())
    return texts["source"] if texts["source"] == texts["target"] else both


def _read(flag: str, path: Path) -> Mapping[str, Any]:
    """Returns what a file of word vectors, or of lines ``word piece piece ...``, has for each word."""
    if not path.is_file():
        raise ValueError(f"{flag}: needs a file; got {path}, which is none. Use another path.")
    if flag == "--vectors":
        return read_word_vectors(path, flag=flag, kinds="word vectors as text")
    pieces = {}
    for number, line in read_lines(path, flag=flag):
        word, *parts = line.split() or [""]
        if not parts:
            got, use = f"{line.strip()!r} in line {number} of {path}", "lines such as `lower low@@ er`"
            raise ValueError(f"{flag}: needs lines of a word and its pieces; got {got}. Use {use}.")
        pieces[word] = parts
    return pieces


def _check(trained: Trained, dictionaries: Sequence[Path], flag: str) -> None:
    """Raises ValueError for a model or options that do not go with another dictionary, or with given rows (`flag`)."""
    if KEY not in trained.task.state_dict():
        got, use = f"--task {trained.config.task._name}", "a new training"
        raise ValueError(f"CHECKPOINT: needs a translation or language model; got {got}. Use {use}.")
    head = trained.options.get("output_layer") or "softmax"
    if not OUTPUT_HEADS.find(head, flag="--output-layer").extends:
        known = ", ".join(name for name, each in OUTPUT_HEADS.items() if each.extends)
        needs = f"an output layer whose rows alone are made from the words, {known}"
        raise ValueError(f"CHECKPOINT: needs {needs}; got --output-layer {head}. Use a new training.")
    for name in (*BANDS, *(["embedding_rank"] if flag == "--vectors" else [])):
        if flag and (value := trained.used(name)):
            raise ValueError(f"{flag}: needs tables as wide as the model; got {flag_of(name)} {value}. Leave it out.")
    most = 2 if hasattr(trained.model, "encoder") else 1
    if len(dictionaries) > most:
        raise ValueError(f"--dictionary: needs {most} at most for this model; got {len(dictionaries)}. Use one.")


def _task(trained: Trained, dictionaries: Sequence[Path]) -> Any:
    names, options = ["dict.txt"], copy.deepcopy(trained.config.task)
    if hasattr(trained.model, "encoder"):
        of_task = trained.task.cfg  # which knows languages that fairseq has inferred
        options.source_lang, options.target_lang = languages = of_task.source_lang, of_task.target_lang
        names = [f"dict.{language}.txt" for language in languages]
    with tempfile.TemporaryDirectory() as folder:
        for name, path in zip(names, [*dictionaries, dictionaries[0]], strict=False):
            load_dictionary(path, flag="--dictionary")
            shutil.copy(path, Path(folder, name))
        options.data = folder
        return tasks.setup_task(options)


def _lengths_with_a_word_more(trained: Trained, dictionaries: Sequence[Path]) -> dict[str, torch.Size]:
    """How long each entry is with a word more in each dictionary; one that is longer then has a row for each word."""
    task = _task(trained, dictionaries)
    for dictionary in (task.source_dictionary, task.target_dictionary):
        dictionary.add_symbol("\n")  # which no line of dict.txt has
        if isinstance(dictionary, TruncatedDictionary):  # of --output-dictionary-size
            dictionary.length += 1
    return {key: entry.shape[:1] for key, entry in trained.built(task).state_dict().items()}


def _entry(key: str, old: Tensor, drawn: Tensor, before: Side, after: Side, rows: Mapping[str, Any]) -> Tensor:
    """An entry of the new model, rows by word; ValueError for a word from another band."""
    was, now, words = before.words(key), after.words(key), after.dictionary(key)
    if (len(old), len(drawn)) != (len(was), len(now)):  # of an option of bands that has another size
        return old
    index = {word: row for row, word in enumerate(was)}
    new = [row for row, word in enumerate(now) if word not in index]
    moved = next((now[row] for row in new if BAND.match(key) and now[row] in before.dictionary(key).indices), None)
    if moved:
        needs, use = "words that stay in their bands", "a dictionary that has the new words after the old ones"
        raise ValueError(f"--dictionary: needs {needs}; got {moved!r}, which was not in that of {key}. Use {use}.")
    entry = drawn.to(old.dtype, copy=True)
    if key.endswith(".bias"):
        entry[new] = old.mean(0)
    elif key.endswith(".counts"):
        entry[new] = torch.tensor([words.count[words.index(now[row])] for row in new], dtype=old.dtype)
    elif old.dim() == 2:
        for row in new:
            if now[row] in rows:
                entry[row] = _row(rows[now[row]], entry[row], key, old, index)
    kept = [row for row, word in enumerate(now) if word in index]
    entry[kept] = old[[index[now[row]] for row in kept]]
    return entry


def _row(given: Any, drawn: Tensor, key: str, old: Tensor, index: Mapping[str, int]) -> Tensor:
    """The row of a word with a vector or pieces; ValueError for another width, and for a piece without a row."""
    if isinstance(given, list):
        if unknown := [piece for piece in given if piece not in index]:
            got, use = f"{unknown[0]!r} in {' '.join(given)!r}", "the segmentation of the training"
            raise ValueError(f"--pieces: needs pieces that the training's dictionary has; got {got}. Use {use}.")
        return old[[index[piece] for piece in given]].mean(0)
    if not key.endswith("embed_tokens.weight"):
        return drawn
    if len(given) != len(drawn):
        raise ValueError(f"--vectors: needs {len(drawn)} numbers a word, as the table; got {len(given)}. Use others.")
    return torch.from_numpy(given)
