"""Reading checkpoints: damaged, forged or greedy files are refused by name, whole ones give what was saved.

Both ways in are tried: fairseq's `load_checkpoint_to_cpu`, behind every command, and `read_checkpoint`, behind ours.
"""

import argparse
import io
import random
import re
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models.speech_to_text.xm_transformer import XMTransformerModel

from fairseq_tiedemb.checkpoints import files
from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.compat.checkpoints import UNSAFE

from .checkpoint_forge import Call, Global, Saved, archive, encoded, number_type, numpy_array, tensor

READERS: list[Callable[[Path], Any]] = [
    lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
    lambda path: read_checkpoint(path, flag="CHECKPOINT"),
]
LEGACY = {"_use_new_zipfile_serialization": False}


def checkpoint(**changes: Any) -> dict[str, Any]:
    """What fairseq's trainer saves, as far as loading reads it."""
    cfg = {"task": {"_name": "translation"}, "model": argparse.Namespace(_name="transformer", dropout=0.1)}
    history = [{"optimizer_name": "Adam", "lr_scheduler_state": {}, "num_updates": 1}]
    model = OrderedDict(weight=torch.randn(30, 20), bias=torch.zeros(3, dtype=torch.int64))
    state = {"args": None, "cfg": cfg, "model": model, "optimizer_history": history, "extra_state": {"epoch": 1}}
    return {**state, **changes}


def saved(path: Path, **changes: Any) -> Path:
    torch.save(checkpoint(**changes), path)
    return path


def refused(path: Path, message: str) -> None:
    """Both readers refuse a file, naming it."""
    for read in READERS:
        with pytest.raises(ValueError, match=rf"{re.escape(path.name)}: needs .*{message}"):
            read(path)


# --- whole files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, LEGACY])
@pytest.mark.parametrize("read", READERS)
def test_what_was_saved_is_read(read: Callable[[Path], Any], options: dict[str, Any], tmp_path: Path) -> None:
    table = torch.randn(8, 4)
    values = {
        "scalars": (np.float64(2.5), np.int64(-3), np.bool_(True), np.float16(0.5), np.uint8(255)),
        "arrays": [np.arange(6.0).reshape(2, 3), np.array([[True, False]]), np.array(3), np.zeros((0, 2), np.int32)],
        "order": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        "other machine": np.array([1.5, -2.0], dtype=">f4"),
        "tensors": [table, table[2:].t(), torch.tensor(1.0).half(), torch.ones(2).bfloat16(), torch.ones(2).bool()],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "empty": argparse.Namespace(),
        "kinds": [np.dtype(np.float32), torch.float16, torch.Size((2, 3)), {"a", "b"}, Counter("aab"), b"bytes"],
    }
    torch.save(checkpoint(extra_state={"train_iterator": {"epoch": 1}, **values}), tmp_path / "whole.pt", **options)
    read_values = read(tmp_path / "whole.pt")["extra_state"]
    assert [(type(x), x.dtype) for x in read_values["scalars"]] == [(type(x), x.dtype) for x in values["scalars"]]
    assert read_values["scalars"] == values["scalars"]
    for name in ("order", "other machine", *range(4)):
        new, old = (each[name] if isinstance(name, str) else each["arrays"][name] for each in (read_values, values))
        assert type(new) is np.ndarray
        np.testing.assert_array_equal(new, old, strict=name != "other machine")
    tensors = read_values["tensors"]
    assert all(torch.equal(new, old) for new, old in zip(tensors, values["tensors"], strict=True))
    assert tensors[0].untyped_storage().data_ptr() == tensors[1].untyped_storage().data_ptr()
    assert read_values["parameter"].requires_grad
    assert type(read_values["empty"]) is argparse.Namespace
    assert read_values["kinds"] == values["kinds"]


def test_what_was_read_is_saved_for_every_reader(tmp_path: Path) -> None:
    values = [np.float64(2.5), np.arange(3), argparse.Namespace(), argparse.Namespace(a=1), np.dtype("f4")]
    state = read_checkpoint(saved(tmp_path / "first.pt", extra_state={"values": [*values, Dictionary()]}), flag="X")
    torch.save(state, tmp_path / "second.pt")
    with zipfile.ZipFile(tmp_path / "second.pt") as file:
        assert b"fairseq_tiedemb" not in file.read("second/data.pkl")


