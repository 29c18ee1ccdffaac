"""One table at the two ends of models of Transformers: their losses, gradients, files and new words."""

import copy
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from fairseq_tiedemb import LossOptions, SharedEmbedding, SharingMethod, for_transformers, huggingface
from fairseq_tiedemb.huggingface import USES_OF_LOGITS, tied_class
from fairseq_tiedemb.sharing import SHARING_METHODS, ScaleNorm, sharing_method

from .processes import in_two_processes

transformers = pytest.importorskip("transformers")
SIZE, WIDTH = 50, 16
TEXT = torch.randint(1, SIZE, (3, 9), generator=torch.Generator().manual_seed(1))
LABELS = TEXT.clone()
LABELS[0, :4] = -100


def build(name: str, **options: Any) -> Any:
    """A small model without dropout."""
    torch.manual_seed(1)
    if name == "GPT2":
        rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        options = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "bos_token_id": None, "eos_token_id": None, **rates}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=SIZE, n_positions=32, **options))
    if name in WITH_ENCODER:
        return build_with_encoder(name, **options)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 2}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=SIZE, hidden_size=WIDTH, intermediate_size=24, pad_token_id=0, **heads, **options
    )
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    if getattr(model.lm_head, "bias", None) is not None:
        nn.init.normal_(model.lm_head.bias)
    return model


