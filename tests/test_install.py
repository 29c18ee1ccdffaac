"""What `setup.py` asks for, and a real `pip install` into an empty environment, used from other folders."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
NAME = "fairseq_tiedemb"


def run(*command, check=True, cwd=None, stderr=subprocess.STDOUT, **variables):
    """Runs a command, with both its streams in `stdout` unless told, as if this checkout were on no path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", **variables}
    process = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    if check:
        assert process.returncode == 0, process.stdout
    return process


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what a fresh clone has, so that building leaves nothing in this checkout."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / NAME, folder / NAME, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def requirements(source, tmp_path_factory):
    """The requirements of a plain `pip install`."""
    info = tmp_path_factory.mktemp("info")
    run(sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", info, cwd=source)
    metadata = next(info.glob("*.egg-info/PKG-INFO")).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line.partition(": ")[2]) for line in metadata if line.startswith("Requires-Dist: ")]
    return [requirement for requirement in found if "extra" not in str(requirement.marker)]


@pytest.mark.parametrize(
    ("version", "platform", "machine", "implementation", "expected"),
    [
        ("3.11", "linux", "x86_64", "cpython", "ve-fairseq"),
        ("3.12", "linux", "x86_64", "cpython", "ve-fairseq"),
        ("3.13", "linux", "x86_64", "cpython", "fairseq-fixed"),
        ("3.12", "linux", "aarch64", "cpython", "fairseq-fixed"),
        ("3.12", "darwin", "arm64", "cpython", "fairseq-fixed"),
        ("3.12", "darwin", "x86_64", "cpython", "fairseq-fixed"),
        ("3.11", "linux", "x86_64", "pypy", "fairseq-fixed"),
    ],
)
def test_exactly_one_fairseq_is_chosen(requirements, version, platform, machine, implementation, expected):
    environment = {
        "python_version": version,
        "sys_platform": platform,
        "platform_machine": machine,
        "implementation_name": implementation,
    }
    chosen = [
        requirement.name
        for requirement in requirements
        if "fairseq" in requirement.name and requirement.marker.evaluate(environment)
    ]
    assert chosen == [expected]


def test_no_requirement_pins_one_version(requirements):
    assert requirements
    assert {specifier.operator for requirement in requirements for specifier in requirement.specifier} == {">="}


