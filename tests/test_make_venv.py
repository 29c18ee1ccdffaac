"""`make venv` and `make clean`: which Python and which torch they take, and what they leave where that fails."""

import shutil
import sys

import pytest

from .test_install import ROOT, run

# A Python whose pip finds no network.
OFFLINE_PYTHON = """\
#!/bin/sh
case "$*" in
    --version) echo Python 3.12.0 ;;
    "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *pip*) echo no network >&2; exit 1 ;;
esac
"""


def script(path, text):
    """A command of this text, in a folder of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_venv(folder, python, torch="torch", check=False):
    return run(ROOT / ".ci" / "make_venv", folder, python, torch, check=check)


# As pyenv's for a version that is not chosen, and one that says nothing at all.
SHIM = "#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2; exit 127\n"
NO_PYTHON = 'needs a Python; got a command that answers --version with "'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such command. Use PYTHON=python3.11"),
        ("#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2\n", "needs Python 3.11 or newer; got Python 3.9.2."),
        (SHIM, f'{NO_PYTHON}pyenv: python3.12: command not found" '),
        ("#!/bin/sh\nexit 0\n", f'{NO_PYTHON}" (status 0)'),
    ],
)
def test_make_venv_names_what_is_no_python(text, message, tmp_path):
    python = script(tmp_path / "python", text) if text else "python9.9"
    process = make_venv(tmp_path / "venv", python)
    assert process.returncode == 1
    assert f"PYTHON={python}: {message}" in process.stdout


def test_a_shim_without_a_python_is_found_before_anything_is_removed(tmp_path):
    path, checkout = script(tmp_path / "python", SHIM), tmp_path / "checkout"
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    shutil.copy(ROOT / "Makefile", checkout)
    (checkout / ".venv/bin").mkdir(parents=True)
    # The Python of the environment that goes is none for the next.
    (checkout / ".venv/bin/python9.9").symlink_to(sys.executable)
    for python, message in ((path, NO_PYTHON), ("python9.9", "no such command")):
        process = run("make", "clean", "venv", f"PYTHON={python}", cwd=checkout, check=False)
        assert process.returncode != 0
        assert f"PYTHON={python}: {message}" in process.stdout
        assert (checkout / ".venv").exists()
    run("make", "clean", f"PYTHON={path}", cwd=checkout)
    assert not (checkout / ".venv").exists()


# A Python whose pip writes down what it is to install; it has torch's own index, or not, with this torch, or not.
RECORDING_PYTHON = """\
#!/bin/sh
case "$*" in
    --version) echo Python 3.12.0 ;;
    "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *urllib*) exit {reachable} ;;
    *"pip "*) echo "$*" | sed 's/.* install //' >>{record}; case "$*" in *--index-url*) exit {has_build} ;; esac ;;
esac
"""


@pytest.mark.parametrize(
    ("torch", "reachable", "has_build", "first"),
    [
        ("torch==2.13.0", True, True, "--no-deps --index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu"),
        ("torch==2.13.0", True, False, "--no-deps --index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu"),
        ("torch==2.13.0", False, True, None),
        ("torch", True, True, None),  # the newest, as PyPI has it
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyPI's torch is for CPUs")
def test_make_venv_takes_a_torch_for_cpus_where_it_can(torch, reachable, has_build, first, tmp_path):
    record = tmp_path / "record"
    text = RECORDING_PYTHON.format(reachable=int(not reachable), has_build=int(not has_build), record=record)
    process = make_venv(tmp_path / "venv", script(tmp_path / "python", text), torch, check=True)
    installed = record.read_text().splitlines()
    assert installed[-2] == f"{torch} setuptools wheel cython numpy"
    assert installed[:-2] == [first] * (first is not None)
    assert ("6 GB of disk" in process.stdout) == (torch != "torch" and not (reachable and has_build))


def test_make_venv_that_fails_leaves_what_was_there(tmp_path):
    process = make_venv(tmp_path / "venv", script(tmp_path / "offline", OFFLINE_PYTHON))
    assert process.returncode == 1
    assert "no network" in process.stdout
    assert "nothing half-made is left" in process.stdout
    assert not (tmp_path / "venv").exists()
    python = script(tmp_path / "venv" / "bin" / "python", OFFLINE_PYTHON)
    (tmp_path / "venv" / ".ready").touch()
    assert make_venv(tmp_path / "venv", python).returncode == 1
    assert python.exists()
    assert not (tmp_path / "venv" / ".ready").exists()
