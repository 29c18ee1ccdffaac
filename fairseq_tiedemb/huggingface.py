"""Shared embeddings in models of the library Transformers, which this module does not import."""

import functools
import inspect
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from .constants import Constants
from .embedding import OF_METHOD, SharedEmbedding
from .huggingface_output import IGNORED, OtherLogits, loss_of_features
from .huggingface_output import TiedOutput as _Output  # its name in models that were pickled before version 0.1.51
from .losses import PLAIN_LOSS, LossOptions
from .sharing import sharing_method

# Settings by which models read their logits beside the loss (Bamba) or return a tuple, with the values that do not.
USES_OF_LOGITS = {"z_loss_coefficient": 0, "return_dict": True}
# Types of models with an encoder whose loss is the mean cross entropy of the labels, and nothing else.
WITH_ENCODER = (
    *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "led", "longt5", "m2m_100", "marian", "mbart"),
    *("mt5", "mvp", "pegasus", "pegasus_x", "plbart", "t5", "umt5"),
)
SCALES = ("scalar_embed_scale", "embed_scale")  # attributes of embeddings that scale their vectors: Gemma's, BART's


def for_transformers(
    model: Any,
    method: str | None = None,
    *,
    rows: Literal["input", "output", "mean", "new"] = "input",
    options: LossOptions = PLAIN_LOSS,
) -> Any:
    """Makes one table the input and the output embedding of a language model of Transformers, in place.

    In training, with ``labels``, the loss is then computed from features and table, as in ``output_loss``: the logits
    of a batch are never held at once, and ``logits`` of the result is None. Scales, biases and soft caps of a model's
    own logits are kept. In evaluation, without labels, and where a model does anything else with its logits, it
    computes them. In models with an encoder, such as T5, BART and NLLB, the table is the input of both sides, too.

    The model's class becomes a subclass of its own, ``tied_class``. Its ``config`` names the method, so
    ``save_pretrained`` and ``from_pretrained`` of this class, or this function after that of the model's first class,
    give the same model back. With ``plain``, Transformers needs nothing of this package to load it. Parameters of a
    method, such as a temperature, are read by ``tied_class`` alone.

    Args:
        model: a language model, or a model with an encoder whose two inputs are one table.
        method: name of a sharing method; None for the one in the model's config, or plain.
        rows: first rows of an untied model: those of its input or output, or their mean, which need training; "new"
            draws rows for a model that is to be trained from the start, as methods that divide by norms need it.
        options: options of the loss in training.

    Returns:
        The model.

    Raises:
        ValueError: for a model without two embeddings of one size, whose encoder has another one, or whose output is
            more than a matrix and a bias; for a method or value of ``rows`` that does not exist.
    """
    if rows not in ("input", "output", "mean", "new"):
        raise ValueError(f"rows: needs input, output, mean or new; got {rows!r}. Use input.")
    method = sharing_method(method or getattr(model.config, "sharing_method", None) or "plain").name
    ours, theirs, name = model.get_input_embeddings(), model.get_output_embeddings(), type(model).__name__
    if isinstance(ours, SharedEmbedding):
        raise ValueError(f"model: needs embeddings of Transformers; got {name}, which has ours. Use it as it is.")
    shapes = [getattr(getattr(layer, "weight", None), "shape", None) for layer in (ours, theirs)]
    if None in shapes or shapes[0] != shapes[1]:
        needs = "a language model with an input and an output embedding of one size"
        raise ValueError(f"model: needs {needs}; got {name} with {shapes[0]} and {shapes[1]}. Use one like GPT-2.")
    if any(getattr(side.get_input_embeddings(), "weight", None) is not ours.weight for side in _sides(model)):
        needs = "one table as input of encoder and decoder"
        raise ValueError(f"model: needs {needs}; got {name} with two. Use a model with one dictionary, like T5.")
    if type(theirs).forward is not nn.Linear.forward:
        needs, got = "an output that is a matrix, and a bias at most (nn.Linear)", f"{name}'s {type(theirs).__name__}"
        raise ValueError(f"model: needs {needs}; got {got}. Use another model.")
    table = _table_of(ours, method)
    with torch.no_grad():
        if rows in ("output", "mean") and theirs.weight is not ours.weight:
            ours.weight.copy_(theirs.weight if rows == "output" else (ours.weight + theirs.weight) / 2)
    if rows == "new":
        table.reset_parameters(getattr(model.config, "initializer_range", 0.02))
    model.config.sharing_method, model.config.tie_word_embeddings = method, True
    base: Any = type(model)
    model.__class__ = tied_class(base)
    _share(model, table)
    model.loss_options = options
    return model