def build_with_encoder(name: str, **options: Any) -> Any:
    """A small model with an encoder; what adds a bias to its logits has one that is not 0."""
    sizes = {"d_model": WIDTH, "vocab_size": SIZE, "pad_token_id": 0, "decoder_start_token_id": 2}
    sizes |= {"tie_word_embeddings": True, **options}
    if name.endswith("T5"):
        sizes |= {"d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
    else:
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": 2, f"{side}_ffn_dim": 24, f"{side}_attention_heads": 2}
        sizes |= {"max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 3, "forced_eos_token_id": None}
        rates = ("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
        sizes |= dict.fromkeys(rates, 0.0)
    if name == "LED":
        sizes |= {f"max_{side}_position_embeddings": 32 for side in ("encoder", "decoder")}
        sizes["attention_window"] = [4, 4]
    model = getattr(transformers, WITH_ENCODER[name])(getattr(transformers, f"{name}Config")(**sizes))
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def parameters_of_head(model: Any) -> dict[str, Any]:
    return dict(model.get_output_embeddings().named_parameters())


WITH_ENCODER = {
    **{name: f"{name}ForConditionalGeneration" for name in ("T5", "MT5", "UMT5", "Bart", "MBart", "M2M100", "Pegasus")},
    **{
        name: f"{name}ForConditionalGeneration" for name in ("LED", "PLBart", "Mvp", "Blenderbot", "LongT5", "PegasusX")
    },
    **{name: f"{name}ForConditionalGeneration" for name in ("BlenderbotSmall", "BigBirdPegasus")},
    "Marian": "MarianMTModel",
}
MODELS = [
    ("GPT2", {}),
    ("Llama", {"tie_word_embeddings": True}),
    ("Gemma2", {"final_logit_softcapping": 2.0}),
    ("Cohere", {"logit_scale": 0.25}),
    ("Granite", {"logits_scaling": 3.0, "tie_word_embeddings": True}),
    ("Phi", {"tie_word_embeddings": True, "resid_pdrop": 0.0}),
    *((name, {}) for name in WITH_ENCODER),
]


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_a_plain_table_trains_and_scores_as_the_model_does(name: str, options: dict[str, Any]) -> None:
    stock = build(name, **options)
    with torch.no_grad():
        stock.get_input_embeddings().weight.mul_(20)  # for logits that a cap changes
    ours = for_transformers(copy.deepcopy(stock))
    losses = []
    for model in (stock, ours):
        model.train().gradient_checkpointing_enable()
        losses.append(model(TEXT, labels=LABELS))
        losses[-1].loss.backward()
    torch.testing.assert_close(losses[1].loss, losses[0].loss)
    assert losses[1].logits is None
    assert "logits" not in losses[1]
    for parameter, other in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6)
    given = {"decoder_input_ids": TEXT} if name in WITH_ENCODER else {}
    torch.testing.assert_close(ours.eval()(TEXT, **given).logits, stock.eval()(TEXT, **given).logits)
    evaluated = ours(TEXT, labels=LABELS)
    torch.testing.assert_close(evaluated.loss, losses[0].loss)
    assert evaluated.logits.shape == (*TEXT.shape, SIZE)
    start = TEXT[:, :2]
    assert torch.equal(ours.generate(start, max_length=6), stock.generate(start, max_length=6))


@pytest.mark.parametrize(("setting", "neutral"), USES_OF_LOGITS.items())
def test_logits_that_a_model_uses_are_computed(setting: str, neutral: float | None) -> None:
    model = for_transformers(build("Llama")).train()
    for value in (neutral, 5.0):
        setattr(model.config, setting, value)
        assert (model(TEXT, labels=LABELS).logits is None) == (value == neutral)


def test_all_types_with_an_encoder_are_tested() -> None:
    types = {getattr(transformers, f"{name}Config").model_type for name in WITH_ENCODER}
    assert types == {*huggingface.WITH_ENCODER}


def test_logits_that_a_part_of_the_settings_uses_are_computed() -> None:
    """Models of texts and pictures have the text's settings apart."""
    model = for_transformers(build("Llama")).train()
    assert model(TEXT, labels=LABELS).logits is None
    model.config.text_config = transformers.LlamaConfig(z_loss_coefficient=5.0)
    assert model(TEXT, labels=LABELS).logits is not None


@pytest.mark.parametrize("method", ["cosine", "distance", "fixnorm", "scaled-words"])
@pytest.mark.parametrize(("name", "options"), MODELS[2:4] + [("Bart", {})])
def test_every_method_trains_by_what_the_model_makes_of_its_scores(
    name: str, options: dict[str, Any], method: str
) -> None:
    model = for_transformers(build(name, **options), method, rows="new").train()
    trained = model(TEXT, labels=LABELS)
    # A scaled score is that of scaled features only where these are a factor of it.
    assert (trained.logits is None) == (name != "Cohere" or method in ("cosine", "scaled-words"))
    logits, labels = model.eval()(TEXT, labels=LABELS).logits, LABELS
    logits, labels = (logits, labels) if name in WITH_ENCODER else (logits[:, :-1], labels[:, 1:])
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(trained.loss, expected)


@pytest.mark.parametrize(
    "use", [lambda logits: logits + logits.square(), lambda logits: logits[..., :-1], lambda logits: -logits]
)
def test_logits_of_which_a_model_makes_anything_else_are_computed(use: Callable[[Tensor], Tensor]) -> None:
    class Odd(transformers.LlamaForCausalLM):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
            logits = use(self.lm_head(self.model(input_ids).last_hidden_state))
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=logits.size(-1))
            return transformers.modeling_outputs.CausalLMOutputWithPast(loss=loss, logits=logits)

    stock = Odd(build("Llama", tie_word_embeddings=True).config)
    model = for_transformers(copy.deepcopy(stock)).train()
    for _ in range(2):
        result = model(TEXT, LABELS.clamp(max=SIZE - 2))
        assert result.logits is not None
        torch.testing.assert_close(result.loss, stock(TEXT, LABELS.clamp(max=SIZE - 2)).loss)


@pytest.mark.parametrize("before", [True, False])
def test_another_loss_is_that_of_the_model(before: bool) -> None:
    def half(logits: Any, labels: Any, **_: Any) -> Any:
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) / 2

    model = build("Llama")
    if not before:
        model = for_transformers(model)
    model.loss_function = functools.partial(half)
    model = for_transformers(model) if before else model
    losses = [model.train(mode)(TEXT, labels=LABELS).loss for mode in (True, False, True)]
    torch.testing.assert_close(losses, [half(model(TEXT).logits, LABELS)] * 3)
    del model._loss_function
    model.loss_type = "ForMaskedLM"
    torch.testing.assert_close(losses[0] * 2, model(TEXT, labels=LABELS).loss)


