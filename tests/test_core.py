"""The package in fresh processes: without fairseq, before it, after it; and the hook that waits for it."""

import argparse
import ast
import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

import fairseq_tiedemb
from fairseq_tiedemb import _import_hook
from fairseq_tiedemb.analysis.checkpoints import read_checkpoint

from .hidden import ROOT, python, run_example, without_fairseq

EXAMPLES = ROOT / "examples" / "plain_pytorch"

# What another library would notice.
NOTICED = """
import logging, sys, warnings
import numpy.ma, numpy.typing, torch  # numpy.ma: numpy loads it when it is used
def noticed():
    root = logging.getLogger()
    return {
        "warnings": [*warnings.filters, warnings.showwarning],
        "numpy": [*sorted(vars(numpy)), numpy.percentile],
        "logging": [root.level, *root.handlers, *root.filters],
        "sys": [*sys.path, sys.excepthook],
        "torch": [torch.load, torch.get_default_dtype(), torch.initial_seed(), torch.is_grad_enabled()],
        "classes": {*torch.serialization.get_safe_globals()},  # torch keeps them in no order
    }
before = noticed()
"""
# Fails with the names of what has changed.
UNCHANGED = """
assert noticed() == before, [name for name, value in noticed().items() if value != before[name]]
"""
CORE = """
import importlib, pkgutil
from fairseq_tiedemb import *
import fairseq_tiedemb.analysis.checkpoints, fairseq_tiedemb.analysis.curves, fairseq_tiedemb.export.to_fairseq
import fairseq_tiedemb.analysis.norms, fairseq_tiedemb.reading.files
import fairseq_tiedemb.modules, fairseq_tiedemb.ngram, fairseq_tiedemb.vectors.sources
for each in pkgutil.iter_modules(fairseq_tiedemb.modules.__path__, "fairseq_tiedemb.modules."):
    importlib.import_module(each.name)
"""
USE = """
torch.manual_seed(1)
features, target = torch.randn(5, 4), torch.arange(5)
table = SharedEmbedding(6, 4, 0, method="cosine")
expected = torch.nn.functional.cross_entropy(table.scores(features), target, reduction="sum")
torch.testing.assert_close(table.loss(features, target).loss, expected)
expected = torch.nn.functional.cross_entropy(features @ table.weight.t(), target, reduction="sum")
torch.testing.assert_close(output_loss(features, table.weight, target).loss, expected)
assert table.embed(target).shape == (5, 4)
"""
# The commands that read checkpoints; fails if they have imported fairseq.
READ = """
import os
from fairseq_tiedemb.cli import main
path = sys.argv[1]
assert main(["norms", path]) == 0
assert main(["average", "--inputs", path, path, "--output", path + ".mean"]) == 0
assert main(["norms", path + ".mean"]) == 0
assert "fairseq" not in sys.modules
"""
SEPARATOR = "--- next"
DICTIONARY = f"""
import contextlib
from pathlib import Path
from fairseq_tiedemb.analysis.checkpoints import read_checkpoint
other = os.path.dirname(path) + "/y"
print("{SEPARATOR}")
print(read_checkpoint(Path(other), flag="X")["task_state"]["dictionaries"][0].symbols)
print("{SEPARATOR}")
with contextlib.redirect_stderr(sys.stdout):
    print(main(["average", "--inputs", other, "--output", other + ".mean"]))
print("{SEPARATOR}")
"""
NEED_FAIRSEQ = "plugin models tasks criterions optim compat models.transformer".split()
NEEDS = f"""
for name in 2 * {NEED_FAIRSEQ}:
    try:
        importlib.import_module(f"fairseq_tiedemb.{{name}}")
    except ModuleNotFoundError as error:
        print("{SEPARATOR}", name, error.name)
"""


