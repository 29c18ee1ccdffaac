"""What `setup.py` asks for, and a real `pip install` into an empty environment, used from other folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
NAME = "fairseq_tiedemb"


def run(*command, check=True, cwd=None, stderr=subprocess.STDOUT, **variables):
    """Runs a command, with both its streams in `stdout` unless told, as if this checkout were on no path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", **variables}
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
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


# ---------------------------------------------------------------------------------------------------------------------
# make venv
# ---------------------------------------------------------------------------------------------------------------------

# A Python whose pip finds no network.
OFFLINE_PYTHON = """\
#!/bin/sh
case "$*" in
    --version) echo Python 3.12.0 ;;
    "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *pip*) echo no network >&2; exit 1 ;;
esac
"""


def make_venv(folder, python, check=False):
    return run(ROOT / ".ci" / "make_venv", folder, python, "torch", check=check)


def test_make_venv_names_a_python_that_is_not_there(tmp_path):
    process = make_venv(tmp_path / "venv", "python9.9")
    assert process.returncode == 1
    assert "PYTHON=python9.9: no such command. Use PYTHON=python3.11" in process.stdout


def test_make_venv_names_a_python_that_is_too_old(tmp_path):
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi\n')
    old.chmod(0o755)
    process = make_venv(tmp_path / "venv", old)
    assert process.returncode == 1
    assert f"PYTHON={old}: needs Python 3.11 or newer; got Python 3.9.2." in process.stdout


def test_make_venv_that_fails_leaves_nothing(tmp_path):
    offline = tmp_path / "offline"
    offline.write_text(OFFLINE_PYTHON)
    offline.chmod(0o755)
    process = make_venv(tmp_path / "venv", offline)
    assert process.returncode == 1
    assert "no network" in process.stdout
    assert "nothing half-made is left" in process.stdout
    assert not (tmp_path / "venv").exists()


def test_make_venv_that_fails_keeps_an_environment_that_was_there(tmp_path):
    offline = tmp_path / "venv" / "bin" / "python"
    offline.parent.mkdir(parents=True)
    offline.write_text(OFFLINE_PYTHON)
    offline.chmod(0o755)
    (tmp_path / "venv" / ".ready").touch()
    assert make_venv(tmp_path / "venv", offline).returncode == 1
    assert offline.exists()
    assert not (tmp_path / "venv" / ".ready").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Installed
# ---------------------------------------------------------------------------------------------------------------------


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


def install(python, folder, source) -> Environment:
    """`pip install .` with no compiler at hand; torch comes first, for its newest is gigabytes of CUDA."""
    run(python, "-m", "venv", folder)
    pip = (folder / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*pip, os.environ.get("TORCH", "torch==2.13.0"), CC="false", CXX="false")
    run(*pip, ".", cwd=source, CC="false", CXX="false")
    return Environment(folder)


@pytest.fixture(scope="module")
def environment(source, tmp_path_factory):
    return install(sys.executable, tmp_path_factory.mktemp("environment"), source)


@pytest.fixture(scope="module")
def another_python(source, tmp_path_factory):
    """The same with the other Python that fairseq has wheels for: OTHER_PYTHON, or what the path has."""
    name = os.environ.get("OTHER_PYTHON", "python3.12" if sys.version_info[:2] == (3, 11) else "python3.11")
    if not shutil.which(name) or run(name, "--version", check=False).returncode:
        pytest.skip(f"{name} is not here; OTHER_PYTHON says where it is")
    return install(name, tmp_path_factory.mktemp("another_python"), source)


@pytest.fixture
def other_copy(source, tmp_path):
    """Another copy of the package, outside the environment."""
    copy = tmp_path / "elsewhere" / NAME
    shutil.copytree(source / NAME, copy)
    return copy


@pytest.mark.slow
def test_every_file_is_installed(environment, source):
    def files(folder):
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files(environment.package) == files(source / NAME)


@pytest.mark.slow
def test_command_prints_the_installed_folder(environment, tmp_path):
    process = run(environment.bin / "fairseq-tiedemb", "path", cwd=tmp_path, stderr=None)
    assert process.stdout == f"{environment.package}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "user_dir"), [("environment", NAME), ("environment", "the folder"), ("another_python", NAME)]
)
def test_training_from_another_folder(python, user_dir, tmp_path, request):
    environment = request.getfixturevalue(python)
    for split in ("train", "valid"):
        (tmp_path / f"{split}.a").write_text("one two three\n" * 8)
        (tmp_path / f"{split}.b").write_text("three two one\n" * 8)
    user_dir = NAME if user_dir == NAME else environment.package
    shared = ("--user-dir", user_dir)
    run(
        *(environment.bin / "fairseq-preprocess", *shared, "--source-lang", "a", "--target-lang", "b"),
        *("--trainpref", "train", "--validpref", "valid", "--destdir", "bin", "--joined-dictionary"),
        cwd=tmp_path,
    )
    sizes = [f"--{side}={16}" for side in ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim")]
    sizes += ["--decoder-hidden-size=16", "--decoder-out-embed-dim=16"]
    training = run(
        *(environment.bin / "fairseq-train", "bin", *shared, "--arch", "lstm_nmt_twwt", *sizes, "--cpu"),
        *("--optimizer", "adam", "--max-tokens", "100", "--max-update", "2", "--save-dir", "checkpoints"),
        cwd=tmp_path,
    )
    assert "done training" in training.stdout
    generation = run(
        *(environment.bin / "fairseq-generate", "bin", *shared, "--gen-subset", "valid", "--cpu"),
        *("--path", "checkpoints/checkpoint_last.pt", "--skip-invalid-size-inputs-valid-test"),
        cwd=tmp_path,
    )
    assert generation.stdout.count("\nH-") == 8


@pytest.mark.slow
def test_a_checkout_is_used_from_its_own_folder(environment, other_copy):
    assert f"imported {other_copy}\n" in environment.user_dir(NAME, cwd=other_copy.parent)


@pytest.mark.slow
def test_another_copy_is_used_where_it_is_named(environment, other_copy, tmp_path):
    assert f"imported {other_copy}\n" in environment.user_dir(other_copy, cwd=tmp_path)
    # ... also where the installed copy comes first on the path of a program
    assert f"imported {other_copy}\n" in environment.user_dir(
        other_copy, cwd=tmp_path, PYTHONPATH=str(environment.package.parent)
    )


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
