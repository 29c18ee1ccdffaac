"""Restores numpy names and arguments that fairseq still uses."""

import types
from typing import Any

import numpy as np

from .mending import mend, mend_now


@mend_now
def numpy_names() -> None:
    """Restore `np.compat.long`, `np.float` and `np.int`.

    Without it: AttributeError in language models with `--sample-break-mode eos` (data/token_block_dataset.py:125), in
    bucketing (data/language_pair_dataset.py:292), in masking (data/data_utils.py:524, 1107) and in the CRF layer.
    Goes with fairseq's last use of the names.
    """
    for name, value in (("compat", types.SimpleNamespace(long=int)), ("float", float), ("int", int)):
        if not hasattr(np, name):
            setattr(np, name, value)


@mend(np, "percentile")
def numpy_percentile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Translate `np.percentile(interpolation=...)` to `method=`, its name since numpy 1.22.

    Without it: TypeError from `--num-batch-buckets` with numpy 2.4 and later (data/data_utils.py:880). Goes when
    fairseq passes `method`.
    """
    if "interpolation" in kwargs:
        kwargs["method"] = kwargs.pop("interpolation")
    return original(*args, **kwargs)
