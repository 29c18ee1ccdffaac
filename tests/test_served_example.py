"""examples/served: a trained model is exported, and serves without fairseq."""

import http.client
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
def test_it_answers_on_standard_input_and_over_http_without_fairseq(
    served: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import runpy, sys; sys.modules['torch'] = sys.modules['fairseq'] = None; "
    program += f"sys.argv[1:] = {[*map(str, served)]}; runpy.run_path({str(FOLDER / 'translate.py')!r}, "
    program += "run_name='__main__')"
    # The model has 60 positions. Breaks within a line are Unicode's, and none of a file's.
    longest, longer = " ".join("a" * 59), " ".join("a" * 60)
    sentences = f"a b c\n\nab\x0cab\u2028a\n{longest}\n"
    options: dict[str, Any] = {"capture_output": True, "text": True}
    options |= {"encoding": "utf-8", "env": {**os.environ, "PYTHONIOENCODING": "latin1"}}  # on which nothing depends
    process = subprocess.run([sys.executable, "-c", program], input=sentences, **options, check=True)
    lines = process.stdout.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""

    process_of_longer = subprocess.run([sys.executable, "-c", program], input=f"{longer}\n{sentences}", **options)
    assert process_of_longer.returncode == 1
    assert process_of_longer.stdout == "\n" + process.stdout
    assert process_of_longer.stderr == "line 1: needs at most 59 subwords; got 60. Use shorter ones.\n"

    monkeypatch.syspath_prepend(FOLDER)
    import translate

    server = translate.server(translate.Translator(*served), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://localhost:{server.server_address[1]}"
        with urllib.request.urlopen(url, data=sentences.encode()) as answer:
            assert answer.read().decode() == process.stdout
        with pytest.raises(urllib.error.HTTPError, match="413: line 2: needs at most 59 subwords; got 60"):
            urllib.request.urlopen(url, data=f"a\n{longer}\n".encode())
        connection = http.client.HTTPConnection("localhost", server.server_address[1])
        connection.putrequest("POST", "/")
        connection.endheaders()
        assert connection.getresponse().status == 411
        connection.close()
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
    config = (served[0] / "config.json").read_text()
    (served[0] / "config.json").write_text(config.replace("max_source_positions", "of_older_exports"))
    with pytest.raises(ValueError, match="MODEL: needs max_source_positions in config.json; got .*/model"):
        translate.Translator(*served)


@needs_engine
def test_the_model_may_write_as_much_as_it_has_positions_for(served: tuple[Path, Path], monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    import translate

    translator = translate.Translator(*served)
    engine, asked = translator.engine, []
    translator.engine = SimpleNamespace(translate_batch=lambda texts, **options: asked.append(options) or [])
    translator(["a"])
    longest = asked[0]["max_decoding_length"]
    options: dict[str, Any] = {"beam_size": 1, "max_decoding_length": longest, "suppress_sequences": [["</s>"]]}
    [found] = engine.translate_batch([["a"]], **options)
    assert (longest, len(found.hypotheses[0]), asked[0]["max_input_length"]) == (59, 59, 0)


def test_the_script_asks_for_the_engine_before_it_trains(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(FOLDER / "run.sh"), str(tmp_path / "demo")]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 2
    assert "needs the package ctranslate2; got a Python without it" in process.stderr
    assert not (tmp_path / "demo").exists()


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
