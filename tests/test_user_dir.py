"""Which folders `--user-dir` may name once this copy is imported; tests/test_install.py has the whole commands."""

import functools
from argparse import Namespace
from pathlib import Path

import pytest

from fairseq_tiedemb.compat import user_dir

NAME = user_dir.PACKAGE.name


@pytest.fixture
def import_user_module():
    """fairseq's function as we wrap it, with one in the place of fairseq's own that raises what it gets."""

    def original(args):
        raise LookupError(args.user_dir)

    return functools.partial(user_dir.one_copy_of_the_package, original)


def test_this_copy_is_accepted_in_every_spelling(import_user_module, tmp_path, monkeypatch):
    (tmp_path / NAME).symlink_to(user_dir.PACKAGE)
    monkeypatch.chdir(tmp_path)
    for spelling in (user_dir.PACKAGE, f"{user_dir.PACKAGE}/", user_dir.PACKAGE / "cli" / "..", NAME, f"./{NAME}"):
        import_user_module(Namespace(user_dir=str(spelling)))


def test_other_user_dirs_are_left_to_fairseq(import_user_module):
    for other in ("other_plugin", str(Path("missing") / NAME), None):
        with pytest.raises(LookupError, match=str(other)):
            import_user_module(Namespace(user_dir=other))
    with pytest.raises(AttributeError):  # of the stand-in above: a command without --user-dir reaches fairseq, too
        import_user_module(Namespace())


def test_another_copy_is_refused(import_user_module, tmp_path):
    other = tmp_path / NAME
    other.mkdir()
    (other / "__init__.py").touch()
    with pytest.raises(ImportError, match=rf"--user-dir: .* got {other}, but .* Use --user-dir {user_dir.PACKAGE}\."):
        import_user_module(Namespace(user_dir=str(other)))


def test_a_clone_is_told_that_the_package_is_inside(tmp_path):
    inside = tmp_path / NAME / NAME
    inside.mkdir(parents=True)
    (inside / "__init__.py").touch()
    with pytest.raises(ImportError, match=rf"Use --user-dir {inside}\."):
        user_dir.require_this_copy(tmp_path / NAME)