# ---------------------------------------------------------------------------------------------------------------------
# Without fairseq
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A checkpoint with all that fairseq-train saves besides tensors."""
    cfg = {"task": {"_name": "translation"}, "model": argparse.Namespace(_name="transformer")}
    numbers = {"val_loss": np.float64(2.5), "order": np.arange(3)}
    torch.save({"cfg": cfg, "model": {"embed_tokens.weight": torch.ones(5, 4)}, "extra_state": numbers}, tmp_path / "x")
    return tmp_path / "x"


def test_neither_the_package_nor_its_commands_import_before_they_must():
    program = "import sys; from fairseq_tiedemb.cli import main; main(['path']); print(*sys.modules)"
    folder, loaded = python(program).split("\n", 1)
    assert folder == str(ROOT / "fairseq_tiedemb")
    assert {"fairseq", "torch", "numpy"}.isdisjoint(loaded.split())


def test_the_core_needs_torch_alone_and_changes_nothing_global(trained):
    """And reads checkpoints; one with a dictionary in it is not saved; what needs fairseq says so, each time."""
    state = read_checkpoint(trained, flag="X")
    torch.save({**state, "task_state": {"dictionaries": [Dictionary()]}}, trained.with_name("y"))
    again = "before = noticed()\n"
    program = NOTICED + CORE + UNCHANGED + USE + again + READ + UNCHANGED + DICTIONARY + NEEDS
    read, words, status, said, *needs = without_fairseq(program, str(trained)).split(SEPARATOR)
    assert read.count("embed_tokens.weight") == 2
    assert type(read_checkpoint(Path(f"{trained}.mean"), flag="X")["cfg"]["model"]) is argparse.Namespace
    assert words.strip() == str(Dictionary().symbols)
    assert "fairseq: needs to be installed where a checkpoint with a dictionary in it is saved" in status + said
    assert sorted(path.name for path in trained.parent.iterdir()) == ["x", "x.mean", "y"]
    assert [each.split() for each in needs] == [[name, "fairseq"] for name in 2 * NEED_FAIRSEQ]


def test_commands_that_read_checkpoints_leave_fairseq_alone(trained):
    assert python(NOTICED + READ + UNCHANGED, str(trained)).count("embed_tokens.weight") == 2


def test_counting_ngrams_needs_numpy_alone():
    loaded = without_fairseq("""
import contextlib, sys
from fairseq_tiedemb.cli import main
with contextlib.suppress(SystemExit):
    main(["ngram", "--help"])
