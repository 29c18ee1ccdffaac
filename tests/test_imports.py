"""Imports point one way, and the mathematics need torch alone, or numpy alone."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fairseq_tiedemb"
# From the bottom up; a layer may import itself and what stands before it.
LAYERS = [
    "ngram",
    "table_names",
    "terminal",
    "reading",
    "products",
    "compat",
    "registry",
    "sharing",
    "squared_norms",
    "losses",
    "head",
    "scored_rows",
    "regularizers",
    "embedding",
    "modules",
    "outputs",
    "models",
    "criterions",
    "optim",
    "tasks",
    "analysis",
    "export",
    "vectors",
    "results",
    "cli",
]
NUMPY_ONLY = {"ngram", "table_names", "terminal"}
TORCH_ONLY = {
    "products",
    "registry",
    "sharing",
    "head",
    "squared_norms",
    "losses",
    "scored_rows",
    "regularizers",
    "embedding",
    "modules",
    "outputs",
}
TORCH_AND_NUMPY = {"reading"}
# Of a folder that needs torch alone until they are imported.
NUMPY_FILES = {"outputs/binary_trees.py"}
# What imports fairseq, or is there to do so.
FAIRSEQ_ONLY = {"compat", "plugin", "user_dir"}
SOURCES = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LAYERS]


def imported(path: Path) -> set[str]:
    """Absolute names of the modules that a file imports."""
    package = ("fairseq_tiedemb", *path.parent.relative_to(PACKAGE).parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def layer_of(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "fairseq_tiedemb" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = imported(path)
    layers = {layer for name in names if (layer := layer_of(name))}
    assert {layer for layer in layers if LAYERS.index(layer) > LAYERS.index(own)} == set()
    roots = {name.split(".")[0] for name in names}
    if own in NUMPY_ONLY:
        assert roots <= {"fairseq_tiedemb", "numpy", *sys.stdlib_module_names}
    if own in NUMPY_ONLY | TORCH_ONLY | TORCH_AND_NUMPY:
        assert {name.split(".")[1] for name in names if name.startswith("fairseq_tiedemb.")}.isdisjoint(FAIRSEQ_ONLY)
    if path.relative_to(PACKAGE).as_posix() in NUMPY_FILES:
        assert roots <= {"numpy", *sys.stdlib_module_names}
    elif own in TORCH_ONLY:
        assert roots <= {"fairseq_tiedemb", "torch", *sys.stdlib_module_names}
    if own in TORCH_AND_NUMPY:
        assert roots <= {"fairseq_tiedemb", "numpy", "torch", *sys.stdlib_module_names}


@pytest.mark.parametrize("folder", ["models", "criterions", "optim", "tasks"])
def test_folders_that_register_import_the_plugin_first(folder: str) -> None:
    # Else it comes with fairseq while the first file that imports fairseq is half imported.
    statements = ast.parse((PACKAGE / folder / "__init__.py").read_text()).body
    first = next(node for node in statements if isinstance(node, ast.Import | ast.ImportFrom))
    assert ast.unparse(first) == "from .. import plugin as plugin"


def test_the_walk_sees_imports() -> None:
    assert layer_of("fairseq_tiedemb.modules.cells.GRU") == "modules"
    assert "fairseq_tiedemb.models._embedding_roles.embedding_roles" in imported(
        PACKAGE / "models" / "attention_nmt.py"
    )
    assert "fairseq_tiedemb.modules.cells.CELLS" in imported(PACKAGE / "models" / "attention_nmt.py")
