"""Where a result was measured: versions, commit, processor. Neither torch nor fairseq is imported for it."""

import contextlib
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import fairseq_tiedemb

REPOSITORY = Path(fairseq_tiedemb.__file__).resolve().parent.parent
FAIRSEQ = ("ve-fairseq", "fairseq-fixed", "fairseq")  # the names under which it is installed
PACKAGES = ("torch", "numpy", "sacrebleu")
# What a result depends on; what the report writes there does not count.
SOURCES = ("fairseq_tiedemb", "recipes", ":!recipes/results", ":!recipes/pages", ":!recipes/*.md")


def versions() -> dict[str, str]:
    """Versions of this package, Python and what a result depends on; of what is not installed, `none`."""
    own = {"fairseq_tiedemb": fairseq_tiedemb.__version__, "python": platform.python_version()}
    fairseq = next((f"{version} ({name})" for name in FAIRSEQ if (version := installed(name))), "none")
    return own | {"fairseq": fairseq} | {name: installed(name) or "none" for name in PACKAGES}


def installed(name: str) -> str | None:
    """The version of an installed package; None if it is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def checkout() -> tuple[str | None, bool | None]:
    """The commit of the package's checkout, and whether package or recipes differ from it; (None, None) without one."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no git, or a commit that is not there yet
        if (REPOSITORY / ".git").exists():
            return _git("rev-parse", "HEAD"), bool(_git("status", "--porcelain", "--", *SOURCES))
    return None, None


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError):  # no Linux
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if match := re.search(r"^model name[ \t]*:(.*)", text, re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
