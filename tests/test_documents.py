"""What the project says of itself: links, names, commands and code in its texts; the tutorial from top to bottom."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.cli import COMMANDS, create_parser
from fairseq_tiedemb.models._recipe import CONFIG
from fairseq_tiedemb.outputs import OUTPUT_HEADS
from fairseq_tiedemb.regularizers import REGULARIZERS
from fairseq_tiedemb.sharing import SHARING_METHODS

from .documents import REPOSITORY, blocks, broken_links, commands, texts

README = REPOSITORY / "README.md"
TUTORIAL = REPOSITORY / "examples/tutorial/README.md"
MODELS = REPOSITORY / "fairseq_tiedemb/models/README.md"
CONTRIBUTING = REPOSITORY / ".github/CONTRIBUTING.md"
PARSERS: dict[str, Callable[[], object]] = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": lambda: options.get_generation_parser(interactive=True),
    "fairseq-eval-lm": options.get_eval_lm_parser,
}


def words(text: str) -> list[str]:
    """The words of a text, tables included, without blocks of code, results' marks, and targets of links."""
    prose = re.sub(
        r"^```.*?^```[^\n]*$|^    [^\n]*$|<!--.*?-->|(?<=\])\([^)]*\)", "", text, flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"[A-Za-z0-9][^\s|]*", prose)


def test_readme_is_read_in_three_minutes() -> None:
    assert len(words(README.read_text(encoding="utf-8"))) <= 700


def test_a_cell_of_readme_is_no_paragraph() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    cells = [cell for line in lines if line.startswith("|") for cell in line.split("|")]
    assert [cell for cell in cells if len(words(cell)) > 12] == []
    assert len(cells) > 100


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_paths_that_contributors_are_told_exist() -> None:
    """`tests/reference.py`, from the top of the project; what has capitals is a pattern."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    named = re.findall(r"`((?:fairseq_tiedemb|recipes|tests|examples)/[^`\s]*|[A-Z]+\.md)`", text)
    patterns = {name for name in named if "NAME" in name}
    missing = [name for name in named if name not in patterns and not (REPOSITORY / name).exists()]
    assert (missing, len(named) > 30, len(patterns)) == ([], True, 2)


@pytest.mark.parametrize("path", [README, TUTORIAL], ids=["README", "tutorial"])
def test_commands_are_accepted(path: Path, tmp_path: Path) -> None:
    """By the parsers of the commands themselves, with every flag."""
    found = commands(path, tmp_path)
    assert {"fairseq-train", "fairseq-generate", "fairseq-eval-lm", "fairseq-preprocess"} <= {each[0] for each in found}
    for program, *words in found:
        if program == "fairseq-tiedemb":
            create_parser().parse_args(words)
        elif program == "fairseq-preprocess":
            options.get_preprocessing_parser().parse_args(words)
        elif program in PARSERS:
            options.parse_args_and_arch(PARSERS[program](), words)


def test_the_presets_have_their_place() -> None:
    """Those of this package's own files by name; fairseq's with `tied_` before their names are too many."""
    text = MODELS.read_text(encoding="utf-8")
    table = text[: text.index("## Recipes")]
    row = {
        name
        for line in table.splitlines()
        if line.startswith("| `") and "--arch" not in line
        for name in written_out(line.split("|")[1])
    }
    assert {path.stem for path in CONFIG.glob("*.yaml")} - row == set()
    assert {name for name in row if "*" not in name} - set(ARCH_MODEL_REGISTRY) == set()


def written_out(cell: str) -> set[str]:
    """The presets of a cell: `lstm_nmt`, `_wt` is `lstm_nmt` and `lstm_nmt_wt`; `each` ties all that stand before."""
    names: list[str] = []
    for name in re.findall(r"each `_wt`|`([^`]+)`", cell.replace("each `_wt`", "`each`")):
        if name == "each":
            names += [f"{each}_wt" for each in names]
        elif name.startswith("_"):
            names += stems(names[0], name)
        else:
            names.append(name)
    return set(names)


def stems(first: str, ending: str) -> list[str]:
    """`_medium` after `zaremba_lm_small` takes the place of its last part where that is a preset, or is added."""
    choices = [first + ending, first.rpartition("_")[0] + ending, "_".join(first.split("_")[:2]) + ending]
    return [name for name in choices if name in ARCH_MODEL_REGISTRY][:1] or [first + ending]


def test_methods_layers_and_commands_have_their_place() -> None:
    text = MODELS.read_text(encoding="utf-8")
    rows = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`([\w-]+)`", line)}
    assert {*SHARING_METHODS, *OUTPUT_HEADS} - rows == set(), "Add their rows to fairseq_tiedemb/models/README.md."
    assert {each.flag for each in REGULARIZERS.values()} - set(re.findall(r"`(--[\w-]+)`", text)) == set()
    listed = (REPOSITORY / "fairseq_tiedemb/cli/README.md").read_text(encoding="utf-8")
    assert {name for name in COMMANDS if not re.search(rf"`{name}[` ]|, `{name}|`{name}\b", listed)} == set()


def test_readmes_python_prints_what_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = blocks(README, "python")[0], blocks(README, "text")[0]
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert len(code.splitlines()) <= 12


def test_readmes_installation_is_of_a_clone(tmp_path: Path) -> None:
    """pip itself is run by test_install.py."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("This is no clone.")
    install = blocks(README, "sh")[0].replace("ADDRESS", str(REPOSITORY))
    pip = tmp_path / "programs" / "pip"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\necho "$PWD" "$@" && test -f setup.py\n')
    pip.chmod(0o755)
    assert shell(install, tmp_path, pip.parent).stdout == f"{tmp_path}/tied install .\n"


