"""The names of tables are those that models write."""

from typing import Any

import pytest

from fairseq_tiedemb.checkpoints.dictionaries import FAIRSEQ_WORDS
from fairseq_tiedemb.checkpoints.table_names import INPUTS, OUTPUT, PADDING_ROW, has_padding_row, is_input_table
from fairseq_tiedemb.checkpoints.table_names import is_table as is_table_name
from fairseq_tiedemb.embedding import SharedEmbedding

from .models.common import dictionary
from .models.families import BANDS, FAMILIES, TRANSLATION
from .models.test_every_model import MODELS, build

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    **{f"{name}-factorised": (name, {"embedding_rank": 3}) for name in FAMILIES},
    "transformer_lm-bands": ("transformer_lm", {**BANDS, "share_decoder_input_output_embed": False}),
    "tied_lstm_lm-bands": ("tied_lstm_lm", {"adaptive_softmax_cutoff": "8,16"}),
}


@pytest.mark.parametrize("case", CASES)
def test_tables_of_models_are_known_by_name(case: str) -> None:
    name, options = CASES[case]
    model = build(name, **options)
    tables = [module for module in model.modules() if isinstance(module, SharedEmbedding)]
    places = {table.weight.data_ptr(): table.padding_idx for table in tables}
    entries = model.state_dict()
    of_tables = {key for key, entry in entries.items() if entry.data_ptr() in places}
    assert of_tables == {key for key, entry in entries.items() if is_table_name(key) and entry.dim() == 2}
    for key in of_tables:
        assert places[entries[key].data_ptr()] == (PADDING_ROW if has_padding_row(key) else None)
    inputs = sum(len(entries[key]) for key in entries if is_input_table(key, "decoder"))
    assert inputs == (0 if "embedding_rank" in options else 24)
    if name in FAMILIES and not options:
        assert {key for key in (*INPUTS, OUTPUT) if key in entries} == of_tables
        assert (INPUTS[0] in of_tables) == (name in TRANSLATION)


def test_rows_of_fairseqs_own() -> None:
    assert (dictionary(0).pad(), dictionary(0).symbols) == (PADDING_ROW, FAIRSEQ_WORDS)