def test_a_model_is_pickled_and_copied(tmp_path: Path) -> None:
    model = for_transformers(build("GPT2"), "cosine").eval()
    torch.save(model, tmp_path / "model.pt")
    for again in (torch.load(tmp_path / "model.pt", weights_only=False), copy.deepcopy(model)):
        assert type(again) is type(model)
        assert again.get_output_embeddings().table.weight is again.get_input_embeddings().weight
        assert again.get_output_embeddings().table is again.get_input_embeddings()
        torch.testing.assert_close(again(TEXT).logits, model(TEXT).logits)


@pytest.mark.parametrize("labels", [LABELS[:, :4], LABELS[:1]])
def test_labels_of_another_shape_are_refused(labels: Tensor) -> None:
    model, got = for_transformers(build("GPT2")).train(), rf"\({len(labels)}, {labels.size(1)}\)"
    with pytest.raises(ValueError, match=rf"^labels: needs shape \(3, 9\), .*; got {got}"):
        model(TEXT, labels=labels)


def test_shifted_labels_may_be_flat() -> None:
    model = for_transformers(build("GPT2")).train()
    shifted = torch.nn.functional.pad(LABELS, (0, 1), value=-100)[:, 1:].flatten()
    losses = [model(TEXT, labels=LABELS, **more).loss for more in ({}, {"shift_labels": shifted})]
    torch.testing.assert_close(*losses)
    with pytest.raises(ValueError, match=r"^shift_labels: needs shape \(3, 9\), .*; got \(26,\)"):
        model(TEXT, labels=LABELS, shift_labels=shifted[1:])


def test_logits_in_a_tuple_are_computed() -> None:
    model = for_transformers(build("Llama")).train()
    _, logits = model(TEXT, labels=LABELS, return_dict=False)[:2]
    assert logits.shape == (*TEXT.shape, SIZE)


def test_a_replica_scores_by_its_own_table() -> None:
    """As nn.DataParallel makes it: of the modules alone, and not of what torch does not know."""
    model = for_transformers(build("Llama")).eval()
    model.set_input_embeddings(copy.deepcopy(model.get_input_embeddings()))
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2)
    features = model.model(TEXT).last_hidden_state
    torch.testing.assert_close(model(TEXT).logits, model.get_input_embeddings().scores(features))


def test_a_sharded_model_trains_on_the_batches_of_both_processes(tmp_path: Path) -> None:
    in_two_processes(_train_sharded, tmp_path)


def _train_sharded(rank: int) -> None:
    for name, method in itertools.product(("Llama", "T5"), ("plain", "cosine", "distance")):
        model = for_transformers(build(name), method).train()
        alone = copy.deepcopy(model)
        (sum(alone(text[None], labels=text[None]).loss for text in TEXT[:2]) / 2).backward()
        for layer in model.model.layers if name == "Llama" else (*model.encoder.block, *model.decoder.block):
            fully_shard(layer)
        fully_shard(model)
        text = TEXT[rank : rank + 1]
        model(text, labels=text).loss.backward()
        for key, parameter in model.named_parameters():
            gradient = parameter.grad.full_tensor()
            torch.testing.assert_close(gradient, alone.get_parameter(key).grad, rtol=1e-4, atol=1e-6)


def test_a_loss_of_several_batches_is_divided_by_all_their_words() -> None:
    model = for_transformers(build("Llama"), options=LossOptions(label_smoothing=0.1)).train()
    loss = model(TEXT, labels=LABELS, num_items_in_batch=7).loss
    words = LABELS[:, 1:].ne(-100).sum()
    torch.testing.assert_close(loss * 7, model(TEXT, labels=LABELS).loss * words)
    features, target = model.model(TEXT).last_hidden_state[:, :-1][LABELS[:, 1:].ne(-100)], LABELS[:, 1:]
    table = model.get_input_embeddings()
    expected = table.loss(features, target[target.ne(-100)], LossOptions(label_smoothing=0.1)).loss
    torch.testing.assert_close(loss * 7, expected)


MATRICES = [name for name, method in SHARING_METHODS.items() if method.feature_map is None]


