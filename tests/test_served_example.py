"""examples/served: a trained model is exported, and serves without fairseq."""

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairseq_tiedemb.cli import main

from .export.test_to_ctranslate2 import OF_ENCODER, SIZES, needs_engine, write_checkpoint

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "served"


@pytest.fixture
def served(parallel_data: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A model that was not trained, and subwords."""
    write_checkpoint(tmp_path / "model.pt", parallel_data, "--arch", "tied_transformer", *OF_ENCODER, *SIZES)
    assert main(["export", str(tmp_path / "model.pt"), str(tmp_path / "model"), "--to", "ctranslate2"]) == 0
    (tmp_path / "codes").write_text("#version: 0.2\na b</w>\n")
    return tmp_path / "model", tmp_path / "codes"


@needs_engine
def test_it_answers_on_standard_input_and_over_http_without_fairseq(served: tuple[Path, Path]) -> None:
    program = "import runpy, sys; sys.modules['torch'] = sys.modules['fairseq'] = None; "
    program += f"sys.argv[1:] = {[*map(str, served)]}; runpy.run_path({str(FOLDER / 'translate.py')!r}, "
    program += "run_name='__main__')"
    sentences = "a b c\n\nab ab\n"
    process = subprocess.run(
        [sys.executable, "-c", program], input=sentences, capture_output=True, text=True, check=True
    )
    lines = process.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1] == ""

    sys.path.insert(0, str(FOLDER))
    import translate

    server = translate.server(translate.Translator(*served), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://localhost:{server.server_address[1]}"
        with urllib.request.urlopen(url, data=sentences.encode()) as answer:
            assert answer.read().decode() == process.stdout
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(url, data=b"\xff")
        for length in ("-1", "some"):
            with pytest.raises(urllib.error.HTTPError, match=f"400: needs a number for Content-Length; got {length}"):
                urllib.request.urlopen(urllib.request.Request(url, data=b"a", headers={"Content-Length": length}))
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(urllib.request.Request(url, data=b"a", headers={"Content-Length": "1000001"}))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    translator = translate.Translator(*served)
    broken_off = SimpleNamespace(hypotheses=[["a@@", "b", "c@@"]])
    translator.engine = SimpleNamespace(translate_batch=lambda texts, **options: [broken_off])
    assert translator(["a"]) == ["ab c"]


@needs_engine
@pytest.mark.slow
def test_the_example_translates(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    options: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "env": {**os.environ, "PATH": path}}
    first = subprocess.run([FOLDER / "run.sh", tmp_path / "demo"], **options).stdout
    assert float((tmp_path / "demo" / "served.bleu").read_text()) > 97  # it is 99.5; after 20 updates 0.0
    again = subprocess.run([FOLDER / "run.sh", tmp_path / "demo"], **options).stdout
    assert "fairseq-tiedemb export" in first
    assert "$ " not in again
    assert again.splitlines()[-1] == first.splitlines()[-1]
