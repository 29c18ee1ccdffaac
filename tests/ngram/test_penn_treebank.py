"""Penn Treebank: the perplexities that others published, and those of independent programs."""

import os

import pytest

from ..recipes.shell import SHARED_DATA

PTB = SHARED_DATA / "ptb" if "PTB" not in os.environ else type(SHARED_DATA)(os.environ["PTB"])
pytestmark = pytest.mark.skipif(
    not PTB.is_dir(), reason=f"needs ptb.train.txt, ptb.valid.txt and ptb.test.txt in {PTB}, or in PTB=another folder"
)

# Options, and for orders 3, 4 and 5 the perplexities on test / valid.
# Published (Mikolov 2012, table 4.1): katz 165.2 and 162.3, modified-kneser-ney 148.3 and 141.2 (orders 3 and 5, test).
TABLE = """
--smoothing jelinek-mercer --held-out VALID --weights-by order | 174.16 / 184.19 | 167.85 | 165.54 / 172.04
--smoothing jelinek-mercer --held-out VALID                    | 164.52 / 173.29 | 158.83 | 156.84 / 162.08
--smoothing katz --katz-k 5 --cutoff 1                         | 167.00 / 179.50 | 170.43 | 174.44 / 184.25
--smoothing katz --katz-k 5                                    | 165.50          | 163.02 | 162.64
--smoothing katz                                               | 165.23 / 177.54 | 162.65 | 162.25 / 172.20
--smoothing witten-bell                                        | 186.31 / 200.44 | 201.45 | 209.20 / 218.96
--smoothing absolute                                           | 166.49 / 180.91 | 165.56 | 165.86 / 177.48
--smoothing absolute --back-off                                | 166.67          | 169.33 | 173.00
--smoothing kneser-ney                                         | 150.60 / 161.40 | 145.10 | 143.51 / 151.42
--smoothing kneser-ney --back-off                              | 158.12 / 167.84 | 160.97 | 165.93 / 172.64
                                                               | 148.28 / 157.77 | 142.72 | 141.19 / 148.01
--back-off                                                     | 161.99 / 170.48 | 165.95 | 171.48 / 177.00
"""
ROWS = {options.strip(): cells for options, *cells in (line.split("|") for line in TABLE.strip("\n").splitlines())}


def assert_perplexities(run_command, order, options):
    """On test and valid."""
    texts = [PTB / f"ptb.{split}.txt" for split in ("train", "test", "valid")]
    given = options.replace("VALID", str(texts[2])).split()
    process = run_command("fairseq_tiedemb.cli", "ngram", texts[0], "--test", *texts[1:], "--order", order, *given)
    head, _, *rows, _ = process.stdout.splitlines()
    assert "929,589 tokens, 10,000 types" in head
    assert [row.split()[0] for row in rows] == ["82,430", "73,760"]
    for row, expected in zip(rows, ROWS[options][order - 3].split("/"), strict=False):
        assert float(row.split()[2]) == pytest.approx(float(expected), abs=0.02)


@pytest.mark.parametrize("options", ["--smoothing katz", ""])
def test_published_trigrams(options, run_command):
    assert_perplexities(run_command, 3, options)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("options", ROWS)
def test_the_whole_table(options, order, run_command):
    assert_perplexities(run_command, order, options)
