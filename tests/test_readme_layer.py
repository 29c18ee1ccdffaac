"""README's output layer, registered by a plugin of one's own, through fairseq's commands."""

import re
from pathlib import Path
from typing import Any

import pytest

import fairseq_tiedemb

from .conftest import RunCommand
from .test_compat_commands import logged
from .test_output_layer_commands import FLAGS, TIED


def test_the_readmes_layer_trains_resumes_and_is_scored(lm_data: Path, run_command: RunCommand, tmp_path: Path) -> None:
    package = Path(fairseq_tiedemb.__file__).parent
    found = re.findall(r"```python\n(.*?)```", (package / "models/README.md").read_text(), re.DOTALL)
    [code] = [block for block in found if "OutputHead" in block]
    plugin = tmp_path / "my_layers"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(code)
    outside = {"user_dir": plugin, "env": {"PYTHONPATH": str(package.parent)}}
    save = ("--save-dir", tmp_path / "run")
    own = ("--output-layer", "tempered", "--output-layer-options", "temperature=1.5")
    command = ("train", lm_data, *TIED, *own, *FLAGS)

    def printed(*arguments: Any, **how: Any) -> str:
        result = run_command(*arguments, **(outside | how))
        return result.stdout + result.stderr

    printed(*command, "--max-epoch", 1, *save)
    resumed = printed(*command, "--max-epoch", 2, *save)
    assert "Loaded checkpoint" in resumed
    other = (*command, "--output-layer-options", "temperature=3", "--max-epoch", 3)
    assert "--output-layer-options: needs temperature=1.5, with which" in printed(*other, *save, check=False)
    scored = ("eval-lm", lm_data, "--path", tmp_path / "run/checkpoint_last.pt", "--task", "contiguous_lm")
    scored += ("--gen-subset", "valid", "--tokens-per-sample", 5, "--batch-size", 6)
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", printed(*scored))[1])
    assert perplexity == pytest.approx(logged(resumed, "valid_ppl")[-1], abs=0.011)
    refused = run_command(*scored, env=outside["env"], check=False).stderr
    assert "--output-layer: needs a registered layer; got 'tempered'. Use one of: softmax, adaptive" in refused
