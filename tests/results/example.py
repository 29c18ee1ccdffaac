"""A table, its results and the logs of the commands, as small as they can be."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_tiedemb import cli
from recipes import record

TABLE: dict[str, Any] = {
    "order": 1,
    "subject": "language-models",
    "title": "A table",
    "source": "A & B (2016), table 1",
    "columns": [
        {"name": "test", "label": "test", "unit": "perplexity", "better": "lower", "digits": 1},
        {"name": "bleu", "label": "test", "unit": "BLEU", "better": "higher", "digits": 2},
        {"name": "parameters", "label": "parameters", "unit": "parameters", "digits": 0},
    ],
    "rows": [
        {"name": "small", "label": "Small", "command": "recipes/x.sh small", "paper": {"test": 114.5}},
        {"name": "wt", "label": "Small+WT", "command": "recipes/x.sh wt", "paper": {"test": 112.4}},
        {"name": "wt,UPDATES=5", "label": "Small+WT, 5 updates"},
    ],
    "notes": ["One `note`."],
}

EVAL_LM = """\
2026-11-21 08:55:13 | INFO | fairseq_cli.eval_lm | Evaluated 82,430 tokens in 12.7s (6490.55 tokens/s)
2026-11-21 08:55:13 | INFO | fairseq_cli.eval_lm | Loss (base 2): 6.8716, Perplexity: {}
"""
NGRAM = """\
modified Kneser-Ney, order 5: 929,589 tokens, 9,999 types with </s>; n-grams by order: 10,000
   predicted      <unk>  perplexity  file
      73,760      3,485      148.04  text/valid.txt
      82,430      4,794      141.21  text/test.txt
0.1 s
"""
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0"
BLEU = f"BLEU|{SIGNATURE} = {{}} 74.1/50.2/35.6/25.4 (BP = 0.975 ratio = 0.976 hyp_len = 12765 ref_len = 13080)\n"
TRAIN = """\
{'_name': None, 'common': {'_name': None, 'seed': 1, 'fp16': False, 'user_dir': 'x'}, 'model': Namespace(_name='m', \
dropout=0.3, limit=-inf, layers=[1, 2]), 'bpe': None}
num. shared model params: 4,652,402 (num. trained: 4,652,402)
rank   0: capabilities =  9.0  ; total memory = 79.109 GB ; name = NVIDIA H100 80GB HBM3                    \n\
epoch 001 | valid on 'valid' subset | loss 7.1 | ppl 300.25 | wps 0 | num_updates 5
epoch 001 | loss 9 | ppl 512 | wps 0 | num_updates 5
epoch 002 | valid on 'valid' subset | loss 7.1 | ppl inf | wps 0 | num_updates 9
epoch 002 | loss 9 | ppl 256.5 | wps 0 | num_updates 9
"""
USAGE = """\
{"begin": "2026-11-21T08:00:00+00:00", "commit": "aaa", "cpu_seconds": 60.5, "wall_seconds": 70.0, "peak_memory": 5}
{"begin": "2026-11-21T09:00:00+00:00", "commit": "bbb+", "cpu_seconds": 30.0, "wall_seconds": 31.0, "peak_memory": 4}
"""


class Project:
    """A folder with tables and results, and the commands on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.tables, self.results = folder / "tables", folder / "results"
        self.tables.mkdir()
        self.results.mkdir()
        self.write_table(TABLE)
        self.write_findings()

    def write_table(self, values: dict[str, Any], name: str = "small") -> Path:
        path = self.tables / f"{name}.json"
        path.write_text(json.dumps(values))
        return path

    def write_findings(self, **claim: str) -> Path:
        claims = [{"claim": "it holds", "table": "small", "verdict": "holds"} | claim]
        sources = [{"title": "A & B: title", "short": "A & B", "claims": claims}]
        titles = {"language-models": "Language models"}
        return self.write("findings.json", json.dumps({"subjects": titles, "introduction": "i", "sources": sources}))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *arguments: object) -> tuple[int, str]:
        """The exit status and what stderr says."""
        words = [*map(str, arguments), "--tables", str(self.tables), "--results", str(self.results)]
        parser = record.create_parser() if words[0] == "record" else None
        status = cli.main(words[1:] if parser else words, parser)
        return status, self.capsys.readouterr().err

    def record(self, row: str, *arguments: object, seed: int | None = 1) -> tuple[int, str]:
        seeds = [] if seed is None else ["--seed", seed]
        return self.run("record", "small", row, "--command", "recipes/x.sh", *seeds, *arguments)

    def result(self, name: str) -> dict[str, Any]:
        return json.loads((self.results / "small" / f"{name}.json").read_text())


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, capsys)