@pytest.mark.parametrize("core", ["core", "_core"])
def test_torch_itself_reads_the_numbers_of_either_numpy(core: str) -> None:
    names = (f"numpy.{core}.multiarray.scalar", f"numpy.{core}.multiarray._reconstruct")
    scalar = Call(names[0], (number_type(), np.float64(2.5).tobytes()))
    array = Call(names[1], (Global("numpy.ndarray"), (0,), b"b"), numpy_array(data=np.arange(2.0).tobytes()).state)
    values = torch.load(io.BytesIO(archive(encoded([scalar, array]))), weights_only=True)
    assert (values[0], values[1].tolist(), values[1].sum()) == (2.5, [0.0, 1.0], 1.0)


def test_a_dictionary_of_words_is_read(tmp_path: Path) -> None:
    words = Dictionary(extra_special_symbols=["<lang>"])
    for word in ("the", "cat", "the"):
        words.add_symbol(word)
    state = read_checkpoint(saved(tmp_path / "words.pt", task_state={"dictionaries": [words]}), flag="X")
    (loaded,) = state["task_state"]["dictionaries"]
    assert type(loaded) is Dictionary
    assert vars(loaded) == vars(words)
    assert (loaded.index("cat"), loaded.index("dog"), loaded.count[loaded.index("the")]) == (6, words.unk(), 2)


# --- forged pickles --------------------------------------------------------------------------------------------------


def array_of(*state: Any) -> Call:
    return Call("numpy._core.multiarray._reconstruct", (Global("numpy.ndarray"), (0,), b"b"), state)


def words(state: dict[str, Any]) -> Call:
    return Call("fairseq.data.dictionary.Dictionary", (), state, new=True)


