"""Resolves ``PATH``, ``PATH:ROLE`` or ``PATH:TENSOR`` to tables of word vectors."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fairseq_tiedemb.checkpoints.dictionaries import fingerprints_of_training, is_another, side_of
from fairseq_tiedemb.checkpoints.files import CHECKPOINT_STARTS
from fairseq_tiedemb.checkpoints.reading import read_checkpoint, section_of
from fairseq_tiedemb.checkpoints.table_names import ROLES
from fairseq_tiedemb.vectors import huggingface
from fairseq_tiedemb.vectors.roles import named_table, tables_by_role
from fairseq_tiedemb.vectors.word_lists import read_rows, without_marks
from fairseq_tiedemb.vectors.word_table import WordTable, read_vectors


class Source(NamedTuple):
    """A table of word vectors on disk, as a user names it."""

    path: Path  # a checkpoint, a folder of transformers, a safetensors file, or vectors as text
    role: str | None = None  # a role of ``ROLES`` in a checkpoint; None for all tables of the decoder
    tensor: str | None = None  # the name of a matrix, instead of a role
    # The dictionary file; None for the one in the checkpoint's data folder or beside the checkpoint.
    dictionary: Path | None = None
    word_mark: str = ""  # prefix of words in the dictionary; entries without it are dropped

    def read(self) -> list[WordTable]:
        """Reads the table; without a role, all tables of the decoder."""
        if self.role is not None and self.tensor is not None:
            got = f"{self.tensor} and --role {self.role} for {self.path}"
            raise ValueError(f"--tensor: needs a table without a role; got {got}. Use one of them.")
        if os.path.isdir(self.path):
            return list(self._of_tensor_files())
        try:
            with self.path.open("rb") as file:
                start = file.read(4)
        except OSError as error:
            raise ValueError(f"TABLE: needs a file; got {self.path} ({error.strerror}). Use another path.") from None
        # First: a safetensors file begins with its header's length, whose first byte may be that of a pickle.
        if huggingface.is_tensor_file(self.path):
            return list(self._of_tensor_files())
        if start.startswith(CHECKPOINT_STARTS):
            return list(self._of_checkpoint())
        if self.role is not None:
            needs, got = "a checkpoint, whose tables have roles", f"{self.role} for {self.path}"
            raise ValueError(f"--role: needs {needs}; got {got}. Leave it out, or use PATH:ROLE with checkpoints.")
        if self.tensor is not None:
            needs, got = "a checkpoint or a safetensors file", f"{self.tensor} for {self.path}, a text"
            raise ValueError(f"--tensor: needs {needs}; got {got}. Leave it out, or use PATH:TENSOR with the others.")
        return [self._checked(read_vectors(self.path))]

    def _of_tensor_files(self) -> Iterator[WordTable]:
        if self.tensor is not None:
            matrices = {self.tensor: huggingface.read_matrix(self.path, self.tensor)}
        else:
            matrices = huggingface.tables_of_roles(self.path, self.role)
        dictionary = self.dictionary or huggingface.dictionary_beside(self.path)
        entries = words = without_marks(read_rows(dictionary))
        if self.dictionary is None and not self.word_mark:
            words = huggingface.whole_words(entries)
        needed = max(entries, default=-1) + 1
        for name, rows_VD in matrices.items():
            if needed > len(rows_VD):  # a table may be padded to a round number of rows
                raise self._misfit(dictionary, needed, rows_VD)
            yield self._table(name, words, rows_VD, dictionary=dictionary, pieces=len(entries) - len(words))

    def _of_checkpoint(self) -> Iterator[WordTable]:
        state = read_checkpoint(self.path, flag="TABLE")
        if self.tensor is not None:
            matrices = {self.tensor: named_table(state, self.tensor, path=self.path)}
        else:
            matrices = tables_by_role(state, self.role, path=self.path)
        trained_with = fingerprints_of_training(state.get("task_state"))
        counts = (state.get("task_state") or {}).get("word_counts")
        for name, rows_VD in matrices.items():
            side = "source" if name == "source" else side_of(name)
            dictionary = self.dictionary or self._dictionary_of(state, side)
            rows = read_rows(dictionary)
            pairs = str(section_of(state, "task").get("lang_pairs") or "")  # whose task adds a mark of each language
            if not 0 <= len(rows_VD) - 1 - max(rows, default=-1) <= len(set(re.findall(r"\w+", pairs))):
                raise self._misfit(dictionary, max(rows, default=-1) + 1, rows_VD)
            if is_another([rows[row] for row in sorted(rows)], trained_with.get(side)):
                needs = f"the {len(rows):,} words that {self.path} was trained with, in their order"
                got = f"{dictionary}, with other words or another order"
                raise ValueError(f"--dict: needs {needs}; got {got}. Use the training's dictionary.")
            kept = words = without_marks(rows)
            if counts is not None:  # --task word_pairs drops rare words and ends of sentences
                fewest = section_of(state, "task")["min_count"]
                kept = {row: word for row, word in words.items() if row < len(counts) and counts[row] >= fewest}
            yield self._table(name, kept, rows_VD, dictionary=dictionary, untrained=len(words) - len(kept))

    def _dictionary_of(self, state: dict[str, Any], side: str) -> Path:
        """Returns dict.txt, or dict.LANGUAGE.txt, beside the checkpoint or in the data folder of its training."""
        task = section_of(state, "task")
        folders = [self.path.parent, *(Path(folder) for folder in str(task.get("data") or "").split(":") if folder)]
        for folder in folders:
            # As fairseq infers it, by the name of the folder's text, train.SOURCE-TARGET.SOURCE.idx.
            texts = folder.glob("train.*-*.*.idx") if f"{side}_lang" in task else ()
            pairs = (path.name.split(".")[1].split("-") for path in texts)
            language = task.get(f"{side}_lang") or next((pair[side == "target"] for pair in pairs), None)
            name = f"dict.{language}.txt" if language else "dict.txt"
            if (folder / name).is_file():
                return folder / name
        needs, got = f"the words of {self.path}", f"no {name} in {', '.join(map(str, folders))}"
        raise ValueError(f"--dict: needs {needs}; got {got}. Use --dict with the training's dictionary.")

    def _misfit(self, dictionary: Path, words: int, rows_VD: Tensor) -> ValueError:
        needs = f"one word for each of the {len(rows_VD):,} rows of {self.path}"
        got = f"{words:,} in {dictionary}, including special symbols"
        return ValueError(f"--dict: needs {needs}; got {got}. Use the dictionary of these rows.")

    def _table(self, name: str, words: dict[int, str], rows_VD: Tensor, **about: Any) -> WordTable:
        rows = sorted({word: row for row, word in words.items()}.values())  # fairseq too takes the last of several
        kept = [words[row] for row in rows]
        return self._checked(WordTable(f"{self.path}:{name}", kept, rows_VD.numpy()[rows], **about))

    def _checked(self, table: WordTable) -> WordTable:
        """Returns the table without entries that lack `word_mark`."""
        if self.word_mark:
            rows = [row for row, word in enumerate(table.words) if word.startswith(self.word_mark)]
            words = [table.words[row].removeprefix(self.word_mark) for row in rows]
            table = replace(table, words=words, rows_VD=table.rows_VD[rows])
        if not table.words and not self.word_mark:
            needs, got = f"words of {self.path} that are no marks", "none"
            raise ValueError(f"--dict: needs {needs}; got {got}. Use the training's dictionary.")
        if not table.words:
            needs, got = f"the prefix of words in {self.path}", f"{self.word_mark!r}, with which no word begins"
            raise ValueError(f"--word-mark: needs {needs}; got {got}. Use another, or leave it out.")
        finite = np.isfinite(table.rows_VD).all(1)
        if not finite.all():
            needs, got = "finite numbers", f"{table.name} with inf or nan for {table.words[int(finite.argmin())]!r}"
            raise ValueError(f"TABLE: needs {needs}; got {got}. Use a checkpoint from before the training diverged.")
        return table


def parse_source(text: str, **options: Any) -> Source:
    """Parses ``PATH``, ``PATH:ROLE`` or ``PATH:TENSOR``; an existing file with a colon in its name is a path.

    ``options`` are the other attributes of ``Source``; `role` and `tensor` hold where the text names neither.
    """
    path, _, part = text.rpartition(":")
    if path and not os.path.exists(text):
        options |= {"role": part, "tensor": None} if part in ROLES else {"role": None, "tensor": part}
        text = path
    return Source(Path(text), **options)
