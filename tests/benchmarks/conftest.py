"""Before the figures of each benchmark, what they were measured on."""

from datetime import UTC, datetime

import pytest
import torch

from fairseq_tiedemb import fast_products
from fairseq_tiedemb.results.environment import processor


@pytest.fixture(autouse=True)
def say_where() -> None:
    """Prints the processor's name, torch's version and the date; ratios, too, are those of one processor.

    Everything in a benchmark multiplies by the library of FAIRSEQ_TIEDEMB_PRODUCTS, which is `blas` unless it is set.
    """
    threads = torch.get_num_threads()
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    print(f"\n{processor()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {today}")
    print(f"float32 products by {fast_products()}")