@pytest.mark.parametrize("method", MATRICES)
@pytest.mark.parametrize("name", ["Llama", "Phi"])
def test_a_loss_from_the_weights_of_the_head_is_the_methods(name: str, method: str) -> None:
    """As TRL computes it, with the head's attributes ``weight`` and ``bias``, and never by its ``forward``."""
    losses, gradients = [], []
    for by_weights in (False, True):
        model = for_transformers(build(name), method, rows="new").train()
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        for values in table.method_parameters.values():
            nn.init.uniform_(values, 0.5, 1.5, generator=torch.Generator().manual_seed(1))
        if by_weights:
            features = model.model(TEXT).last_hidden_state[:, :-1].flatten(0, 1)
            logits = nn.functional.linear(features, head.weight, head.bias)
            losses.append(nn.functional.cross_entropy(logits, LABELS[:, 1:].flatten()))
        else:
            losses.append(model(TEXT, labels=LABELS).loss)
        losses[-1].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert head.weight is table.weight or not sharing_method(method).is_plain


def test_a_weight_of_the_head_that_no_matrix_is_is_refused() -> None:
    head = for_transformers(build("Phi"), "fixnorm", rows="new").get_output_embeddings()
    assert head.bias.shape == (SIZE,)
    with pytest.raises(
        AttributeError, match="lm_head.weight: needs a sharing method without a map .*; got fixnorm. Use"
    ):
        _ = head.weight


@pytest.mark.parametrize("method", ["plain", "cosine", "fixnorm"])
def test_files_may_have_the_weight_of_the_head(method: str, tmp_path: Path) -> None:
    """As those that Transformers 4 wrote without safetensors, and state dicts of version 0.1.50."""
    model = for_transformers(build("GPT2"), method, rows="new").eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    weights = model.state_dict()
    weights |= {"lm_head.weight": weights["transformer.wte.weight"]}
    torch.save(weights, tmp_path / "pytorch_model.bin")
    again = tied_class(transformers.GPT2LMHeadModel).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(TEXT).logits, model(TEXT).logits)
    again.load_state_dict(dict(weights))


@pytest.mark.parametrize("method", ["plain", "fixnorm", "cosine", "scaled-words"])
def test_a_saved_model_is_the_same_again(method: str, tmp_path: Path) -> None:
    model = for_transformers(build("GPT2"), method, rows="new").eval()
    table = model.get_input_embeddings()
    for parameter in table.method_parameters.values():
        nn.init.constant_(parameter, 1.7)
    model.save_pretrained(tmp_path)
    again = tied_class(transformers.GPT2LMHeadModel).from_pretrained(tmp_path)
    assert type(again) is type(model)
    assert again.get_output_embeddings().table.weight is again.get_input_embeddings().weight
    torch.testing.assert_close(again.eval()(TEXT).logits, model(TEXT).logits)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    if method == "plain":
        torch.testing.assert_close(theirs.eval()(TEXT).logits, model(TEXT).logits)
    if not table.method_parameters:
        torch.testing.assert_close(for_transformers(theirs).eval()(TEXT).logits, model(TEXT).logits)


@pytest.mark.parametrize("method", ["plain", "fixnorm", "scaled-words", "distance"])
@pytest.mark.parametrize("name", ["T5", "Bart", "Phi"])
def test_a_saved_model_with_an_encoder_or_a_bias_is_the_same_again(name: str, method: str, tmp_path: Path) -> None:
    stock, given = build(name), {"decoder_input_ids": TEXT} if name in WITH_ENCODER else {}
    model = for_transformers(copy.deepcopy(stock), method, rows="new").train()
    if "bias" in (of_head := parameters_of_head(model)):
        nn.init.zeros_(of_head["bias"])
    model(TEXT, labels=LABELS).loss.backward()
    for parameter in {*model.get_input_embeddings().parameters(), *of_head.values()}:
        assert parameter.grad is not None
        parameter.data.add_(0.3)
    for size in (SIZE, SIZE + 3):
        table = model.resize_token_embeddings(size)
        assert not given or model.get_encoder().get_input_embeddings() is table
        assert not given or model.get_decoder().get_input_embeddings() is table
        logits = model.eval()(TEXT, **given).logits
        model.save_pretrained(tmp_path)
        again = tied_class(type(stock)).from_pretrained(tmp_path).eval()
        assert not given or again.get_encoder().get_input_embeddings() is again.get_input_embeddings()
        torch.testing.assert_close(again(TEXT, **given).logits, logits)
    if method == "plain":
        torch.testing.assert_close(type(stock).from_pretrained(tmp_path).eval()(TEXT, **given).logits, logits)


