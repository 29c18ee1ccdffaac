"""Model archives of `from_pretrained`: what fairseq downloads stays in its cache, what the user has stays as it is."""

import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import file_utils

from .mending import mend


@mend(file_utils, "load_archive_file")
def archives_stay_in_their_folder(original: Any, archive_file: str) -> Any:
    """Unpack what fairseq has downloaded for `from_pretrained` into its cache, and refuse archives of the user's own.

    Without it: members are written wherever their names and links lead, and a folder replaces the user's archive
    (file_utils.py:88). Goes when fairseq unpacks with tarfile's filter, and removes nothing.
    """
    path, got, use = Path(archive_file), "none", "one that is there"
    if path.is_file():
        got, use = "a file", f"{path.parent} and checkpoint_file={path.name!r}, or tar -xf on an archive"
    # Python before 3.11.4 has no filter.
    is_safe = hasattr(tarfile, "data_filter") and str(archive_file).startswith(("http://", "https://", "s3://"))
    if not (path.is_dir() or is_safe):
        raise ValueError(f"{archive_file}: needs the folder of a model; got {got}. Use {use}.")
    return original(archive_file)


class Archive(tarfile.TarFile):
    """A tar file that unpacks into its folder alone."""

    @staticmethod
    def extraction_filter(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        """tarfile's `data` filter without symbolic links, which lead out of the folder in Python before 3.11.13."""
        if member.issym():
            raise tarfile.FilterError(f"{member.name!r} is a symbolic link")
        return tarfile.data_filter(member, folder)


file_utils.tarfile = SimpleNamespace(open=Archive.open)
