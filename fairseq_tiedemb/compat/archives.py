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
    # Python before 3.11.4 has no filter.
    if Path(archive_file).is_file() or not (Path(archive_file).is_dir() or hasattr(tarfile, "data_filter")):
        needs = "the folder of a model"
        raise ValueError(f"{archive_file}: needs {needs}; got an archive. Use tar -xf on it, and the folder.")
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
