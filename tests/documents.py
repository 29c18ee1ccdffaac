"""The texts of the project as tests read them: their blocks of code, their links, and the commands in them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
USER_DIR = REPOSITORY / "fairseq_tiedemb"
FOLDERS = ("", ".github", "examples", "fairseq_tiedemb", "recipes", "tests")
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A program that notes what it was called with, and does nothing; asked for the plugin's path, it tells that.
NOTES = """#!{python}
import json, pathlib, sys
with open({file!r}, "a") as file:
    file.write(json.dumps([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + chr(10))
if sys.argv[1:] == ["path"]:
    print({plugin!r})
"""
PROGRAMS = ("train", "generate", "interactive", "eval-lm", "preprocess", "hydra-train", "tiedemb")


def texts() -> list[Path]:
    """Every text of the project."""
    found = [path for folder in FOLDERS for path in (REPOSITORY / folder).glob("**/*.md" if folder else "*.md")]
    return [path for path in found if "checkpoints_0_1_0" not in path.parts]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a text in a language."""
    return [code for name, code in FENCED.findall(path.read_text(encoding="utf-8")) if name == language]


def anchors(path: Path) -> set[str]:
    """What links may name after `#`: GitHub's names of the headings, and names that the text gives."""
    text = path.read_text(encoding="utf-8")
    names = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    }
    return names | set(re.findall(r'<a name="([^"]+)">', text))


def broken_links(path: Path) -> list[str]:
    """Links of a text into the project that lead nowhere."""
    broken = []
    for link in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def commands(path: Path, folder: Path) -> list[list[str]]:
    """The words of each command of fairseq's and ours in the shell blocks of a text, as a shell makes them.

    Args:
        path: of the text.
        folder: an empty one, where the blocks run with programs that do nothing.
    """
    programs, notes = folder / "programs", folder / "notes"
    programs.mkdir()
    notes.touch()
    for name in (*(f"fairseq-{each}" for each in PROGRAMS), "subword-nmt", "sacrebleu", "python"):
        (programs / name).write_text(NOTES.format(python=sys.executable, file=str(notes), plugin=str(USER_DIR)))
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "CHECKOUT": str(REPOSITORY)}
    script = "\n".join(blocks(path, "bash"))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    subprocess.run(["bash"], input=script, text=True, cwd=folder, env=environment, capture_output=True)
    return [json.loads(line) for line in notes.read_text().splitlines()]
