"""Makes the documentation as pages: python .ci/make_docs.py FOLDER

README is the first page; the other texts of the project follow its links, and fairseq_tiedemb.html is the reference of
every public module and function, from the docstrings. The pages ask nothing of a network. Needs pdoc.
"""

import html
import importlib.util
import logging
import pkgutil
import re
import shutil
import sys
import warnings
from pathlib import Path

logging.disable()  # what commands say while they are imported
warnings.filterwarnings("ignore", r".* \S+\._is_param is taken from")  # an annotation of torch's tensors
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pdoc  # noqa: E402
from pdoc.render_helpers import to_html  # noqa: E402

import fairseq_tiedemb  # noqa: E402

FOLDERS = (".github", "examples", "fairseq_tiedemb", "recipes", "tests")
LOCAL = re.compile(r'(href|src)="(?!\w+:|#)([^"#]+)((?:#[^"]*)?)"')
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ max-width: 60em; margin: 1em auto; padding: 0 1em; font-family: system-ui, sans-serif; line-height: 1.5; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #bbb; padding: .2em .5em; text-align: left; }}
pre {{ background: #f4f4f4; padding: .6em; overflow-x: auto; }} img {{ max-width: 100%; }}
</style>
<nav><a href="{top}index.html">Overview</a> · <a href="{top}fairseq_tiedemb.html">Reference</a></nav>
{body}</html>
"""


def modules() -> list[str]:
    """The package and its parts, in which pdoc finds the modules, and, with an exclamation mark, what it leaves out."""
    found = [each.name for each in pkgutil.iter_modules(fairseq_tiedemb.__path__) if not each.name.startswith("_")]
    # PyPI's torch brings Triton on Linux; the build for CPUs does not.
    left_out = [] if importlib.util.find_spec("triton") else ["!fairseq_tiedemb.loss_kernel"]
    return ["fairseq_tiedemb", *(f"fairseq_tiedemb.{name}" for name in found), *left_out]


def page_of(text: Path) -> Path:
    """The page of a text, from the top: the text's place, but for README, which is the first page."""
    return Path("index.html") if text == ROOT / "README.md" else text.relative_to(ROOT).with_suffix(".html")


def write_text(text: Path, folder: Path) -> None:
    """Writes a text as a page, and the files that it links."""
    page = folder / page_of(text)
    top = "../" * (len(page_of(text).parts) - 1)

    def follow(found: re.Match[str]) -> str:
        attribute, link, anchor = found.groups()
        target = (text.parent / link).resolve()
        place = target.relative_to(ROOT)
        if target.suffix == ".md":
            return f'{attribute}="{top}{page_of(target)}{anchor}"'
        if target.is_dir():
            shutil.copytree(target, folder / place, dirs_exist_ok=True)
        else:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, folder / place)
        return f'{attribute}="{top}{place}{anchor}"'

    content = text.read_text(encoding="utf-8")
    title = html.escape(content.partition("\n")[0].strip("# "))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(PAGE.format(title=title, top=top, body=LOCAL.sub(follow, to_html(content))), encoding="utf-8")


def make(folder: Path) -> None:
    """Writes the pages."""
    importlib.import_module("fairseq_tiedemb.plugin")
    for name in fairseq_tiedemb.__all__:  # which the package imports when they are first used; pdoc looks for them
        setattr(fairseq_tiedemb, name, getattr(fairseq_tiedemb, name))
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*modules(), output_directory=folder)
    for text in [*ROOT.glob("*.md"), *(text for name in FOLDERS for text in (ROOT / name).rglob("*.md"))]:
        write_text(text, folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("make_docs: needs one FOLDER; got " + (" ".join(sys.argv[1:]) or "none") + ". Use build/docs.")
    make(Path(sys.argv[1]))
    print(f"{sys.argv[1]}/index.html")