PICKLES = {
    "object array": (numpy_array(number=Call("numpy.dtype", ("O8", False, True))), r"numpy\.dtype with \('O8'"),
    "object flags": (number_type("f8", (3, "|", None, None, None, 8, 8, 63)), r"numpy\.dtype with .*63"),
    "fields": (number_type("f8", (3, "|", None, ("a",), {}, 8, 8, 0)), r"numpy\.dtype with .*a dict"),
    "flag": (Call("numpy.dtype", ("f8", "x")), r"numpy\.dtype with \('f8', 'x'\)"),
    "byte order": (number_type("f8", (3, "x", None, None, None, -1, -1, 0)), r"numpy\.dtype with .*'x'"),
    "short array": (numpy_array(data=bytes(15)), r"numpy array with .*15 bytes"),
    "long scalar": (Call("numpy._core.multiarray.scalar", (number_type(), bytes(9))), r"numpy array with .*9 bytes"),
    "scalar of text": (Call("numpy._core.multiarray.scalar", (number_type(), "x")), r"numpy\.scalar with .*'x'"),
    "new array": (Call("numpy.ndarray", ((2**40,),)), r"numpy\.ndarray with"),
    "array of a list": (Call("numpy._core.multiarray._reconstruct", (Global("numpy.ndarray"), [0], b"b")), "_reconstr"),
    "negative array": (numpy_array(shape=(-2, -1)), r"numpy\.ndarray with"),
    "many dimensions": (numpy_array(shape=(1,) * 40), r"numpy\.ndarray with"),
    "version of an array": (array_of("1", (2,), number_type(), False, bytes(16)), r"numpy\.ndarray with \('1'"),
    "half an array": (array_of(1, (2,)), r"numpy\.ndarray with"),
    "bytes of an array": (numpy_array(data="x"), r"numpy\.ndarray with .*'x'"),
    "words": (words({"symbols": [1], "count": [1]}), "Dictionary wi"),
    "word counts": (words({"symbols": ["a"], "count": []}), "Dict"),
    "word list": (words({"symbols": "a", "count": [1]}), "Dictionary"),
    "no words": (words({}), "Dictionary with a dict"),
    "special word": (words({"symbols": [], "count": [], "pad_word": 1}), "Dictionary wi"),
    "special number": (words({"symbols": [], "count": [], "pad_index": 9}), "Dictionary wi"),
    "unfilled words": (Call("fairseq.data.dictionary.Dictionary", (), new=True), "Dictionary with 'no words'"),
    "words from words": (Call("fairseq.data.dictionary.Dictionary", ("a",)), "Dictionary with"),
    # What torch itself refuses.
    "bytes": (Call("builtins.bytes", (2**40,)), "cannot be read .*takes 0 positional arguments"),
    "reading beyond": (tensor(Saved(count=5)), "cannot be read"),
    "growing": (tensor(shape=(2**31, 1)), "cannot be read .*resiz"),
    "offset": (tensor(offset=1), "cannot be read .*resiz"),
    "no such storage": (tensor(Saved(key="9")), "cannot be read .*data/9"),
    "a call of a number": (Call("torch.float32", ()), "cannot be read .*not callable"),
    "a state of a tensor": (Call("torch._utils._rebuild_tensor", (Saved(), 0, (4,), (1,)), (1,)), "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_a_forged_pickle_is_refused(name: str, tmp_path: Path) -> None:
    value, message = PICKLES[name]
    path = tmp_path / "forged.pt"
    path.write_bytes(archive(encoded({"entry": value})))
    refused(path, message)


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [(b"1", "Unsupported operand 49"), (b")K\x01a", "Can only append to lists, but got <class 'tuple'>")],
)
def test_other_steps_are_refused(opcodes: bytes, reason: str, tmp_path: Path) -> None:
    """The reason is torch's, without its advice to run what the file contains."""
    (tmp_path / "forged.pt").write_bytes(archive(opcodes))
    refused(
        tmp_path / "forged.pt", rf"a whole checkpoint; got one that cannot be read \({reason}.*\)\. Use another one"
    )


def test_an_array_that_is_said_many_times_is_one(tmp_path: Path) -> None:
    array = np.arange(5.0)
    path = saved(tmp_path / "arrays.pt", extra_state={"arrays": [array, array]})
    first, second = read_checkpoint(path, flag="X")["extra_state"]["arrays"]
    assert first is second
    assert type(first) is np.ndarray


def test_an_array_is_filled_once() -> None:
    array = numpy_array()
    twice = encoded(array) + encoded(array.state) + b"b"
    with pytest.raises(ValueError, match=r"numpy\.ndarray with"):
        files.read_file(io.BytesIO(archive(b"}(" + encoded("entry") + twice + b"u")), "forged.pt")


@pytest.mark.filterwarnings("ignore:.*sparse:UserWarning", "ignore:.*nested:UserWarning", "ignore:.*quant:UserWarning")
def test_only_dense_tensors_are_read(tmp_path: Path) -> None:
    others = {
        r"torch\.float32 \(torch\.sparse_coo, cpu\)": torch.eye(3).to_sparse(),
        r"torch\.float32 \(torch\.strided, meta\)": torch.ones(3, device="meta"),
        r"torch\.qint8 \(torch\.strided, cpu\)": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        r"torch\.float8_e4m3fn \(torch\.strided, cpu\)": torch.ones(3).to(torch.float8_e4m3fn),
    }
    message = r"dense tensors of plain numbers, float32 say; got weight of {}\. Use a checkpoint that was"
    for kind, other in others.items():
        path = saved(tmp_path / "other.pt", model={"weight": other})
        refused(path, message.format(kind))
    path = saved(path, model={"weight": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})
    by_torch = r"tensors, numbers, text and settings only; got torch\._utils\._rebuild_nested_tensor"  # from 2.15 on
    by_us = message.format(r"torch\.float32 \(.*, cpu\)")
    refused(path, f"({by_us}|{by_torch})")


def test_numbers_of_a_machine_of_the_other_order_of_bytes_are_read(tmp_path: Path) -> None:
    numbers, path = torch.tensor([1.5, -2.0, 3.0, 1e-9]), tmp_path / "other.pt"
    state = {"model": {"weight": tensor(shape=(4,), stride=(1,))}}
    path.write_bytes(archive(encoded(state), order=b"big", _0=numbers.numpy().byteswap().tobytes()))
    assert torch.equal(read_checkpoint(path, flag="X")["model"]["weight"], numbers)


# --- damaged and greedy files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, LEGACY])
def test_a_file_cut_anywhere_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    torch.save(checkpoint(), tmp_path / "whole.pt", **options)
    message = "a whole checkpoint; got one that cannot be read"
    if options:  # where a class's name may be cut, before torch sees the end
        message = rf"({message}|got [\w.]+, which could run code)"
    whole, cut = (tmp_path / "whole.pt").read_bytes(), tmp_path / "cut.pt"
    for length in {*range(0, len(whole), 61), *range(20), *(len(whole) - end for end in range(1, 30))}:
        cut.write_bytes(whole[:length])
        refused(cut, message)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "whole.pt")
    whole, start = path.read_bytes(), path.read_bytes().index(checkpoint_weight(path))
    for place in random.sample(range(start, start + 2400), 12):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.randrange(8)
        (tmp_path / "flipped.pt").write_bytes(flipped)
        refused(tmp_path / "flipped.pt", "cannot be read .Bad CRC-32 for file 'whole/data/0'")