def test_readmes_other_commands_exist(tmp_path: Path) -> None:
    """Targets of make, and the recipe, which prints what it would run."""
    lines = "".join(blocks(README, "sh")[1:]).splitlines()
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    rules = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "test"]
    assert [name for name in targets if not re.search(rf"^{name}: ", rules, re.MULTILINE)] == []
    [recipe] = [line for line in lines if "recipes/" in line]
    dry = f"cd {REPOSITORY}; export DRY_RUN=1 RUNS={tmp_path}; {recipe}"
    assert "--arch zaremba_lm_small_wt" in shell(dry, tmp_path).stdout


def test_the_committed_picture_is_the_drawn_one(tmp_path: Path) -> None:
    drawn = tmp_path / "sharing.svg"
    subprocess.run([sys.executable, REPOSITORY / "recipes/draw_sharing.py", drawn], check=True)
    assert drawn.read_text() == (REPOSITORY / "recipes/figures/sharing.svg").read_text(), "Use make report."


def shell(script: str, folder: Path, programs: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script with the commands of this interpreter's environment and the plugin of this checkout."""
    path = [str(programs)] if programs else []
    path += [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(path), "PYTHONPATH": str(REPOSITORY), "CHECKOUT": str(REPOSITORY)}
    command = ["bash", "-euo", "pipefail", "-x"]
    done = subprocess.run(command, input=script, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return done


@pytest.mark.slow
def test_the_pages_are_made_and_ask_nothing_of_a_network(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    done = subprocess.run([sys.executable, REPOSITORY / ".ci/make_docs.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Warn" not in done.stderr
    pages = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.glob("**/*.html")}
    assert "both input embedding" in pages["fairseq_tiedemb.html"]
    for name in ("sharing", "models/attention_nmt", "outputs/classes", "cli/export"):
        assert f"fairseq_tiedemb/{name}.html" in pages
    loaded = [name for name, page in pages.items() if re.search(r"""(src|@import|url\()\s*=?\s*["']?https?://""", page)]
    assert loaded == []
    for name in ("tutorial/README", "README"):
        assert f'href="examples/{name}.html"' in pages["index.html"]
    assert 'href="fairseq_tiedemb/compat/README.html' in pages["index.html"]
    texts = {name: page for name, page in pages.items() if "<nav><a href" in page}
    assert len(texts) > 10
    broken = [(name, link) for name, page in texts.items() for link in broken_hrefs(tmp_path / name, page)]
    assert broken == []


def broken_hrefs(path: Path, page: str) -> list[str]:
    """Links of a page to files or headings that are not there."""
    broken = []
    for name, anchor in re.findall(r'(?:href|src)="(?!\w+:)([^"#]*)#?([^"]*)"', page):
        target = path.parent / name if name else path
        if not target.exists() or (anchor and f'"{anchor}"' not in target.read_text(encoding="utf-8")):
            broken.append(f"{name}#{anchor}")
    return broken


@pytest.mark.slow
def test_the_tutorial_from_top_to_bottom(tmp_path: Path) -> None:
    done = shell("\n".join(blocks(TUTORIAL, "bash")), tmp_path)
    assert len((tmp_path / "scores.txt").read_text().splitlines()) == 100
    assert "Loaded checkpoint runs/lm/checkpoint_last.pt (epoch 3 @" in done.stdout, "resumed"
    assert "--sharing-method was plain in its training, and is cosine now" in done.stdout
    report = (tmp_path / "report/report.html").read_text()
    assert re.findall(r"<text[^>]*>(lm|nmt)</text>", report) == ["lm", "nmt"], "learning curves of both runs"
    for name in ("curves.png", "attention.png", "norms.png", "vectors.txt", "report/report.html", "stock.pt"):
        assert (tmp_path / name).stat().st_size > 0, name
    for run in ("lm", "lm-en", "nmt", "nmt-cosine", "transformer", "transformer-l2", "hydra"):
        assert (tmp_path / "runs" / run / "checkpoint_last.pt").exists(), run


@pytest.mark.slow
def test_readmes_commands_run_as_printed(tmp_path: Path) -> None:
    """On a few lines; only training is cut short."""
    corpus = REPOSITORY / "examples/number_words/grammar.py"
    subprocess.run([sys.executable, corpus, tmp_path, "--train=300", "--valid=20", "--test=20"], check=True)
    for split in ("train", "valid", "test"):
        shutil.copy(tmp_path / f"{split}.en", tmp_path / f"{split}.txt")
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs" / "fairseq-train"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fairseq_cli.train "$@" --max-update 3\n')
    program.chmod(0o755)
    done = shell("\n".join(blocks(README, "bash")), tmp_path, program.parent)
    assert "Perplexity" in done.stderr + done.stdout
    assert "BLEU4" in done.stdout
