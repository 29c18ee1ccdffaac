"""Exported checkpoints: fairseq's own classes compute from them what ours compute."""

import io
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import nn

from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.cli import main
from fairseq_tiedemb.cli.export import OPTIONS
from fairseq_tiedemb.export.targets import CHECKS
from fairseq_tiedemb.export.to_fairseq import export
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod

from .. import untrained
from ..conftest import Cli, InProcess, RunCommand
from ..crossing import crossed
from ..models.common import dictionary, grown
from ..models.families import ALL, DECODER, FAMILIES, SHARINGS, WORDS, build, options_of, scores, task_of

FOLDED = [name for name in SHARING_METHODS if name not in ("distance", "fixnorm")]


def checkpoint(options: dict[str, Any], model: Any) -> dict[str, Any]:
    """What fairseq saves: options as a dictionary where the model has a dataclass, else as a Namespace."""
    saved = options if "_name" in options else Namespace(**options)
    criterion = {"_name": "tied_cross_entropy", "label_smoothing": 0.1, "sentence_avg": False}
    cfg = {"model": saved, "common": {"user_dir": "fairseq_tiedemb", "seed": 1}, "criterion": criterion, "task": {}}
    return {"cfg": cfg, "model": model.state_dict(), "last_optimizer_state": {"much": 1}, "args": None}


def exported(family: str, options: dict[str, Any], ours: Any) -> tuple[dict[str, Any], Any]:
    """The checkpoint that is exported of a model, and the model that stock fairseq builds and loads of it."""
    stock_name = FAMILIES[family][0]
    saved = {**vars(options_of(family, **options))}
    saved["_name" if "_name" in saved else "arch"] = f"tied_{stock_name}"
    state = export(checkpoint(saved, ours), name="ours.pt")
    settings = OmegaConf.create(state["cfg"]["model"])  # as fairseq does
    assert (settings.get("_name") or settings["arch"]) == stock_name
    assert not settings.keys() & {"sharing_method", "embedding_rank", "projection", "projection_bias", "logit_scale"}
    stock = ARCH_MODEL_REGISTRY[stock_name].build_model(settings, task_of(WORDS, WORDS)).eval()
    assert "fairseq_tiedemb" not in type(stock).__module__
    stock.load_state_dict(state["model"], strict=True)
    return state, stock


def assert_same_scores(stock: Any, ours: Any, family: str = "transformer") -> None:
    torch.testing.assert_close(scores(stock.eval(), family), scores(ours, family), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("sharing", "method"), crossed(SHARINGS, FOLDED))
def test_the_stock_model_scores_the_same(sharing: str, method: str) -> None:
    family, options = SHARINGS[sharing]
    ours = grown(build(family, sharing_method=method, **options)).eval()
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    state, stock = exported(family, {"sharing_method": method, **options}, ours)
    assert "last_optimizer_state" not in state
    assert_same_scores(stock, ours, family)
    for key, value in ours.state_dict().items():
        assert torch.equal(value, before[key])  # what was exported is as it was
    shared = any(options.values()) and method in ("plain", "l2-input")
    assert (stock.decoder.embed_tokens.weight is stock.decoder.output_projection.weight) == shared


NARROWED: dict[str, dict[str, Any]] = {
    "rank": {"embedding_rank": 5},
    "projection": {"projection": True},
    "both": {"embedding_rank": 5, "projection": True},
    "constants": {"embedding_scale": 1.5, "logit_scale": 0.7},
}
TIED: dict[str, dict[str, Any]] = {"transformer": ALL, "dynamicconv": DECODER, "transformer_lm": DECODER}


@pytest.mark.parametrize(
    ("model", "method"),
    # By these two methods tables stay tied without constants.
    [
        *crossed([(family, name) for family in TIED for name in NARROWED], FOLDED),
        *((("transformer", "constants"), method) for method in ("plain", "l2-input")),
    ],
)
def test_projection_and_factors_fold_too(model: tuple[str, str], method: str) -> None:
    family, narrowed = model
    options = {"sharing_method": method, **TIED[family], **NARROWED[narrowed]}
    ours = grown(build(family, **options)).eval()
    assert_same_scores(exported(family, options, ours)[1], ours, family)


def test_a_constant_of_the_training_leaves_tables_tied() -> None:
    options = {**ALL, "input_gradient_scale": 5.0}
    ours = grown(build("transformer", **options)).eval()
    stock = exported("transformer", options, ours)[1]
    assert_same_scores(stock, ours, "transformer")
    assert stock.decoder.embed_tokens.weight is stock.decoder.output_projection.weight


