"""Imports point one way, without a circle, and the mathematics need torch alone, or numpy alone."""

import ast
import graphlib
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "fairseq_tiedemb"
# From the bottom up; a layer may import itself and what stands before it. The package itself imports names on first
# use, and the plugin in a process that has fairseq.
CORE = (
    *(
        "_shapes",
        "precision",
        "products",
        "bfloat16",
        "registry",
        "sharing",
        "squared_norms",
        "kept",
        "loss_options",
        "loss_by_words",
        "objective",
        "loss_kernel",
        "loss_by_rows",
        "losses",
        "head",
        "constants",
        "scored_rows",
        "sparse_rows",
    ),
    *("regularizers", "embedding", "modules", "outputs"),
)
LAYERS = [
    *("option_checks", "terminal", "whole_files", "checkpoints", "ngram"),
    *CORE,
    *("huggingface_output", "huggingface"),
    "plan",
    *("wrapping", "compat", "training", "criterions", "optim", "tasks", "models", "plugin", "loading"),
    *("analysis", "export", "starts", "vectors", "results", "cli"),
    "fairseq_tiedemb",
]
# What a layer, or a file of it, may import besides Python's own modules and ours.
LIBRARIES = {
    **dict.fromkeys(["option_checks", "ngram", "terminal", "whole_files"], {"numpy"}),
    **dict.fromkeys([*CORE, "huggingface_output", "huggingface", "plan"], {"torch"}),
    "loss_kernel": {"torch", "triton"},
    "outputs/binary_trees.py": {"numpy"},
    "checkpoints": {"numpy", "torch"},
}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """Absolute names of the modules that a file imports, and of what it takes from them."""
    package = (PACKAGE.name, *path.parent.relative_to(PACKAGE).parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def layer_of(name: str) -> int | None:
    """Place of one of our modules, or of a name in it; None for a name in the package itself, such as its version."""
    parts = name.split(".")
    return LAYERS.index(parts[1]) if parts[0] == PACKAGE.name and len(parts) > 1 and parts[1] in LAYERS else None


def test_imports_point_up() -> None:
    for path in SOURCES:
        file = path.relative_to(PACKAGE).as_posix()
        own = layer_of(module_of(path)) if file != "__init__.py" else len(LAYERS) - 1
        assert own is not None, f"{file}: in which layer?"
        names = imported(path)
        assert [name for name in names if (layer_of(name) or 0) > own] == [], file
        allowed = LIBRARIES.get(file, LIBRARIES.get(LAYERS[own]))
        if allowed is not None:
            assert {name.split(".")[0] for name in names} <= {PACKAGE.name, *allowed, *sys.stdlib_module_names}, file


def imports_among_modules() -> dict[str, set[str]]:
    """The modules of ours that each of them imports, at once or in a function."""
    modules = {module_of(path): path for path in SOURCES}
    graph = {}
    for module, path in modules.items():
        needed = {name if name in modules else name.rpartition(".")[0] for name in imported(path)}
        graph[module] = needed & modules.keys() - {module}
    return graph


def test_no_import_comes_back_to_its_file() -> None:
    graphlib.TopologicalSorter(imports_among_modules()).prepare()


def test_who_imports_fairseq_mends_it() -> None:
    """Else fairseq would run settings of a checkpoint as code, for one."""
    mends, graph = LAYERS.index("compat"), imports_among_modules()
    mended = {module for module in graph if mends <= (layer_of(module) or 0) <= LAYERS.index("plugin")}
    for module in graphlib.TopologicalSorter(graph).static_order():
        if graph[module] & mended:
            mended.add(module)
    users = {module_of(path) for path in SOURCES if any(name.split(".")[0] == "fairseq" for name in imported(path))}
    # They look at a model that others have loaded.
    assert users - mended == {f"fairseq_tiedemb.analysis.{name}" for name in ("sentence_scores", "updates")}


def test_the_walk_sees_imports() -> None:
    assert layer_of("fairseq_tiedemb.modules.cells.GRU") == LAYERS.index("modules")
    names = imported(PACKAGE / "models" / "attention_nmt.py")
    assert {"fairseq_tiedemb.models._tables.build_tables", "fairseq_tiedemb.modules.cells.CELLS"} <= names