@pytest.mark.parametrize("method", ["scaled", "scaled-words", "scaled-cosine", "fixnorm"])
def test_parameters_that_no_file_has_are_those_of_a_new_table(method: str, tmp_path: Path) -> None:
    build("GPT2").save_pretrained(tmp_path)
    config = transformers.GPT2Config.from_pretrained(tmp_path)
    config.sharing_method = method
    torch.full((2**20,), 5e35)  # what memory may hold
    table = tied_class(transformers.GPT2LMHeadModel).from_pretrained(tmp_path, config=config).get_input_embeddings()
    new = SharedEmbedding(SIZE, WIDTH, None, method=method).state_dict() | {"weight": table.weight}
    torch.testing.assert_close(table.state_dict(), new)


def test_words_come_and_go() -> None:
    model = for_transformers(build("GPT2"), "scaled-words")
    table = model.get_input_embeddings()
    nn.init.constant_(table.method_parameters["scales"], 1.7)
    rows = table.weight.detach().clone()
    model(TEXT, labels=TEXT).loss.backward()
    for size in (SIZE + 10, SIZE - 10):
        resized = model.resize_token_embeddings(size)
        assert resized is model.get_input_embeddings()
        assert isinstance(resized, SharedEmbedding)
        assert model.get_output_embeddings().table.weight is resized.weight
        kept = min(size, SIZE)
        assert torch.equal(resized.weight[: SIZE - 10], rows[: SIZE - 10])
        assert resized.method_parameters["scales"].tolist() == pytest.approx([1.7] * kept + [1.0] * (size - kept))
        words = torch.randint(0, size, (2, 5))
        model.train()(words, labels=words).loss.backward()
    assert model.config.vocab_size == SIZE - 10


