"""Print the folder of this plugin, for fairseq's --user-dir.

In a checkout, and anywhere after `pip install .`, `--user-dir fairseq_tiedemb` is enough; after `pip install -e .` use
`--user-dir $(fairseq-tiedemb path)`.
"""

from pathlib import Path

import fairseq_tiedemb
from fairseq_tiedemb.cli._output import note

EXACT = True


def run(_: object) -> None:
    """Prints the folder; warns on stderr if the bare name stands for another copy in the current folder."""
    folder = Path(fairseq_tiedemb.__file__).parent
    print(folder)
    # fairseq looks for the bare name in the current folder before it looks beside itself.
    nearer = Path.cwd() / folder.name
    if nearer.is_dir() and nearer.resolve() != folder.resolve():
        note(f"fairseq-tiedemb path: note that in this folder `--user-dir {folder.name}` means another copy, {nearer}")
