"""Checkpoints whose files say two things, or of which a small one asks for gigabytes or minutes: refused by name."""

import io
import random
import re
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.models.speech_to_text.xm_transformer import XMTransformerModel

from fairseq_tiedemb.checkpoints import files, limits
from fairseq_tiedemb.compat.checkpoints import UNSAFE

from .checkpoint_forge import Call, Global, Saved, archive, encoded, number_type, tensor
from .checkpoint_fuzz import UNREAD, directory_of, ended, moved, two_archives
from .conftest import RunCommand


def read(data: bytes) -> dict[str, Any]:
    return files.read_file(io.BytesIO(data), "forged.pt")


def saved(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"forged\.pt: needs .*{message}"):
        read(data)


def entries(opcodes: bytes) -> bytes:
    """An archive with one entry, which these opcodes leave."""
    return archive(b"}(" + encoded("entry") + opcodes + b"u")


def repeated(value: Any, opcodes: bytes, times: int) -> bytes:
    """An archive whose pickle has a list of a value, remembered at 0, and of what these opcodes make of it."""
    return entries(b"](" + encoded(value) + b"q\0" + opcodes * times + b"e")


# --- one file, two archives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("unread", UNREAD)
def test_a_second_archive_in_front_is_refused(unread: bytes, zip64: bool) -> None:
    steps = unread[2:].partition(b"s.")[0] + b"s"
    data = two_archives(archive(steps + b"." + bytes(999)), archive(encoded({"a": "c"})), zip64)
    with zipfile.ZipFile(io.BytesIO(data)) as examined:
        assert b"c" in examined.read("archive/data.pkl")
    refused(data, "an archive that can be read in two ways")


@pytest.mark.parametrize("zip64", [False, True])
def test_an_archive_behind_other_data_is_refused(zip64: bool) -> None:
    whole = archive(encoded({"a": 1}))
    start, headers = directory_of(whole)
    assert read(ended(whole[:start], headers, start, zip64)) == {"a": 1}
    before = whole[:30]
    shifted = [moved(header, len(before)) for header in headers]
    refused(before + whole, "an archive that can be read in two ways")
    twice = ended(before + whole[:start], shifted, start + len(before), zip64)
    refused(twice, "an archive that can be read in two ways")


def test_compressed_parts_are_refused() -> None:
    data = random.Random(1).randbytes(10_000)
    refused(archive(encoded({}), zipfile.ZIP_BZIP2, _0=data), "an archive whose parts are compressed")


def test_numbers_of_a_machine_of_the_other_order_of_bytes_are_read() -> None:
    numbers = torch.tensor([1.5, -2.0, 3.0, 1e-9])
    state = {"entry": tensor(shape=(4,), stride=(1,))}
    data = archive(encoded(state), _0=numbers.numpy().byteswap().tobytes())
    assert not torch.equal(read(data)["entry"], numbers)
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for name, part in {**parts, "archive/byteorder": b"big"}.items():
            new.writestr(name, part)
    assert torch.equal(read(buffer.getvalue())["entry"], numbers)


# --- gigabytes and minutes -------------------------------------------------------------------------------------------

WORDS = {"symbols": ["a"] * 50_000, "count": [1] * 50_000}
COUNTS = {f"{number}": number for number in range(30_000)}
GREEDY = {
    # opcodes: what is called, the value that is remembered at 0 for its argument, the call
    "bytes": ("x" * 10**6, encoded(Global("_codecs.encode")) + b"h\0" + encoded("latin1") + b"\x86R"),
    "settings": (COUNTS, encoded(Global("argparse.Namespace")) + b")\x81h\0b"),
    "words": (WORDS, encoded(Global("fairseq.data.dictionary.Dictionary")) + b")\x81h\0b"),
    "counts": (COUNTS, encoded(Global("collections.Counter")) + b"h\0\x85R"),
    "a set": ([*range(30_000)], encoded(Global("builtins.set")) + b"h\0\x85R"),
    "an array": (
        bytes(10**6),
        encoded(Call("numpy._core.multiarray._reconstruct", (Global("numpy.ndarray"), (0,), b"b")))
        + b"("
        + encoded(1)
        + encoded((125_000,))
        + encoded(number_type())
        + b"\x89h\0tb",
    ),
    "a key": (tuple(range(30_000)), b"}h\0Ns"),
}


@pytest.mark.parametrize("name", GREEDY)
def test_what_is_said_once_is_not_copied_many_times(name: str) -> None:
    value, opcodes = GREEDY[name]
    assert len(read(repeated(value, opcodes, 2))["entry"]) == 3
    refused(repeated(value, opcodes, 300), r"its calls are given [\d,]+ bytes, of a pickle of [\d,]+")


def test_an_array_that_is_said_many_times_is_one() -> None:
    array = np.arange(5.0)
    first, second = read(saved({"arrays": [array, array]}))["arrays"]
    assert first is second
    assert type(first) is np.ndarray


