"""Penn Treebank: the perplexities that others published, and those of independent programs."""

import os

import pytest

from ..recipes.shell import SHARED_DATA

PTB = SHARED_DATA / "ptb" if "PTB" not in os.environ else type(SHARED_DATA)(os.environ["PTB"])
pytestmark = pytest.mark.skipif(
    not PTB.is_dir(), reason=f"needs ptb.train.txt, ptb.valid.txt and ptb.test.txt in {PTB}, or in PTB=another folder"
)

VALID = ["--held-out", PTB / "ptb.valid.txt"]
# Options, and for orders 3, 4 and 5 the perplexities on test and valid.
# Published (Mikolov 2012, table 4.1): katz 165.2 and 162.3, modified-kneser-ney 148.3 and 141.2 (orders 3 and 5, test).
TABLE = {
    "jelinek-mercer, a weight an order": (
        ["--smoothing", "jelinek-mercer", "--weights-by", "order", *VALID],
        {3: (174.16, 184.19), 4: (167.85, None), 5: (165.54, 172.04)},
    ),
    "jelinek-mercer": (
        ["--smoothing", "jelinek-mercer", *VALID],
        {3: (164.52, 173.29), 4: (158.83, None), 5: (156.84, 162.08)},
    ),
    "katz, k = 5, nothing cut": (
        ["--smoothing", "katz", "--katz-k", 5, "--cutoff", 1],
        {3: (167.00, 179.50), 4: (170.43, None), 5: (174.44, 184.25)},
    ),
    "katz, k = 5": (["--smoothing", "katz", "--katz-k", 5], {3: (165.50, None), 4: (163.02, None), 5: (162.64, None)}),
    "katz": (["--smoothing", "katz"], {3: (165.23, 177.54), 4: (162.65, None), 5: (162.25, 172.20)}),
    "witten-bell": (
        ["--smoothing", "witten-bell"],
        {3: (186.31, 200.44), 4: (201.45, None), 5: (209.20, 218.96)},
    ),
    "absolute": (["--smoothing", "absolute"], {3: (166.49, 180.91), 4: (165.56, None), 5: (165.86, 177.48)}),
    "absolute, back-off": (
        ["--smoothing", "absolute", "--back-off"],
        {3: (166.67, None), 4: (169.33, None), 5: (173.00, None)},
    ),
    "kneser-ney": (["--smoothing", "kneser-ney"], {3: (150.60, 161.40), 4: (145.10, None), 5: (143.51, 151.42)}),
    "kneser-ney, back-off": (
        ["--smoothing", "kneser-ney", "--back-off"],
        {3: (158.12, 167.84), 4: (160.97, None), 5: (165.93, 172.64)},
    ),
    "modified-kneser-ney": ([], {3: (148.28, 157.77), 4: (142.72, None), 5: (141.19, 148.01)}),
    "modified-kneser-ney, back-off": (
        ["--back-off"],
        {3: (161.99, 170.48), 4: (165.95, None), 5: (171.48, 177.00)},
    ),
}


def perplexities(run_command, order, options):
    """On test and valid."""
    texts = [PTB / f"ptb.{split}.txt" for split in ("train", "test", "valid")]
    process = run_command("fairseq_tiedemb.cli", "ngram", texts[0], "--test", *texts[1:], "--order", order, *options)
    head, _, *rows, _ = process.stdout.splitlines()
    assert "929,589 tokens, 10,000 types" in head
    assert [row.split()[0] for row in rows] == ["82,430", "73,760"]
    return [float(row.split()[2]) for row in rows]


@pytest.mark.parametrize("name", ["katz", "modified-kneser-ney"])
def test_published_trigrams(name, run_command):
    options, expected = TABLE[name]
    assert perplexities(run_command, 3, options) == pytest.approx(expected[3], abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("name", TABLE)
def test_the_whole_table(name, order, run_command):
    options, expected = TABLE[name]
    found = perplexities(run_command, order, options)
    for one, other in zip(found, expected[order], strict=True):
        assert other is None or one == pytest.approx(other, abs=0.02)