def test_what_a_method_has_learnt_stays_beside_fewer_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of its feature map, and of a parameter with an entry per feature, fewer words than features."""
    own = {"gains": lambda vocabulary, width: torch.ones(width)}
    method = SharingMethod(
        "own", "", "", scale=lambda n, own: own["gains"].mean(), feature_map=ScaleNorm, parameters=own
    )
    monkeypatch.setitem(SHARING_METHODS, "own", method)
    model = for_transformers(build("GPT2"), "own")
    for name, values in model.get_input_embeddings().named_parameters():
        if name != "weight":
            nn.init.constant_(values, 3.0)
    learnt = {n: v for n, v in model.resize_token_embeddings(WIDTH // 2).named_parameters() if n != "weight"}
    assert set(learnt) == {"method_parameters.gains", "feature_map.g"}
    for values in learnt.values():
        assert values.tolist() == torch.full_like(values, 3.0).tolist()


def test_a_compiled_model_trains_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """torch warns of a number that is read in what it compiles."""
    model = for_transformers(build("Llama")).train()
    losses = [model(TEXT, labels=LABELS).loss]
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        losses.append(compiled(TEXT, labels=LABELS).loss)
        losses[-1].backward()
    torch.testing.assert_close(losses[1:], losses[:1] * 3)
    assert not [record for record in caplog.records if record.name.startswith("torch._dynamo")]


def test_half_precision_trains() -> None:
    model = for_transformers(build("Llama"), "cosine").bfloat16().train()
    loss = model(TEXT, labels=LABELS).loss
    loss.backward()
    assert loss.isfinite()
    assert model.get_input_embeddings().weight.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("rows", ["input", "output", "mean"])
def test_an_untied_model_starts_from_the_rows_asked_for(rows: str) -> None:
    model = build("Llama", tie_word_embeddings=False)
    first, last = model.get_input_embeddings().weight.detach().clone(), model.lm_head.weight.detach().clone()
    for_transformers(model, rows=rows)
    expected = {"input": first, "output": last, "mean": (first + last) / 2}[rows]
    torch.testing.assert_close(model.get_input_embeddings().weight.detach(), expected)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_new_rows_are_those_that_the_method_needs() -> None:
    first = build("GPT2").get_input_embeddings().weight
    for method, norm in (("plain", 0.02 * WIDTH**0.5), ("cosine", 1.0)):
        rows = for_transformers(build("GPT2"), method, rows="new").get_input_embeddings().weight
        assert not torch.equal(rows, first)
        assert rows.norm(dim=1).mean().item() == pytest.approx(norm, rel=0.1)


class Copies(nn.Module):
    """What PEFT puts in the place of a module of ``modules_to_save``: one that is kept, and a copy that is in use."""

    def __init__(self, kept: nn.Module):
        super().__init__()
        self.kept, self.used = kept.requires_grad_(False), copy.deepcopy(kept).requires_grad_(True)

    def __getattr__(self, name: str) -> Any:
        own = vars(self)["_modules"]
        return own[name] if name in own else getattr(own["used"], name)

    def forward(self, *arguments: Any) -> Any:
        return self.used(*arguments)


@pytest.mark.parametrize(("name", "options"), MODELS[:6])
def test_a_wrapped_table_is_read_and_scored_by(name: str, options: dict[str, Any]) -> None:
    model, wrapped = (for_transformers(build(name, **options)).train() for _ in range(2))
    wrapped.set_input_embeddings(Copies(wrapped.get_input_embeddings()))
    for each in (model, wrapped):
        table = each.get_input_embeddings()
        with torch.no_grad():
            table.weight.mul_(20).add_(0.1)
        loss = each(TEXT, labels=LABELS)
        loss.loss.backward()
        assert loss.logits is None
        torch.testing.assert_close(each(TEXT, labels=LABELS).loss, model(TEXT, labels=LABELS).loss)
        torch.testing.assert_close(table.weight.grad, model.get_input_embeddings().weight.grad, rtol=1e-4, atol=1e-6)
        assert each.get_output_embeddings().weight is table.weight
    assert wrapped.get_input_embeddings().kept.weight.grad is None


@pytest.mark.parametrize("name", ["T5", "Bart"])
def test_a_copy_of_one_input_of_several_is_refused(name: str) -> None:
    model = for_transformers(build(name))
    holder = model.model if name == "Bart" else model
    holder.shared = Copies(holder.shared)
    with pytest.raises(ValueError, match="^model: needs one table as input of encoder and decoder; got several"):
        model(TEXT, labels=LABELS)
    with pytest.raises(ValueError, match="^resize_token_embeddings: needs the shared table; got Copies"):
        model.resize_token_embeddings(SIZE + 1)


def test_a_copy_of_the_output_is_refused() -> None:
    model = for_transformers(build("Llama"))
    model.set_output_embeddings(Copies(model.get_output_embeddings()))
    with pytest.raises(ValueError, match=r"^lm_head: needs the output of the shared table; got Copies\. Use"):
        model(TEXT)


def test_what_cannot_be_tied_is_refused() -> None:
    model = build("GPT2")
    with pytest.raises(ValueError, match="rows: needs input, output, mean or new; got 'both'"):
        for_transformers(model, rows="both")
    with pytest.raises(ValueError, match="got 'no-method'"):
        for_transformers(model, "no-method")
    model.lm_head = nn.Linear(WIDTH, SIZE + 1, bias=False)
    with pytest.raises(ValueError, match=r"one size; got GPT2LMHeadModel with .*50, 16.* and .*51, 16"):
        for_transformers(model)
    model.lm_head = type("Halved", (nn.Linear,), {"forward": lambda self, x: x / 2})(WIDTH, SIZE, bias=False)
    with pytest.raises(ValueError, match=r"needs an output that is a matrix, .*; got GPT2LMHeadModel's Halved"):
        for_transformers(model)
    model = build("Marian", share_encoder_decoder_embeddings=False, decoder_vocab_size=SIZE)
    with pytest.raises(ValueError, match=r"one table as input of encoder and decoder; got MarianMTModel with two\."):
        for_transformers(model)
    model = build("GPT2")
    model.set_input_embeddings(type("Strange", (nn.Embedding,), {"forward": lambda self, x: x})(SIZE, WIDTH))
    with pytest.raises(ValueError, match="module: needs an nn.Embedding or nn.Linear; got Strange"):
        for_transformers(model)
    with pytest.raises(ValueError, match="got TiedGPT2LMHeadModel, which has ours"):
        for_transformers(for_transformers(build("GPT2")))
    assert type(model) is transformers.GPT2LMHeadModel