def checkpoint_weight(path: Path) -> bytes:
    """The bytes of a checkpoint's weight."""
    return read_checkpoint(path, flag="X")["model"]["weight"].numpy().tobytes()


def error_of(read: Callable[[Any], Any], file: Any) -> str | None:
    """The text of the ValueError that reading ends in, if it does."""
    try:
        read(file)
    except ValueError as error:
        return str(error)
    return None


def test_an_archive_that_inflates_is_refused(tmp_path: Path) -> None:
    big = tensor(Saved(key="big", count=2**20), shape=(2**20,), stride=(1,))
    path = tmp_path / "inflated.pt"
    path.write_bytes(archive(encoded({"entry": big}), zipfile.ZIP_DEFLATED, big=bytes(2**22)))
    refused(path, r"an archive of [\d,]+ bytes that would fill 4,194,\d+")


def test_parts_of_storages_in_older_files_are_read() -> None:
    state = {"model": {"entry": tensor(Saved(more=(("1", 1, 2),)), shape=(2,), stride=(1,))}}
    pickles = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, state, ["0"])
    data = b"".join(b"\x80\x02" + encoded(each) + b"." for each in pickles) + (4).to_bytes(8, "little")
    read = files.read_file(io.BytesIO(data + torch.arange(4.0).numpy().tobytes()), "old.pt")
    assert read["model"]["entry"].tolist() == [1.0, 2.0]


def test_reading_leaves_the_classes_that_torch_may_read_as_they_were(tmp_path: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    read_checkpoint(saved(tmp_path / "whole.pt"), flag="X")
    assert set(torch.serialization.get_safe_globals()) == before


def test_classes_that_somebody_else_lets_torch_call_do_not_matter(tmp_path: Path) -> None:
    """torch's own message advises to allow numpy's, of which some then met stand-ins."""
    names = {"numpy.dtype": np.dtype, "numpy.ndarray": np.ndarray}
    names |= {
        f"numpy._core.multiarray.{name}": getattr(np._core.multiarray, name) for name in ("scalar", "_reconstruct")
    }
    allowed: list[Any] = [(value, name) for name, value in names.items()]
    path = saved(tmp_path / "whole.pt", extra_state={"numbers": [np.float64(2.5), np.arange(3)]})
    with torch.serialization.safe_globals([*allowed, (Path, "pathlib.Path"), *map(type, map(np.dtype, ("f8", "i8")))]):
        for _ in range(20):
            number, array = read_checkpoint(path, flag="X")["extra_state"]["numbers"]
            assert (number, array.tolist()) == (2.5, [0, 1, 2])
        (tmp_path / "path.pt").write_bytes(archive(encoded({"entry": Global("pathlib.Path")})))
        refused(tmp_path / "path.pt", r"got pathlib\.Path, which could run code")


def test_a_model_of_parameters_is_one_of_tensors(tmp_path: Path) -> None:
    table = torch.nn.Parameter(torch.randn(3, 2))
    model = read_checkpoint(saved(tmp_path / "model.pt", model={"in": table, "out": table}), flag="X")["model"]
    assert model["in"].data_ptr() == model["out"].data_ptr()
    assert model["in"].numpy().tolist() == table.tolist()


def test_another_protocol_of_pickle_is_named(tmp_path: Path) -> None:
    torch.save(checkpoint(), tmp_path / "other.pt", pickle_protocol=4)
    refused(tmp_path / "other.pt", r"Unsupported operand \d+: of another pickle_protocol than 2")


def test_a_text_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("the 1 2\n")
    refused(tmp_path / "vectors.txt", r"\(it begins with b'the ', as no file of torch.save does")


@pytest.mark.parametrize("value", ["1", "0"])
def test_the_decoder_that_settings_name_runs_no_code(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of xm_transformer, also where somebody sets the variable after the plugin's import."""
    monkeypatch.setenv(UNSAFE, value)
    path = tmp_path / "decoder.pt"
    path.write_bytes(archive(encoded({"cfg": Call("posix.mkdir", (str(tmp_path / "ran"),))})))
    with pytest.raises(ValueError, match=r"decoder\.pt: needs .* got posix\.mkdir, which could run code"):
        XMTransformerModel.build_model(argparse.Namespace(load_pretrained_decoder_from=str(path)), None)
    assert not (tmp_path / "ran").exists()