def test_a_package_without_version_is_not_built(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    (tmp_path / "source" / NAME / "__init__.py").write_text("")
    process = run(sys.executable, "setup.py", "egg_info", cwd=tmp_path / "source", check=False)
    assert process.returncode != 0
    assert f"{NAME}/__init__.py: needs a line `__version__" in process.stdout


class Environment:
    """A virtual environment with fairseq_tiedemb installed by pip."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = folder / "bin"
        self.package = next(folder.glob("lib/python3.*/site-packages")) / NAME

    def user_dir(self, *user_dirs, before="", check=True, cwd, **variables):
        """Imports user dirs, one after the other, as every command of fairseq does, and prints where they came from."""
        program = f"""
import argparse, logging
logging.disable()
from fairseq import utils
{before}
for user_dir in {[str(user_dir) for user_dir in user_dirs]}:
    utils.import_user_module(argparse.Namespace(user_dir=user_dir))
import os, {NAME}
from fairseq.models import MODEL_REGISTRY
assert "lstm_nmt" in MODEL_REGISTRY
print("imported", os.path.realpath(os.path.dirname({NAME}.__file__)))
"""
        return run(self.bin / "python", "-c", program, check=check, cwd=cwd, **variables).stdout


def install(python, folder, source, *first) -> Environment:
    """`pip install .` with no compiler at hand; torch comes first, for its newest is gigabytes of CUDA."""
    run(python, "-m", "venv", folder)
    pip = (folder / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*pip, *(first or [os.environ.get("TORCH", "torch==2.13.0")]), CC="false", CXX="false")
    run(*pip, ".", cwd=source, CC="false", CXX="false")
    return Environment(folder)


CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def cpu_build(python, version):
    """What to install for a torch (None: the newest) without CUDA, from pip's own index or torch's.

    Skips where neither has one, for PyPI's brings gigabytes of CUDA; CUDA_TORCH=1 takes that.
    """
    if os.environ.get("CUDA_TORCH"):
        return [f"torch=={version}" if version else "torch"]
    for index in ((), ("--extra-index-url", CPU_INDEX)):
        # No wheel is fetched: `index versions` reads the names of the files.
        listing = run(python, "-m", "pip", "index", "versions", "torch", "--retries", "0", *index, check=False).stdout
        found = re.findall(r"[\d.]+\+cpu", listing)
        chosen = f"{version}+cpu" if version else max(found, key=Version, default=None)
        if chosen in found:
            return [*index, f"torch=={chosen}"]
    pytest.skip(f"no index has torch {version or 'of any version'} for CPUs; CUDA_TORCH=1 takes PyPI's, of 6 GB")


def python_named(name):
    """A Python of the path; skips where it is not, or is a shim without one behind it."""
    if not shutil.which(name) or run(name, "--version", check=False).returncode:
        pytest.skip(f"{name} is not here")
    return name


# Both ends of what setup.py takes. fairseq has no wheel for newer Pythons, and is compiled there.
@pytest.fixture(scope="module", params=["oldest", "newest"])
def end_of_the_range(request, source, tmp_path_factory):
    """The oldest torch and numpy with the oldest Python; the newest with the newest one that fairseq has wheels for."""
    oldest = request.param == "oldest"
    python = python_named("python3.11" if oldest else os.environ.get("OTHER_PYTHON", "python3.12"))
    torch = cpu_build(python, "2.6.0" if oldest else None)
    folder = tmp_path_factory.mktemp(request.param)
    return install(python, folder, source, *torch, "numpy==1.26.*" if oldest else "numpy")


@pytest.fixture(scope="module")
def environment(source, tmp_path_factory):
    return install(sys.executable, tmp_path_factory.mktemp("environment"), source)


@pytest.fixture(scope="module")
def another_python(source, tmp_path_factory):
    """The same with the other Python that fairseq has wheels for: OTHER_PYTHON, or what the path has."""
    name = os.environ.get("OTHER_PYTHON", "python3.12" if sys.version_info[:2] == (3, 11) else "python3.11")
    return install(python_named(name), tmp_path_factory.mktemp("another_python"), source)


@pytest.fixture
def other_copy(source, tmp_path):
    """Another copy of the package, outside the environment."""
    copy = tmp_path / "elsewhere" / NAME
    shutil.copytree(source / NAME, copy)
    return copy


@pytest.mark.slow
def test_every_file_is_installed(environment, source, tmp_path):
    def files(folder):
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files(environment.package) == files(source / NAME)
    process = run(environment.bin / "fairseq-tiedemb", "path", cwd=tmp_path, stderr=None)
    assert process.stdout == f"{environment.package}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "user_dir"), [("environment", NAME), ("environment", "the folder"), ("another_python", NAME)]
)
def test_training_from_another_folder(python, user_dir, tmp_path, request):
    train_and_generate(request.getfixturevalue(python), user_dir, tmp_path)


@pytest.mark.slow
def test_both_ends_of_the_range(end_of_the_range, tmp_path):
    train_and_generate(end_of_the_range, NAME, tmp_path)
    python = end_of_the_range.bin / "python"
    run(python, "-m", "pip", "--quiet", "install", "pytest")
    tests = ("test_compat.py", "test_compat_inputs.py", "test_losses.py", "test_embedding.py", "models")
    run(
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(ROOT / "tests" / name for name in tests)),
        cwd=ROOT,
        PYTHONDONTWRITEBYTECODE="1",
    )


def train_and_generate(environment, user_dir, folder):
    """Preprocesses, trains and translates with the commands of an environment, in another folder."""
    for split in ("train", "valid"):
        (folder / f"{split}.a").write_text("one two three\n" * 8)
        (folder / f"{split}.b").write_text("three two one\n" * 8)
    user_dir = NAME if user_dir == NAME else environment.package
    shared = ("--user-dir", user_dir)
    run(
        *(environment.bin / "fairseq-preprocess", *shared, "--source-lang", "a", "--target-lang", "b"),
        *("--trainpref", "train", "--validpref", "valid", "--destdir", "bin", "--joined-dictionary"),
        cwd=folder,
    )
    sizes = [f"--{side}={16}" for side in ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim")]
    sizes += ["--decoder-hidden-size=16", "--decoder-out-embed-dim=16"]
    training = run(
        *(environment.bin / "fairseq-train", "bin", *shared, "--arch", "lstm_nmt_twwt", *sizes, "--cpu"),
        *("--optimizer", "adam", "--max-tokens", "100", "--max-update", "2", "--save-dir", "checkpoints"),
        cwd=folder,
    )
    assert "done training" in training.stdout
    generation = run(
        *(environment.bin / "fairseq-generate", "bin", *shared, "--gen-subset", "valid", "--cpu"),
        *("--path", "checkpoints/checkpoint_last.pt", "--skip-invalid-size-inputs-valid-test"),
        cwd=folder,
    )
    assert generation.stdout.count("\nH-") == 8


@pytest.mark.slow
def test_another_copy_is_used_where_it_is_named(environment, other_copy, tmp_path):
    installed = str(environment.package.parent)  # which may come first on the path of a program
    for user_dir, cwd, variables in (
        (NAME, other_copy.parent, {}),
        (other_copy, tmp_path, {}),
        (other_copy, tmp_path, {"PYTHONPATH": installed}),
    ):
        assert f"imported {other_copy}\n" in environment.user_dir(user_dir, cwd=cwd, **variables)


@pytest.mark.slow
def test_the_installed_copy_is_accepted_in_every_spelling(environment, tmp_path):
    output = environment.user_dir(NAME, environment.package, NAME, before=f"import {NAME}", cwd=tmp_path)
    assert f"imported {environment.package}\n" in output


@pytest.mark.slow
def test_a_second_copy_is_refused(environment, other_copy, tmp_path):
    output = environment.user_dir(NAME, other_copy, check=False, cwd=tmp_path)
    assert f"--user-dir: needs the folder of one copy of {NAME}; got {other_copy}" in output
    output = environment.user_dir(
        NAME, before=f"import {NAME}", check=False, cwd=tmp_path, PYTHONPATH=other_copy.parent
    )
    assert f"got {environment.package}, but {other_copy} is the copy that is imported" in output


@pytest.mark.slow
def test_a_clone_that_has_the_packages_name_does_not_stand_for_the_installed_copy(environment, other_copy, tmp_path):
    clone = tmp_path / NAME
    clone.mkdir()
    shutil.move(other_copy, clone / NAME)
    output = environment.user_dir(NAME, check=False, cwd=tmp_path)
    assert f"got {clone}, but {environment.package} is the copy that is imported" in output
    assert f"Use --user-dir {clone / NAME}." in output


@pytest.mark.slow
def test_a_checkout_with_nothing_installed(environment, other_copy):
    run(environment.bin / "python", "-m", "pip", "--quiet", "uninstall", "--yes", "fairseq-tiedemb")
    assert not environment.package.exists()
    assert f"imported {other_copy}\n" in environment.user_dir(NAME, cwd=other_copy.parent)
    path = run(environment.bin / "python", "-m", f"{NAME}.cli", "path", cwd=other_copy.parent, stderr=None)
    assert path.stdout == f"{other_copy}\n"