def test_folded_tables_of_half_precision_are_not_rounded() -> None:
    ours = grown(build("transformer", sharing_method="cosine", **ALL)).eval().bfloat16()
    state, _ = exported("transformer", {"sharing_method": "cosine", **ALL}, ours)
    rows = ours.float().decoder.embed_tokens.weight
    expected = rows / rows.norm(dim=1, keepdim=True)
    expected[WORDS.pad()] = rows[WORDS.pad()]
    torch.testing.assert_close(state["model"]["decoder.output_projection.weight"], expected)


@pytest.mark.parametrize("method", ["l2-input", "square-output"])  # that stays tied, and that does not
def test_the_moving_average_is_exported_too(method: str) -> None:
    options = {"share_all_embeddings": True}
    average = grown(build("transformer", sharing_method=method, **options)).eval()
    saved = {"arch": "tied_transformer", **vars(options_of("transformer", sharing_method=method, **options))}
    state = checkpoint(saved, build("transformer", sharing_method=method, **options))
    state["extra_state"] = {"epoch": 3, "ema": average.state_dict(), "ema_fp32_params": average.state_dict()}
    made = export(state, name="ours.pt")
    # Stock fairseq makes what is missing from "ema".
    assert made["extra_state"].keys() == {"epoch", "ema"}
    stock = build("transformer", ours=False, share_all_embeddings=made["cfg"]["model"]["share_all_embeddings"])
    stock.load_state_dict(made["extra_state"]["ema"], strict=True)
    assert_same_scores(stock, average)


def merged(method: str, source: Dictionary, target: Dictionary, data: Path) -> tuple[Any, dict[str, Any]]:
    """A model with --merge-src-tgt-embed, and its checkpoint, whose training had its dictionaries in this folder."""
    options = {"merge_src_tgt_embed": True, "sharing_method": method}
    for language, words in (("de", source), ("en", target)):
        words.save(str(data / f"dict.{language}.txt"))
    ours = grown(build("transformer", source=source, target=target, **options)).eval()
    state = checkpoint({"arch": "tied_transformer", **vars(options_of("transformer", **options))}, ours)
    state["cfg"]["task"] = {"data": f"{data}:elsewhere", "source_lang": "de", "target_lang": "en"}
    return ours, state