@functools.cache
def tied_class(base: Any) -> Any:
    """The subclass of a class of Transformers whose models share one table by the method in their config.

    ``tied_class(GPT2LMHeadModel).from_pretrained(folder)`` loads what ``for_transformers`` made, whatever the method.
    """
    takes_loss_function = "self.loss_function(" in inspect.getsource(base.forward)
    names = [*inspect.signature(base.forward).parameters][1:]
    # torch would compile the loss anew for each copy of the table. Its compiler is imported here, not with the package.
    own_loss = torch.compiler.disable(loss_of_features)

    class Tied(base):
        loss_options = PLAIN_LOSS
        computes_logits = False  # whether the model makes something of its logits that the loss cannot

        def __init__(self, config: Any, *args: Any, **kwargs: Any):
            config.tie_word_embeddings = True
            super().__init__(config, *args, **kwargs)
            _share(self, _table_of(self.get_input_embeddings(), getattr(config, "sharing_method", None) or "plain"))

        @functools.wraps(base.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output, given = self.get_output_embeddings(), dict(zip(names, args, strict=False)) | kwargs
            if not isinstance(output, _Output):  # PEFT's wrapper, say
                needs, use = "the output of the shared table", "PEFT's modules_to_save of the input embedding alone"
                raise ValueError(f"lm_head: needs {needs}; got {type(output).__name__}. Use {use}.")
            if any(getattr(side.get_input_embeddings(), "embed", None) != output.table.embed for side in _sides(self)):
                needs, got = "one table as input of encoder and decoder", "several, such as PEFT's copies"
                raise ValueError(f"model: needs {needs}; got {got}. Use PEFT without embeddings in modules_to_save.")
            if not self.training or given.get("labels") is None or not self._has_the_loss_of_its_logits(given):
                return super().forward(*args, **kwargs)
            loss_of = functools.partial(own_loss, output, self.loss_options)
            output.is_asked = True
            try:
                if takes_loss_function:
                    self.loss_function = loss_of
                    result = super().forward(**given)
                else:
                    result = super().forward(**given | _inputs_of(self, given))
                    more = {"shift_labels": given["labels"], "num_items_in_batch": given.get("num_items_in_batch")}
                    result["loss"] = loss_of(result.logits, given["labels"], **more)
                # A new one: the old one's mapping would keep logits that are set to None.
                return type(result)(**{name: value for name, value in result.items() if name != "logits"})
            except OtherLogits:
                self.computes_logits = True
            finally:
                output.is_asked, output.features = False, None
                self.__dict__.pop("_loss_function", None)
            return super().forward(*args, **kwargs)

        def _has_the_loss_of_its_logits(self, given: dict[str, Any]) -> bool:
            """Whether the loss is Transformers' own, and nothing else is known to read the logits."""
            is_own = self.config.model_type in WITH_ENCODER
            if takes_loss_function:
                name = getattr(self.loss_function, "__name__", "")
                is_own = "_loss_function" not in vars(self) and name == "ForCausalLMLoss"
            if self.computes_logits or not is_own:
                return False
            return all(
                given.get(name, getattr(config, name, None)) in (None, neutral)
                for name, neutral in USES_OF_LOGITS.items()
                for config in (self.config, self.config.get_text_config())
            )

        def get_output_embeddings(self) -> Any:
            """As Transformers', over the table in use: a replica's own, in DataParallel; PEFT's copy."""
            output, table = super().get_output_embeddings(), self.get_input_embeddings()
            if isinstance(output, _Output) and hasattr(table, "embed"):
                output.__dict__["table"] = table.embed.__self__
            return output

        def get_parameter(self, target: str) -> Any:
            """As torch's, but the output's bias is the parameter, not the offset of the method's scores."""
            owner = self.get_submodule(target.rpartition(".")[0])
            is_bias = isinstance(owner, _Output) and target.endswith(".bias")
            return owner.own_bias() if is_bias else super().get_parameter(target)

        def _tie_or_clone_weights(self, layer: Any, other: Any) -> None:
            """As Transformers 4 does it, which reads the output's weight where it has a bias."""
            if not isinstance(layer, _Output):
                super()._tie_or_clone_weights(layer, other)

        def initialize_weights(self) -> None:
            """As Transformers'; parameters of a method that no file has start as the method's do."""
            super().initialize_weights()
            if isinstance(table := self.get_input_embeddings(), SharedEmbedding):
                table.reset_method()

        def __reduce__(self) -> Any:
            return _new, (base,), self.__dict__

        def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> Any:
            """As Transformers', with rows of the table; parameters of new words start as the method's do."""
            table: Any = self.get_input_embeddings()
            if not isinstance(table, SharedEmbedding):
                needs, got = "the shared table", type(table).__name__
                raise ValueError(f"resize_token_embeddings: needs {needs}; got {got}. Use it before get_peft_model.")
            if new_num_tokens is None and not args and not kwargs:
                return table
            rows, head = nn.Embedding(table.num_embeddings, table.embedding_dim), nn.Linear(1, 1, bias=False)
            head.bias = self.get_output_embeddings().own_bias()
            rows.padding_idx = table.padding_idx
            rows.weight = head.weight = nn.Parameter(table.weight.data, table.weight.requires_grad)
            self.set_input_embeddings(rows)
            self.set_output_embeddings(head)
            _name_the_table(self, rows)
            try:
                rows = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
                resized = SharedEmbedding.from_module(rows, method=table.method, constants=table.constants)
                resized.feature_map = table.feature_map
                for name, values in table.method_parameters.items():
                    is_of_words = values.shape[:1] == (table.num_embeddings,)
                    kept = slice(min(len(rows.weight), len(values))) if is_of_words else ...
                    resized.method_parameters[name].data[kept] = values.data[kept]
                table = resized.to(rows.weight)
            finally:
                _share(self, table)
            return table

    Tied.__name__ = Tied.__qualname__ = f"Tied{base.__name__}"
    return Tied


def _new(base: Any) -> Any:  # for pickle, which does not find a class that a function makes
    return tied_class(base).__new__(tied_class(base))


def _inputs_of(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The decoder's inputs of a model with an encoder, by which it computes no loss, in place of labels."""
    labels, config = given["labels"], model.config
    words = given.get("decoder_input_ids")
    if words is None and given.get("decoder_inputs_embeds") is None:
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            words = model.prepare_decoder_input_ids_from_labels(labels)
        else:
            words = F.pad(labels, (1, 0), value=config.decoder_start_token_id)[:, :-1]
            words = words.masked_fill(words == IGNORED, config.pad_token_id)
    return {"labels": None, "decoder_input_ids": words, "use_cache": False}


def _sides(model: Any) -> list[Any]:
    return [model.get_encoder(), model.get_decoder()] if getattr(model.config, "is_encoder_decoder", False) else []


def _table_of(embedding: Any, method: str) -> SharedEmbedding:
    """A table with the rows of an input embedding, and its scale (sqrt(D), say)."""
    scale = next((float(getattr(embedding, name)) for name in SCALES if hasattr(embedding, name)), None)
    if scale == 1:
        size, width = embedding.weight.shape
        plain = nn.Embedding(size, width, padding_idx=embedding.padding_idx, device="meta")
        plain.weight, embedding = embedding.weight, plain
    constants = Constants(embedding_scale=1.0 if scale is None else scale)
    return SharedEmbedding.from_module(embedding, method=method, constants=constants)


def _share(model: Any, table: SharedEmbedding) -> None:
    model.set_input_embeddings(table)
    model.set_output_embeddings(_Output(table, getattr(model.get_output_embeddings(), "bias", None)))
    _name_the_table(model, table)


def _name_the_table(model: Any, table: nn.Module) -> None:
    """Tells Transformers, which saves a tensor once, all names of a table's tensors in models with an encoder."""
    first, *others = [name for name, module in model.named_modules(remove_duplicate=False) if module is table]
    before, own = model._tied_weights_keys or {}, [key for key, _ in table.named_parameters() if OF_METHOD.search(key)]
    names = {f"{other}.{key}": f"{first}.{key}" for other in others for key in own}
    output = model.get_output_embeddings()
    head = next(f"{name}.weight" for name, module in model.named_modules() if module is output)
    kept = [name for name in before if not OF_METHOD.search(name) and name != head]
    if not isinstance(output, _Output):  # a matrix, while words are added
        names[head] = f"{first}.weight"
    if hasattr(model, "get_expanded_tied_weights_keys"):  # since version 5
        model._tied_weights_keys = {name: before[name] for name in kept} | names
        model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)
    else:
        model._tied_weights_keys = [*kept, *names]
