"""Shared embeddings in models of the library Transformers, which this module does not import."""

import functools
import inspect
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .constants import Constants
from .embedding import SharedEmbedding
from .losses import PLAIN_LOSS, LossOptions
from .sharing import sharing_method

# Settings of models that change the logits between the output embedding and the loss, or read them beside it, with the
# values that do not: Gemma 2, RecurrentGemma, xLSTM, Cohere, Granite, Bamba, Falcon-H1, Chameleon.
USES_OF_LOGITS = {
    **dict.fromkeys(("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")),
    **dict.fromkeys(("logit_scale", "logits_scaling", "lm_head_multiplier"), 1),
    "vocabulary_map": None,
    "z_loss_coefficient": 0,
    "return_dict": True,  # else the logits are an entry of a tuple
}
IGNORED = -100  # the label of tokens that are not predicted


def for_transformers(
    model: Any,
    method: str | None = None,
    *,
    rows: Literal["input", "output", "mean", "new"] = "input",
    options: LossOptions = PLAIN_LOSS,
) -> Any:
    """Makes one table the input and the output embedding of a language model of Transformers, in place.

    In training, with ``labels``, the loss of a language model is then computed from features and table, as in
    ``output_loss``: the logits of a batch are never held at once, and ``logits`` of the result is None. In evaluation
    and without labels the model returns logits.

    The model's class becomes a subclass of its own, ``tied_class``. Its ``config`` names the method, so
    ``save_pretrained`` and ``from_pretrained`` of this class, or this function after that of the model's first class,
    give the same model back. With ``plain``, Transformers needs nothing of this package to load it. Parameters of a
    method, such as a temperature, are read by ``tied_class`` alone.

    Args:
        model: a language model without an encoder, and without a bias of its output.
        method: name of a sharing method; None for the one in the model's config, or plain.
        rows: first rows of an untied model: those of its input or output, or their mean, which need training; "new"
            draws rows for a model that is to be trained from the start, as methods that divide by norms need it.
        options: options of the loss in training.

    Returns:
        The model.

    Raises:
        ValueError: for a model without two embeddings of one size, whose output is more than a matrix, or for a
            method or value of ``rows`` that does not exist.
    """
    if rows not in ("input", "output", "mean", "new"):
        raise ValueError(f"rows: needs input, output, mean or new; got {rows!r}. Use input.")
    method = sharing_method(method or getattr(model.config, "sharing_method", None) or "plain").name
    ours, theirs, name = model.get_input_embeddings(), model.get_output_embeddings(), type(model).__name__
    if isinstance(ours, SharedEmbedding):
        raise ValueError(f"model: needs embeddings of Transformers; got {name}, which has ours. Use it as it is.")
    shapes = [getattr(getattr(layer, "weight", None), "shape", None) for layer in (ours, theirs)]
    has_encoder = getattr(model.config, "is_encoder_decoder", False)
    if has_encoder or None in shapes or shapes[0] != shapes[1]:
        needs = "a language model with an input and an output embedding of one size"
        got = "an encoder" if has_encoder else f"{shapes[0]} and {shapes[1]}"
        raise ValueError(f"model: needs {needs}; got {name} with {got}. Use one like GPT-2.")
    if getattr(theirs, "bias", None) is not None:
        raise ValueError(f"model: needs an output without a bias; got {name}'s. Use another model.")
    if type(theirs).forward is not nn.Linear.forward:
        needs, got = "an output that is a matrix alone (nn.Linear)", f"{name}'s {type(theirs).__name__}"
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

    class Tied(base):
        loss_options = PLAIN_LOSS

        def __init__(self, config: Any, *args: Any, **kwargs: Any):
            config.tie_word_embeddings = True
            super().__init__(config, *args, **kwargs)
            _share(self, _table_of(self.get_input_embeddings(), getattr(config, "sharing_method", None) or "plain"))

        @functools.wraps(base.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = self.get_output_embeddings()
            table = output.__dict__["table"] = self.get_input_embeddings()  # a replica's own, in DataParallel
            is_lean = takes_loss_function and self.training and kwargs.get("labels") is not None
            if not is_lean or not self._has_the_loss_of_its_logits(kwargs):
                return super().forward(*args, **kwargs)
            output.returns_features = True
            self.loss_function = functools.partial(_loss_of_features, table, self.loss_options)
            try:
                result = super().forward(*args, **kwargs)  # whose mapping would keep logits that are set to None
                return type(result)(**{name: value for name, value in result.items() if name != "logits"})
            finally:
                output.returns_features = False
                del self._loss_function

        def _has_the_loss_of_its_logits(self, given: dict[str, Any]) -> bool:
            """Whether the loss is Transformers' own of the next word, and nothing else changes or reads the logits."""
            if "_loss_function" in vars(self) or getattr(self.loss_function, "__name__", "") != "ForCausalLMLoss":
                return False
            return all(
                given.get(name, getattr(config, name, None)) in (None, neutral)
                for name, neutral in USES_OF_LOGITS.items()
                for config in (self.config, self.config.get_text_config())
            )

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
            if new_num_tokens is None and not args and not kwargs:
                return table
            rows, head = nn.Embedding(table.num_embeddings, table.embedding_dim), nn.Linear(1, 1, bias=False)
            rows.padding_idx = table.padding_idx
            rows.weight = head.weight = nn.Parameter(table.weight.data, table.weight.requires_grad)
            self.set_input_embeddings(rows)
            self.set_output_embeddings(head)
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


class _Output(nn.Module):
    """The output embedding of a model of Transformers: the scores of a table, or features for its loss."""

    table: SharedEmbedding

    def __init__(self, table: SharedEmbedding):
        super().__init__()
        self.__dict__["table"] = table  # hidden from torch's registry
        self.weight = table.weight  # under the name that Transformers ties and saves
        self.out_features, self.in_features = table.weight.shape
        self.returns_features = False

    def forward(self, features: Tensor) -> Tensor:
        return features if self.returns_features else self.table.scores(features)


def _table_of(embedding: Any, method: str) -> SharedEmbedding:
    """A table with the rows of an input embedding, and its scale (Gemma's sqrt(D))."""
    constants = Constants(embedding_scale=float(getattr(embedding, "scalar_embed_scale", 1.0)))
    return SharedEmbedding.from_module(embedding, method=method, constants=constants)


def _share(model: Any, table: SharedEmbedding) -> None:
    model.set_input_embeddings(table)
    model.set_output_embeddings(_Output(table))


def _loss_of_features(
    table: SharedEmbedding,
    options: LossOptions,
    logits: Tensor,
    labels: Tensor,
    *_: Any,
    num_items_in_batch: Any = None,
    ignore_index: int = IGNORED,
    shift_labels: Tensor | None = None,
    **__: Any,
) -> Tensor:
    """Transformers' loss of a causal language model, where ``logits`` are features (B, T, D)."""
    shape, name = logits.shape[:-1], "labels" if shift_labels is None else "shift_labels"
    target = F.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shift_labels is None else shift_labels
    if target.shape != shape and (shift_labels is None or target.numel() != shape.numel()):  # flat, say
        needs, got = f"shape {tuple(shape)}, that of the features", tuple(target.shape)
        raise ValueError(f"{name}: needs {needs}; got {got}. Use one for each token, {ignore_index} for none.")
    target_N = target.flatten().to(logits.device)
    words_N = target_N.ne(ignore_index).nonzero().squeeze(1)
    features_ND = logits.flatten(0, -2).index_select(0, words_N)
    loss = table.loss(features_ND, target_N.index_select(0, words_N), options).loss
    return loss / (len(words_N) if num_items_in_batch is None else num_items_in_batch)
