"""What `fairseq-tiedemb arch` says of a preset, against the models themselves and what papers and code say."""

import re
import subprocess
import sys

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.analysis import presets

from ..conftest import Cli

NAMES = [name for names in presets.families().values() for name in names]


def test_every_preset_of_the_package_is_listed(cli: Cli) -> None:
    listed = re.findall(r"^  (\S+) +shares (.+)$", cli("arch").out, re.M)
    ours = {name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_tiedemb.")}
    assert {name for name, _ in listed} == ours
    for name, shares_and_projection in listed:
        shares = shares_and_projection.removesuffix(", with P and its bias")
        assert (shares != shares_and_projection) == (name.endswith("_pr") or name.startswith("feedforward_lm"))
        if name.endswith("_twwt"):
            assert shares == "encoder input = decoder input = decoder output (three-way weight tying)"
        elif name in ("lstm_nmt_wt", "lstm_nmt_small_wt", "dl4mt_wt"):
            assert shares == "decoder input = decoder output (weight tying)"
        elif "_wt" in name.replace("_wt_pr", "_wt") and name.endswith(("_wt", "_wt_pr")) or "gpt3" in name:
            assert shares == "input = output (weight tying)"
        elif "wiki103" in name:
            assert shares == "input = output in bands (weight tying)"
        else:
            assert shares == "nothing"


def test_a_list_has_no_size_of_dictionaries(cli: Cli) -> None:
    printed = cli("arch", "--words", 10000, status=2)
    assert "--words: needs NAME, of whose dictionaries it is the size; got 10000. Leave it out" in printed.err
    assert not printed.out


@pytest.mark.parametrize(
    ("name", "words", "parameters"),
    [
        ("zaremba_lm_small", 10_002, 4_652_402),  # RESULTS.md, Penn Treebank
        ("zaremba_lm_small_wt", 10_002, 2_652_002),
        ("dl4mt_twwt", 94_000, 79_400_000),  # RESULTS.md, table 8
        ("highway_lm_10x830_wt", 10_002, 23_484_062),
        ("feedforward_lm_wt", 10_000, 1_110_300),
    ],
)
def test_sizes(name: str, words: int, parameters: int) -> None:
    preset = presets.describe(name, words=words)
    assert preset.parameters == pytest.approx(parameters, abs=50_000 if parameters > 5e7 else 0)
    assert preset.words == words


def test_a_preset_is_shown_with_its_options_and_recipe(cli: Cli) -> None:
    lines = cli("arch", "zaremba_lm_small_wt_pr", "--words", "10002").out.splitlines()
    assert lines[0].startswith('zaremba_lm_small_wt_pr: Press & Wolf 2016, table 6, "Small + WT + PR"')
    assert "shares      input = output (weight tying), with P and its bias" in lines
    assert "size        2,692,202 parameters with 10,002 words; 74.7 % of them in tables" in lines
    assert "recipe      set by --arch zaremba_lm_small_wt_pr in fairseq-train" in lines
    for flag in (
        "--share-decoder-input-output-embed",
        "--projection-bias",
        "--decoder-hidden-size 200",
        "--task contiguous_lm",
        "--lr 1.0",
        "--sentence-avg",
        "--max-epoch 13",
    ):
        assert f"    {flag}" in lines
    assert not any("--batch-size-valid" in line or "--distributed" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "dl4mt_wt",
            [
                "recipe      set by --arch dl4mt_wt in fairseq-train, unless --optimizer is given",
                *("    --cell gru", "    --optimizer adadelta", "    --clip-norm 1.0", "    --max-update 300000"),
            ],
        ),
        ("bengio_lm", ["    --skip-connections"]),
        ("tied_transformer_iwslt_de_en", ["recipe      none: --optimizer, --lr", "    --encoder-ffn-embed-dim 1024"]),
    ],
)
def test_other_recipes(name: str, expected: list[str], cli: Cli) -> None:
    text = cli("arch", name).out
    for line in expected:
        assert f"\n{line}" in text


def test_only_the_description_is_printed() -> None:
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", "arch", "zaremba_lm_small"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_the_largest_takes_no_memory() -> None:
    assert presets.describe("tied_transformer_lm_gpt3_175").parameters > 170e9
    assert torch.empty(1).device.type == "cpu"


def test_bands_need_words() -> None:
    assert presets.describe("tied_transformer_lm_wiki103").words == 120_000


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("tied_transformer_lm_wiki103", 60000, "60,001 to 10,000,000 for tied_transformer_lm_wiki103; got 60000. U"),
        ("zaremba_lm_small", 10000001, "--words: needs 5 to 10,000,000 for zaremba_lm_small; got 10000001. Use 10000."),
        ("lstm_nmt", 0, "--words: needs 5 or more; got 0. Use 10000, say."),
        ("lstm_nmt", "abc", "--words: needs 5 or more; got abc. Use 10000, say."),
        ("lstm_nmt_tw", 9, "NAME: needs a preset of this package; got lstm_nmt_tw. Use lstm_nmt_twwt, "),
    ],
)
def test_refusals(name: str, words: object, message: str, cli: Cli) -> None:
    assert message in cli("arch", name, "--words", words, status=2).err