print(*sys.modules)
""").split()
    assert "--order" in loaded
    assert "numpy" in loaded
    assert {"fairseq", "torch"}.isdisjoint(loaded)


def test_a_language_model_in_plain_pytorch():
    shorter = "import pydoc_data.topics as text; text.topics = dict([*text.topics.items()][::2])\n"
    command = (EXAMPLES / "language_model.py", "--method", "cosine", "--epochs", "1")
    printed = run_example(*command, before=shorter).splitlines()
    assert printed[0].startswith("cosine: ")
    types = int(printed[0].split(", ")[1].split()[0].replace(",", ""))
    assert float(printed[1].split()[-6]) < types / 10  # which chance would have


def test_a_table_under_the_head_of_a_hugging_face_model():
    pytest.importorskip("transformers")
    losses, said = run_example(EXAMPLES / "huggingface.py", "--method", "square-output").splitlines()
    ours, theirs = (float(part.split()[-1]) for part in losses.split(","))
    assert ours == pytest.approx(theirs, abs=2e-4)
    assert f'SENTENCE = "{said}"\n' in (EXAMPLES / "huggingface.py").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# With fairseq
# ---------------------------------------------------------------------------------------------------------------------

# First imports of a process; after each of them, fairseq is mended and has all that is ours.
FIRST_IMPORTS = (
    "import fairseq_tiedemb, importlib.util; importlib.util.find_spec('fairseq'); from fairseq.models import lstm",
    "from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM",
)
OTHER_FIRST_IMPORTS = (
    "from fairseq_tiedemb.compat.processes import cpu_process",
    "import fairseq_tiedemb, fairseq",
    "import fairseq, fairseq_tiedemb",
    "import fairseq_tiedemb.plugin",
    "import fairseq_tiedemb.user_dir, fairseq.utils",
    "from fairseq_tiedemb.tasks.contiguous_lm import ContiguousLMTask",
    "import fairseq_tiedemb.criterions",
    "import fairseq_tiedemb.optim",
    "import fairseq_tiedemb; fairseq_tiedemb.models",
)
# Each in a process of its own, forked from one that has imported what takes long, but neither fairseq nor us.
FORKS = """
import os, sys
import hydra, numpy, omegaconf, sacrebleu, sklearn, torch
for first in {first_imports}:
    if os.fork() == 0:
        try:
            exec(first)
            import fairseq
            from fairseq import checkpoint_utils, optim, tasks, utils
            names = {{
                *fairseq.models.MODEL_REGISTRY, *tasks.TASK_REGISTRY, *optim.OPTIMIZER_REGISTRY,
                *fairseq.criterions.CRITERION_REGISTRY,
            }}
            assert {{"tied_transformer", "highway_lm", "contiguous_lm", "fused_adam", "tied_cross_entropy"}} <= names
            assert numpy.float is float and checkpoint_utils.load_checkpoint_to_cpu._from_compat
            assert not hasattr(utils.import_user_module.__wrapped__, "__wrapped__")  # wrapped once
            assert fairseq.__loader__ is fairseq.__spec__.loader
            assert type(fairseq.__loader__).__module__ == "_frozen_importlib_external"
            assert not any("_import_hook" in type(finder).__module__ for finder in sys.meta_path)
            print("mended after", first, flush=True)
        except BaseException as error:
            print("not mended after", first, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize(
    "first_imports", [FIRST_IMPORTS, pytest.param(OTHER_FIRST_IMPORTS, marks=pytest.mark.slow)], ids=["main", "other"]
)
def test_the_plugin_comes_with_fairseq_in_whatever_order(first_imports):
    printed = python(FORKS.format(first_imports=first_imports)).splitlines()
    assert [line for line in printed if "mended" in line] == [f"mended after {first}" for first in first_imports]


def test_public_names_are_known_to_type_checkers():
    tree = ast.parse(Path(fairseq_tiedemb.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    names = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted([*fairseq_tiedemb._HOMES, *fairseq_tiedemb._MODULES])
    assert fairseq_tiedemb.__all__ == sorted(fairseq_tiedemb._HOMES)
    assert {*fairseq_tiedemb.__all__, "models", "__version__"} <= {*dir(fairseq_tiedemb)}
    for name in names:
        assert getattr(fairseq_tiedemb, name)


def test_names_are_those_of_their_modules():
    module = importlib.import_module("fairseq_tiedemb.losses")
    assert fairseq_tiedemb.output_loss is module.output_loss
    assert fairseq_tiedemb.sharing is sys.modules["fairseq_tiedemb.sharing"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fairseq_tiedemb' has no attribute 'SharedEmbeddings'"):
        _ = fairseq_tiedemb.SharedEmbeddings


# ---------------------------------------------------------------------------------------------------------------------
# The hook, on a package in fairseq's place and a module in the plugin's
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hook(tmp_path, monkeypatch):
    """The hook, waiting for the package `awaited`, which does not exist yet, to import the module `follower`."""
    monkeypatch.setattr(_import_hook, "FAIRSEQ", "awaited")
    monkeypatch.setattr(_import_hook, "PLUGIN", "follower")
    monkeypatch.setattr(_import_hook, "MENDS", "follower.mends")
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "follower.py").write_text("import awaited\nassert awaited.finished\n")
    _import_hook.load_plugin_with_fairseq()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ("awaited", "follower")]:
        del sys.modules[name]


def write_awaited(folder, text="from . import part\nfinished = True\n"):
    (folder / "awaited").mkdir(exist_ok=True)
    (folder / "awaited" / "__init__.py").write_text(text)
    (folder / "awaited" / "part.py").write_text("import sys\nassert 'follower' not in sys.modules\n")
    importlib.invalidate_caches()


def waits():
    return any(isinstance(finder, _import_hook.FairseqFinder) for finder in sys.meta_path)


def test_the_hook_is_inert_where_there_is_no_fairseq(hook, tmp_path):
    assert importlib.util.find_spec("awaited") is None
    with pytest.raises(ModuleNotFoundError, match="awaited"):
        importlib.import_module("awaited")
    (tmp_path / "awaited").mkdir()  # a folder that only has the name
    importlib.invalidate_caches()
    importlib.import_module("awaited")
    assert "follower" not in sys.modules
    _import_hook.load_plugin_with_fairseq()
    assert "follower" not in sys.modules


def test_who_looks_for_fairseq_does_not_use_the_hook_up(hook, tmp_path):
    write_awaited(tmp_path)
    for _ in range(2):
        assert importlib.util.find_spec("awaited").origin == str(tmp_path / "awaited" / "__init__.py")
    assert "follower" not in sys.modules
    importlib.import_module("awaited.part")
    assert "follower" in sys.modules
    assert not waits()


def test_two_hooks_do_not_ask_each_other_for_ever(hook, tmp_path):
    _import_hook.load_plugin_with_fairseq()
    write_awaited(tmp_path)
    module = importlib.import_module("awaited")
    assert "follower" in sys.modules
    assert not waits()
    assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"


def test_a_failed_import_can_be_made_again(hook, tmp_path):
    write_awaited(tmp_path, "raise OSError('on the first day')")
    with pytest.raises(OSError, match="on the first day"):
        importlib.import_module("awaited")
    write_awaited(tmp_path)
    (tmp_path / "follower.py").write_text("raise OSError('on the second')")
    with pytest.raises(OSError, match="on the second"):
        importlib.import_module("awaited")
    assert waits()
    (tmp_path / "follower.py").write_text("import awaited\n")
    importlib.import_module("awaited")
    assert "follower" in sys.modules
    assert not waits()


def test_mends_that_are_being_imported_load_the_plugin_themselves(hook, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "follower.mends", sys)
    write_awaited(tmp_path)
    importlib.import_module("awaited")
    assert "follower" not in sys.modules
    assert not waits()


def test_fairseq_that_is_there_is_mended_at_once(hook, tmp_path):
    write_awaited(tmp_path)
    importlib.import_module("awaited")
    del sys.modules["follower"]
    _import_hook.load_plugin_with_fairseq()
    assert "follower" in sys.modules
    assert not waits()