@pytest.mark.parametrize(
    ("keys", "count"),
    [([number * (2**61 - 1) for number in range(1, 99)], 99), ([(1, number) for number in range(9)], 8)],
)
def test_keys_that_may_all_have_one_hash_are_refused(
    keys: list[Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TUPLES", 8)
    refused(archive(encoded({"entry": dict.fromkeys(keys, 1)})), "a dictionary's key with")
    refused(archive(encoded({"entry": Call("builtins.set", (keys,))})), "set with")
    fewer = dict.fromkeys([key for key in keys if not isinstance(key, int) or key < 2**63][:count], 1)
    assert read(archive(encoded({"entry": fewer}))) == {"entry": fewer}


def test_what_holds_itself_is_refused() -> None:
    refused(entries(b"]q\0h\0a"), "an entry that holds itself")
    refused(entries(b"}q\0X\1\0\0\0ah\0s"), "an entry that holds itself")


def test_tensors_of_a_small_file_are_small_together() -> None:
    expanded = {f"weight{number}": torch.ones(1).expand(2**20, 4) for number in range(300)}
    refused(saved({"model": expanded}), r"a file of [\d,]+ bytes whose tensors would fill [\d,]+ and more")
    shared = torch.ones(2**18)
    assert len(read(saved({"model": {str(layer): shared for layer in range(24)}}))["model"]) == 24


def test_texts_of_settings_are_short_together() -> None:
    refused(saved({"cfg": {"x": ["a" * 10_000] * 200}}), "at most 1,000,000 characters; got 1,0[0-9,]+ at 'x'")


def test_a_text_is_no_longer_than_its_file() -> None:
    """Python would make room for it before it reads."""
    data = b"\x80\x02" + encoded(files.LEGACY[0]) + b".\x80\x02" + encoded(1001) + b".\x80\x02B\xff\xff\xff\x7f"
    file = io.BufferedReader(Longest(data))
    with pytest.raises(ValueError, match=r"old\.pt: needs a whole checkpoint"):
        files.read_file(file, "old.pt")
    assert Longest.asked <= max(len(data), 2**18)


class Longest(io.BytesIO):
    """A file that knows how many bytes it was asked for at once."""

    asked = 0

    def readinto(self, room: Any) -> int:
        Longest.asked = max(self.asked, len(room))
        return super().readinto(room)


# --- kinds of tensors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qint8", "quint4x2", "bits8", "uint1", "float8_e4m3fn", "complex32"])
def test_kinds_of_numbers_without_arithmetic_are_refused_by_name(kind: str) -> None:
    storage = Saved(kind="torch.storage.UntypedStorage", count=16)
    hooks = Call("collections.OrderedDict", ())
    value = Call("torch._utils._rebuild_tensor_v3", (storage, 0, (4,), (1,), False, hooks, Global(f"torch.{kind}")))
    refused(archive(encoded({"entry": value})), rf"dense tensors of plain numbers.* got torch\.{kind}\. Use")


def test_numbers_without_a_class_of_storages_are_read() -> None:
    counts = torch.tensor([1, 2**16 - 1], dtype=torch.uint16)
    assert torch.equal(read(saved({"counts": counts}))["counts"], counts)


@pytest.mark.parametrize("value", [Global("collections.OrderedDict"), Saved()])
def test_classes_and_storages_are_no_entries(value: Any) -> None:
    refused(archive(encoded({"entry": value})), "an entry with")


def test_text_of_python_2_is_read() -> None:
    assert read(entries(b"U\5caf\xc3\xa9")) == {"entry": "café"}


# --- fairseq's own reading -------------------------------------------------------------------------------------------


def test_the_decoder_that_settings_name_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of xm_transformer, also where somebody sets the variable after the plugin's import."""
    monkeypatch.setenv(UNSAFE, "1")
    path = tmp_path / "decoder.pt"
    path.write_bytes(archive(encoded({"cfg": Call("posix.mkdir", (str(tmp_path / "ran"),))})))
    with pytest.raises(ValueError, match=r"decoder\.pt: needs .* got posix\.mkdir, which could run code"):
        XMTransformerModel.build_model(Namespace(load_pretrained_decoder_from=str(path)), None)
    assert not (tmp_path / "ran").exists()


# --- any of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 300), *(pytest.param(seed, 5000, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_changed_checkpoints_are_refused_or_plain(seed: int, count: int, run_command: RunCommand) -> None:
    process = run_command("tests.checkpoint_fuzz", seed, count, cwd=Path(__file__).parent.parent, timeout=1200)
    refusals, plain, loaded = map(int, re.findall(r"\d+", process.stdout)[:3])
    assert refusals > count / 3
    assert plain > count / 10
    assert loaded > count / 20