@pytest.mark.parametrize(("method", "sizes"), [("l2-input", (20, 24)), ("square-output", (24, 24))])
def test_merged_dictionaries(method: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    ours, state = merged(method, *map(dictionary, sizes), tmp_path)
    made = export(state, name="ours.pt")
    settings, task = OmegaConf.create(made["cfg"]["model"]), task_of(*map(dictionary, sizes))
    stock = ARCH_MODEL_REGISTRY["transformer"].build_model(settings, task)
    stock.load_state_dict(made["model"], strict=True)
    assert_same_scores(stock, ours)


def test_merged_dictionaries_that_differ_are_refused_where_tables_come_apart(tmp_path: Path) -> None:
    _, state = merged("square-output", dictionary(20), dictionary(24), tmp_path)
    for folder in (f"{tmp_path}", "gone"):
        state["cfg"]["task"]["data"] = folder
        message = f"needs one dictionary .* got --merge-src-tgt-embed, and not one dictionary in {folder}"
        with pytest.raises(ValueError, match=message):
            export(state, name="ours.pt")


@pytest.mark.parametrize(("method", "size"), [("plain", 8), ("cosine", -1), ("cosine", 8)])
def test_an_output_of_fewer_words_than_the_input_stays_tied(method: str, size: int) -> None:
    options = {"share_decoder_input_output_embed": True, "sharing_method": method}
    ours = build("transformer_lm", **options)
    state = checkpoint({"arch": "tied_transformer_lm", **vars(options_of("transformer_lm", **options))}, ours)
    state["cfg"]["task"] = {"_name": "language_modeling", "output_dictionary_size": size}
    if (method, size) == ("cosine", 8):
        # No other format has two dictionaries.
        with pytest.raises(
            ValueError, match="needs one dictionary for input and output, .*; got --output-dict.* 8. Use --user-dir"
        ):
            export(state, name="ours.pt")
    else:
        export(state, name="ours.pt")


@pytest.mark.parametrize("name_key", ["_name", "arch"])
def test_settings_that_stock_fairseq_cannot_read_are_changed(name_key: str) -> None:
    options = {name_key: "tied_transformer", "sharing_method": "plain"}
    state = checkpoint(options, build("transformer"))
    state["cfg"]["optimizer"] = Namespace(momentum=0.5)  # of sgd, which has no dataclass
    exported = export(state, name="x")
    config = exported["cfg"]
    torch.save(exported, file := io.BytesIO())
    assert torch.load(io.BytesIO(file.getvalue()), weights_only=True)["cfg"]["optimizer"] == {"momentum": 0.5}
    assert config["common"] == {"user_dir": None, "seed": 1}
    assert config["criterion"]["_name"] == "label_smoothed_cross_entropy"
    assert config["criterion"]["label_smoothing"] == 0.1
    assert config["model"] == {name_key: "transformer"}
    as_saved = export(state, name="x", as_namespace=True)["cfg"]["model"]
    assert as_saved == ({"_name": "transformer"} if name_key == "_name" else Namespace(arch="transformer"))


def test_a_checkpoint_without_a_trainings_state() -> None:
    state = checkpoint({"arch": "tied_transformer"}, build("transformer"))
    assert export({**state, "extra_state": None}, name="x")["extra_state"] is None


def test_numbers_are_pythons() -> None:
    state = checkpoint({"arch": "tied_transformer"}, build("transformer"))
    numbers = {"best": np.float32(2.5), "meters": [(0, {"sum": np.int64(3)}), OrderedDict(order=np.arange(2))]}
    exported = export({**state, "extra_state": numbers, "optimizer_history": [numbers]}, name="x")
    plain = {"best": 2.5, "meters": [(0, {"sum": 3}), OrderedDict(order=[0, 1])]}
    assert (exported["extra_state"], exported["optimizer_history"]) == (plain, [plain])
    assert type(exported["extra_state"]["best"]) is float
    assert type(exported["extra_state"]["meters"][1]) is OrderedDict


def test_a_single_width_of_convolution_is_repeated() -> None:
    options = {"arch": "tied_lightconv", "encoder_kernel_size_list": [3], "encoder_layers": 2}
    config = export(checkpoint(options, build("lightconv")), name="x")["cfg"]
    assert config["model"]["encoder_kernel_size_list"] == [3, 3]
    state = checkpoint({**options, "encoder_layers": 1}, build("lightconv"))
    with pytest.raises(ValueError, match=r"--settings: needs namespace .* one encoder layer; got dict"):
        export(state, name="x")
    assert vars(export(state, name="x", as_namespace=True)["cfg"]["model"])["encoder_kernel_size_list"] == [3]


OTHER = "Use --to ctranslate2, or --user-dir of the training with fairseq's commands"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sharing_method": "distance"}, f"got --sharing-method distance, which needs an output bias, .* {OTHER}"),
        ({"arch": "transformer"}, "got transformer, .* stock fairseq reads it, with TORCH_F.*. Use --to ctranslate2"),
        ({"sharing_method": "cosine", "adaptive_softmax_cutoff": "4,8"}, "cutoff 4,8, with --sharing-method cosine"),
        ({"projection": True, "projection_bias": True}, "a projection without a bias; got --projection-bias"),
        ({"arch": "tied_lstm_lm"}, "a model that fairseq also has, .* got tied_lstm_lm. Use --user-dir"),
        ({"arch": "dl4mt"}, "got dl4mt. Use --user-dir"),
        ({"logit_soft_cap": 30.0}, "logits that are affine in the features; got --logit-soft-cap 30.0. Use --user-dir"),
        ({"embedding_scale": 2.0, "adaptive_softmax_cutoff": "4,8"}, "cutoff 4,8, with --embedding-scale 2.0"),
        ({"arch": "lightconv"}, "got lightconv, .* stock fairseq reads it, with TORCH_F.*. Use --user-dir"),
        ({"arch": "tied_lightconv", "sharing_method": "distance"}, "got --sharing-method distance, .* Use --user-dir"),
        ({"arch": "tied_transformer_lm", "output_layer": "nce"}, "one softmax .*; got .*layer nce. Use --user"),
        (
            {
                "arch": "tied_transformer_lm",
                "tie_adaptive_weights": True,
                "decoder_output_dim": 8,
                "decoder_embed_dim": 4,
            },
            "one width of tied bands; got --decoder-output-dim 8, --decoder-embed-dim 4",
        ),
        ({"arch": "word2vec_skipgram"}, "got word2vec_skipgram. Use fairseq-tiedemb vectors, or --user-dir"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    state = checkpoint({"arch": "tied_transformer", "sharing_method": "plain", **changes}, nn.Linear(1, 1))
    state["cfg"]["task"] = {"_name": "word_pairs" if "word2vec" in changes.get("arch", "") else "translation"}
    with pytest.raises(ValueError, match=f"CHECKPOINT: needs .*{message}"):
        export(state, name="x.pt")


def test_the_command_offers_every_target() -> None:
    assert list(OPTIONS) == list(CHECKS)


def own_method(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setitem(SHARING_METHODS, "own", SharingMethod(name="own", summary="", source="", **more))


PARAMETERS = {"t": lambda size, width: torch.tensor(2.0)}


def test_a_method_with_parameters_and_a_linear_map(monkeypatch: pytest.MonkeyPatch) -> None:
    own_method(
        monkeypatch,
        input_scale=lambda n, own: own["s"] * n,
        input_parameters={"s": PARAMETERS["t"]},
        scale=lambda n, own: own["t"].rsqrt() * n,
        parameters=PARAMETERS,
        feature_map=lambda width: nn.Linear(width, width, bias=False),
    )
    options = {"share_all_embeddings": True, "sharing_method": "own"}
    ours = grown(build("transformer", **options)).eval()
    with torch.no_grad():
        ours.decoder.embed_tokens.method_parameters["t"].fill_(3.0)
        ours.decoder.embed_tokens.method_parameters["s"].fill_(0.1)
    assert_same_scores(exported("transformer", options, ours)[1], ours)
    saved = {**vars(options_of("transformer", **options)), "arch": "tied_transformer"}
    entries = {key: value for key, value in ours.state_dict().items() if not key.endswith("method_parameters.t")}
    with pytest.raises(ValueError, match="all parameters of its sharing method; got none for .*method_parameters.t"):
        export({**checkpoint(saved, ours), "model": entries}, name="ours.pt")


@pytest.mark.parametrize("name", ["mine", "tied_mine", "tied_lstm"])
def test_a_preset_of_ones_own_is_exported_as_its_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("mine", name):
        monkeypatch.setitem(ARCH_MODEL_REGISTRY, each, ARCH_MODEL_REGISTRY["tied_transformer"])
        monkeypatch.setitem(ARCH_MODEL_NAME_REGISTRY, each, "tied_transformer")
    ours = grown(build("transformer", sharing_method="cosine", **ALL)).eval()
    saved = {**vars(options_of("transformer", sharing_method="cosine", **ALL)), "arch": name}
    state = export(checkpoint(saved, ours), name="ours.pt")
    assert state["cfg"]["model"]["arch"] == "transformer"
    settings = OmegaConf.create(state["cfg"]["model"])
    stock = ARCH_MODEL_REGISTRY["transformer"].build_model(settings, task_of(WORDS, WORDS)).eval()
    stock.load_state_dict(state["model"], strict=True)
    assert_same_scores(stock, ours)


def test_refuses_a_feature_map_that_is_more_than_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    for feature_map, message in (
        (nn.LayerNorm, "affine in the features, a matrix and a bias; got --sharing-method own, whose"),
        (lambda width: nn.Linear(width, width), "method that only scales; got --sharing-method own"),
    ):
        own_method(monkeypatch, feature_map=feature_map)
        model = grown(build("transformer", sharing_method="own"))
        with pytest.raises(ValueError, match=f"CHECKPOINT: needs .*{message}"):
            export(checkpoint({"arch": "tied_transformer", "sharing_method": "own"}, model), name="x")


def test_refuses_a_checkpoint_that_is_incomplete() -> None:
    whole = checkpoint({"arch": "tied_transformer", "sharing_method": "cosine"}, build("transformer"))
    output = "decoder.output_projection.weight"
    for part, key, message in (
        *(("cfg", name, f"x.pt, which has none of its {name}") for name in ("model", "task", "common", "criterion")),
        ("model", output, f"an incomplete model without {output}"),
        (None, "cfg", "x.pt, which has none of its model"),
    ):
        state = {name: dict(entry) if name in ("cfg", "model") else entry for name, entry in whole.items()}
        del (state if part is None else state[part])[key]
        with pytest.raises(ValueError, match=f"CHECKPOINT: needs .*; got {message}"):
            export(state, name="x.pt")


@pytest.mark.parametrize("older", [Namespace(), Namespace(arch="transformer", criterion="cross_entropy")])
def test_settings_of_fairseq_before_0_10_are_upgraded_or_refused(older: Namespace) -> None:
    state = {"args": older, "optimizer_history": [{"lr_scheduler_state": {}}], "extra_state": {}}
    state["model"] = {"weight": torch.ones(1)}
    message = (
        "stock fairseq reads it, with TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
        if vars(older)
        else "needs settings that fairseq can upgrade; got old.pt"
    )
    with pytest.raises(ValueError, match=f"CHECKPOINT: .*{message}"):
        export(state, name="old.pt")


@pytest.mark.parametrize("method", ["plain", "cosine"])
def test_refuses_weights_that_are_not_finite(method: str) -> None:
    model = build("transformer", sharing_method=method)
    with torch.no_grad():
        model.encoder.layers[0].fc1.bias[2:4] = torch.tensor([torch.nan, torch.inf])
    with pytest.raises(ValueError, match=r"got x.pt with 2 of .* of encoder.layers.0.fc1.bias inf or nan. .* diverged"):
        export(checkpoint({"arch": "tied_transformer", "sharing_method": method}, model), name="x.pt")
    with pytest.raises(ValueError, match="got x.pt, whose model has no weights"):
        export({**checkpoint({"arch": "tied_transformer"}, model), "model": {}}, name="x.pt")


def test_the_form_of_the_settings_is_a_flag(tmp_path: Path, cli: Cli) -> None:
    torch.save(checkpoint({"arch": "tied_transformer"}, build("transformer")), tmp_path / "in.pt")
    for flags, kind in (([], dict), (["--settings", "namespace"], Namespace)):
        out = cli("export", tmp_path / "in.pt", tmp_path / "out.pt", *flags).out
        assert out == f"{tmp_path / 'out.pt'}: transformer\n"
        assert type(read_checkpoint(tmp_path / "out.pt", flag="X")["cfg"]["model"]) is kind


@pytest.mark.parametrize("options", [("--sharing-method", "square-output"), ("--adaptive-softmax-cutoff", "5,10")])
def test_stock_fairseq_generates_the_same(
    options: tuple[str, ...], run_command: RunCommand, generate: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    path, exported = tmp_path / "ours.pt", tmp_path / "stock.pt"
    flags = ("--arch", "tied_transformer_tiny", "--share-all-embeddings", *options)
    untrained.write_checkpoint(path, parallel_data, *flags)
    assert main(["export", str(path), str(exported)]) == 0
    search = ("--beam", 2, "--max-len-b", 9, "--required-batch-size-multiple", 1, "--path")
    printed = generate(parallel_data, *search, path)
    stocks = run_command("generate", parallel_data, *search, exported, user_dir=None).stdout
    lines = [[line.split("\t") for line in text.splitlines() if line.startswith("H-")] for text in (printed, stocks)]
    ours, stock = ({name: float(score) for name, score, *_ in each} for each in lines)
    assert len(stock) > 90  # stock fairseq leaves out what does not fill a batch
    assert stock == pytest.approx({name: ours[name] for name in stock}, abs=1e-4)


def test_a_method_of_a_users_own_comes_from_the_folder_that_is_given(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "their_methods"
    own.mkdir()
    (own / "__init__.py").write_text(
        "from fairseq_tiedemb import SharingMethod, register_sharing_method\n"
        "register_sharing_method(SharingMethod(name='halved', summary='', source='', scale=lambda n: 0 * n + 0.5))\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    state = checkpoint({"arch": "tied_transformer", "sharing_method": "halved"}, build("transformer"))
    state["cfg"]["common"]["user_dir"] = str(own)  # which a checkpoint alone must not run
    torch.save(state, tmp_path / "in.pt")
    arguments = ["export", str(tmp_path / "in.pt"), str(tmp_path / "out.pt")]
    try:
        assert "needs a registered method; got 'halved'" in cli(*arguments, status=2).err
        err = cli(*arguments, "--user-dir", tmp_path / "gone", status=2).err
        assert f"--user-dir: needs a folder of Python code; got {tmp_path}/gone" in err
        cli(*arguments, "--user-dir", own)
    finally:
        SHARING_METHODS.pop("halved", None)
    tables = (each["model"]["decoder.output_projection.weight"] for each in (state, torch.load(tmp_path / "out.pt")))
    torch.testing.assert_close(next(tables) / 2, next(tables))


def test_nothing_is_written_if_it_is_refused(tmp_path: Path, cli: Cli) -> None:
    torch.save(checkpoint({"_name": "dl4mt"}, nn.Linear(1, 1)), tmp_path / "in.pt")
    saved = (tmp_path / "in.pt").read_bytes()
    (tmp_path / "link.pt").symlink_to("in.pt")
    (tmp_path / "loop").symlink_to("loop")
    for name, message in (
        ("out.pt", "got dl4mt"),
        ("in.pt", f"OUT: needs a name that is not among the inputs; got {tmp_path}/in.pt"),
        ("link.pt", f"got {tmp_path}/link.pt"),
        ("loop", "got dl4mt"),
    ):
        assert message in cli("export", tmp_path / "in.pt", tmp_path / name, status=2).err
    assert {path.name for path in tmp_path.iterdir()} == {"in.pt", "link.pt", "loop"}
    assert (tmp_path / "in.pt").read_bytes() == saved
