"""`fairseq-tiedemb env`."""

import sys

import pytest

import fairseq_tiedemb
from fairseq_tiedemb import compat

from ..conftest import Cli


def test_env(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = cli("env").out
    assert f"fairseq_tiedemb: {fairseq_tiedemb.__version__}\n" in text
    assert "products:        " in text
    assert f"mended:          {len(compat.ENTRIES)} entries: {compat.ENTRIES[0].__name__}, " in text
    # It is for installations that do not work, too.
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "fairseq_tiedemb.compat", None)
    monkeypatch.delattr(fairseq_tiedemb, "compat", raising=False)
    text = cli("env").out
    assert "torch does not import: " in text
    assert "nothing, since fairseq does not import: " in text
