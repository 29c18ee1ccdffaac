"""Rules of sharing: which options fit together."""

import dataclasses
from itertools import pairwise
from typing import Any

from ..checkpoints.meaning import FORMER_OUTPUTS, MERGED, THREE_WAY, TYING
from ..constants import Constants
from ..option_checks import POSITIVE, PROBABILITY, Range, check_value, flag_of
from ..outputs import ADAPTIVE, BY_CLASSES, OUTPUT_HEADS, SOFTMAX, OutputHead, Words
from ..sharing import SharingMethod
from .settings import Family, Settings, Widths

CUTOFF = "adaptive_softmax_cutoff"


def head_of(settings: Settings) -> OutputHead:
    """The output layer that the options name, or imply.

    Raises ValueError if there is none of the name, the family cannot have it, or options contradict one another.
    """
    name, former, cutoff = settings("output_layer") or SOFTMAX, settings("word2vec_output"), settings(CUTOFF)
    if former:
        now = FORMER_OUTPUTS.get(str(former))
        if now is None or name not in (now, FORMER_OUTPUTS["negative"]):
            needs = f"one of {', '.join(FORMER_OUTPUTS)}, and no other --output-layer"
            got = f"{former} with --output-layer {name}"
            raise ValueError(f"--word2vec-output: needs {needs}; got {got}. Use --output-layer alone.")
        name = now
    if cutoff and name == SOFTMAX:
        name = ADAPTIVE
    head = OUTPUT_HEADS.find(name, flag="--output-layer")
    heads = settings.family.heads
    is_adaptive, ends = name == ADAPTIVE, flag_of(CUTOFF)
    with_bands = "a recurrent language model, a Transformer or a convolutional model"
    no_words = "word2vec, since it gives words no probabilities"
    for is_wrong, needs, got, use in (
        (heads and name not in heads, "a language model", settings.arch, " or ".join(heads)),
        (not heads and not head.has_probabilities, no_words, settings.arch, "sampled, say"),
        (cutoff and not is_adaptive, "one table for all words", f"{ends} {cutoff}", "one or the other"),
        (is_adaptive and not hasattr(settings.options, CUTOFF), with_bands, settings.arch, "classes, say"),
        (is_adaptive and not cutoff, ends, "none", f"{ends} 2000,6000, say"),
    ):
        if is_wrong:
            raise ValueError(f"--output-layer {name}: needs {needs}; got {got}. Use {use}.")
    return head


def check_projection(settings: Settings) -> None:
    """Raises ValueError for a bias of P, or none, without P, and for both at once."""
    projects, bias, no_bias = settings.on("projection"), settings("projection_bias"), settings("no_projection_bias")
    if (bias or no_bias) and not projects:
        flag = "--projection-bias" if bias else "--no-projection-bias"
        raise ValueError(f"{flag}: needs a model with P; got one without. Use --projection too.")
    if bias and no_bias:
        raise ValueError("--projection-bias: needs to be alone; got --no-projection-bias too. Use one of them.")


def check_widths(settings: Settings, widths: Widths, output: int) -> None:
    """Raises ValueError if shared tables differ in width; ``output`` is the width that the output table sees."""
    if settings.shares is None:
        return
    asked_by = settings.asked_by(settings.shares)
    if settings.shares_inputs and widths.encoder != widths.input:
        needs, got = "--encoder-embed-dim equal to --decoder-embed-dim", f"{widths.encoder} and {widths.input}"
        raise ValueError(f"{asked_by}: needs {needs}; got {got}. Use --encoder-embed-dim {widths.input}.")
    is_other = settings("embedding_rank") or (settings.family.fairseqs and settings(CUTOFF))
    if widths.input != output and not is_other:
        (needs, use), got = settings.family.unequal, f"{widths.input} and {widths.features}"
        raise ValueError(f"{asked_by}: needs {needs}; got {got}. Use {use.format(widths.input)}.")


def check_dictionaries(settings: Settings, source: Words, target: Words) -> None:
    """Raises ValueError if dictionaries, or files of vectors, do not fit a table that encoder and decoder share."""
    if settings.shares == MERGED:
        for number, (word, other) in enumerate(zip(target.symbols, merged(source, target), strict=False)):
            if word != other:  # the data hold indices
                needs = "target words that have the same number in the merged dictionary"
                got = f"{word!r} at {number}, where that has {other!r}"
                use = "fairseq-preprocess --joined-dictionary and --share-all-embeddings"
                raise ValueError(f"--merge-src-tgt-embed: needs {needs}; got {got}. Use {use}.")
    if not settings.shares_inputs:
        return
    asked_by = settings.asked_by(settings.shares or THREE_WAY)
    if settings.shares == THREE_WAY and source != target:
        pairs = zip(source.symbols, target.symbols, strict=False)
        index = next((i for i, (word, other) in enumerate(pairs) if word != other), None)
        where = "" if index is None else f", which differ at entry {index} ({source[index]!r} and {target[index]!r})"
        raise ValueError(
            f"{asked_by}: needs one dictionary for both languages; got dictionaries of {len(source)} and {len(target)} "
            f"words{where}. Use the data folder of the training for a trained model; before training, use "
            "fairseq-preprocess --joined-dictionary, or tie the decoder's embeddings alone."
        )
    first, second = settings("encoder_embed_path"), settings("decoder_embed_path")
    if first and second not in (None, first):
        got = f"--encoder-embed-path {first!r} and --decoder-embed-path {second!r}"
        raise ValueError(f"{asked_by}: needs one file of vectors for the shared table; got {got}. Use one of them.")


def check_predicted_words(settings: Settings, head: OutputHead, source: Words, target: Words) -> None:
    """Raises ValueError for ``--output-dictionary-size`` where a tied output layer or its biases need every word."""
    if len(source) != len(target) and (head.name != SOFTMAX or settings("output_bias_init")):
        needs = f"an output table of its own, or --output-layer {SOFTMAX} without --output-bias-init"
        got = f"{len(target)} of {len(source)} words with a tied --output-layer {head.name}"
        raise ValueError(f"--output-dictionary-size: needs {needs}; got {got}. Leave it out.")


def merged(source: Words, target: Words) -> list[str]:
    """The words of the dictionary into which fairseq merges both."""
    return source.symbols + [word for word in target.symbols if word not in source.indices]


def check_head(settings: Settings, head: OutputHead, method: SharingMethod, *, tied: bool) -> None:
    """Raises ValueError if the output layer does not fit what is shared, or an option of its own."""
    if not head.over_table and (tied or not method.is_plain):
        needs, got, use = "--sharing-method plain", method.name, "plain"
        if tied:
            needs, use = "input embeddings of their own", "a model that is not tied, or another layer"
            asked_by = settings.asked_by(settings.shares or TYING)
            got = f"{asked_by}, which ties its embeddings" if asked_by == settings.arch else asked_by
        needs += ", since it scores words by no table"
        raise ValueError(f"--output-layer {head.name}: needs {needs}; got {got}. Use {use}.")
    start, fairseqs = settings("output_bias_init"), settings.family.fairseqs
    given = f"{flag_of(CUTOFF)} {settings(CUTOFF)}" if settings(CUTOFF) else f"--output-layer {head.name}"
    if start and (head.name == ADAPTIVE or (fairseqs and head.name == SOFTMAX)):
        needs = "an output layer with biases"
        raise ValueError(f"--output-bias-init: needs {needs}; got {start} with {given}. Leave it out.")
    if head.name != ADAPTIVE:
        return
    if not tied and not method.is_plain:
        without, use = ("--tie-adaptive-weights", "--adaptive-input --tie-adaptive-weights, which language models have")
        if not fairseqs:
            without, use = flag_of(TYING), "that flag too"
        needs, got = "bands that input and output share", f"{given} without {without}"
        use += ", or --sharing-method plain"
        raise ValueError(f"--sharing-method {method.name}: needs {needs}; got {got}. Use {use}.")
    if tied and not fairseqs and (settings("decoder_embed_path") or settings("decoder_freeze_embed")):
        flags, needs = "--decoder-embed-path, --decoder-freeze-embed", "one input table for all words"
        raise ValueError(f"{flags}: need {needs}; got tied bands, by {given}. Use one or the other.")


def check_constants(settings: Settings, head: OutputHead, constants: Constants) -> None:
    """Raises ValueError for constants of logits that are no table's scores, or of vectors that are no table's."""
    no_table = f"--output-layer {head.name}" if head.name == ADAPTIVE or not head.over_table else None
    characters = "--character-embeddings" if settings("character_embeddings") else None
    for name, value in constants.changed().items():
        what, got = ("output", no_table) if name.startswith("logit") else ("input", characters)
        if got:
            needs = f"one table of all words as {what}"
            raise ValueError(f"{flag_of(name)}: needs {needs}; got {value} with {got}. Leave it out.")


def bands_of(settings: Settings, width: int, size: int, *, side: str = "softmax") -> tuple[int, ...]:
    """Number of words up to the end of each band of a ``side``, "softmax" or fairseq's adaptive "input".

    ``width`` is that of the first band's vectors, ``size`` is V. Raises ValueError if ends do not rise or a width is 0.
    """
    flag, fairseqs = f"--adaptive-{side}-cutoff", settings.family.fairseqs
    value, factor = settings(f"adaptive_{side}_cutoff"), float(settings(f"adaptive_{side}_factor") or 0)
    try:
        ends = [int(number) for number in str(value).strip("[]() ").split(",")]
    except ValueError:
        ends = []
    # fairseq's last band may be the one that ends with the dictionary.
    all_ends = ends if fairseqs and ends and ends[-1] == size else [*ends, size]
    # Words of a band: fairseq draws the second row of an input's anew.
    fewest = 2 if side == "input" or (settings.shares is not None and not fairseqs) else 1
    if not ends or any(high - low < fewest for low, high in pairwise([0, *all_ends])):
        needs = f"rising whole numbers between 0 and {size}, the size of the dictionary" + ", 2 apart" * (fewest - 1)
        low = max(fewest, size // 5)
        high = max(low + fewest, 3 * size // 5)
        use = f"{low},{high}, say" if high + fewest <= size else "one table, without bands"
        raise ValueError(f"{flag}: needs {needs}; got {value}. Use {use}.")
    # fairseq checks no width of bands that the output alone has.
    last = len(all_ends) - 1
    if not (fairseqs and side == "softmax") and (not factor >= 1 or width // factor**last < 1):
        needs = f"1 or more, and a last band, of {width} / factor^{last}, at least 1 wide"
        use = f"{min(4, int(width ** (1 / last)))}, or fewer bands"
        raise ValueError(f"--adaptive-{side}-factor: needs {needs}; got {factor}. Use {use}.")
    return tuple(all_ends)


def check_fairseqs(settings: Settings, method: SharingMethod) -> None:
    """Raises ValueError for the first of fairseq's own options that cannot work, before fairseq builds the model."""
    ends = settings(CUTOFF)
    if settings("projection") and ends:
        raise ValueError(f"--projection: needs one table for all words; got {flag_of(CUTOFF)} {ends}. Use one of them.")
    if settings("quant_noise_scalar"):
        needs, got = "fairseq's own embeddings", settings("quant_noise_scalar")
        raise ValueError(f"--quant-noise-scalar: needs {needs}; got {got}. Use --quant-noise-pq, or fairseq's model.")
    if settings("tie_adaptive_weights"):
        _check_tied_bands(settings)
    if ends:
        factor = Range("a finite number above 0", "4, say", above=0)
        for name, bound in (("adaptive_softmax_factor", factor), ("adaptive_softmax_dropout", PROBABILITY)):
            check_value(flag_of(name), getattr(settings.options, name, None), bound)
    rank = getattr(settings.options, "embedding_rank", None)
    check_value("--embedding-rank", rank, dataclasses.replace(POSITIVE, use="128, say"))
    for name in ("adaptive_input", CUTOFF, "character_embeddings", "encoder_embed_path", "decoder_embed_path"):
        if rank is not None and settings(name):
            needs = "new tables of one width"
            raise ValueError(f"--embedding-rank: needs {needs}; got {flag_of(name)} {settings(name)}. Use one of them.")
    if settings.family.translates:
        return
    if settings("adaptive_input") and not settings("adaptive_input_cutoff"):
        use = "the frequency ranks at which bands end, such as 2000,6000"
        raise ValueError(f"--adaptive-input: needs --adaptive-input-cutoff; got none. Use {use}.")
    for name in ("adaptive_input", "character_embeddings"):
        if settings(name) and settings.shares and not ends:
            use = "--adaptive-input with --adaptive-softmax-cutoff and --tie-adaptive-weights, or leave one out"
            raise ValueError(f"{flag_of(TYING)}: needs one table of words as input; got {flag_of(name)}. Use {use}.")
    if settings("character_embeddings") and not method.is_plain:
        needs, got = "a table of words as input", "--character-embeddings"
        raise ValueError(f"--sharing-method {method.name}: needs {needs}; got {got}. Use --sharing-method plain.")


def _check_tied_bands(settings: Settings) -> None:
    if settings.family.translates:
        needs = "a language model with --adaptive-input"
        raise ValueError(f"--tie-adaptive-weights: needs {needs}; got a translation model. Leave it out.")
    if settings("character_embeddings"):
        needs, got = "a table of words as input", "--character-embeddings"
        raise ValueError(f"--tie-adaptive-weights: needs {needs}; got {got}. Leave one out.")
    if not (settings("adaptive_input") and settings(CUTOFF)):
        needs = "--adaptive-input and --adaptive-softmax-cutoff"
        got = f"{bool(settings('adaptive_input'))} and {settings(CUTOFF)}"
        raise ValueError(f"--tie-adaptive-weights: needs {needs}; got {got}. Use both, with equal cutoffs.")
    for name, other in (
        ("adaptive_input_cutoff", CUTOFF),
        ("adaptive_input_factor", "adaptive_softmax_factor"),
        ("decoder_input_dim", "decoder_output_dim"),
    ):
        if settings(name) != settings(other):
            needs, got = f"{flag_of(name)} equal to {flag_of(other)}", f"{settings(name)} and {settings(other)}"
            use = f"{flag_of(name)} {settings(other)}"
            raise ValueError(f"--tie-adaptive-weights: needs {needs}; got {got}. Use {use}.")


def check_every_option_is_used(config: type, options: Any, family: Family, head: str) -> None:
    """Raises ValueError for the first option in ``config`` that the output layer ignores.

    Called before training only, because checkpoints of version 0.1.2 may hold ignored options.
    """
    layers_of: dict[str, list[str]] = {}
    for entry in OUTPUT_HEADS.values():
        # fairseq's models have the options of bands without the flag.
        known = entry.name in family.heads if family.heads else entry.has_probabilities
        if known and entry.has_flags and not (family.fairseqs and entry.name == ADAPTIVE):
            for option in dataclasses.fields(entry.options):
                layers_of.setdefault(option.name, []).append(entry.name)
    for option in dataclasses.fields(config):
        layers, flag = layers_of.get(option.name, [head]), flag_of(option.name)
        value = getattr(options, option.name, option.default)
        if head not in layers and value != option.default:
            needs, got = f"--output-layer {' or '.join(layers)}", f"{value} with --output-layer {head}"
            raise ValueError(f"{flag}: needs {needs}; got {got}. Use --output-layer {layers[0]}, or leave {flag} out.")
    settings = Settings(options, family)
    if settings("output_layer_options") and OUTPUT_HEADS[head].has_flags:
        got = f"{settings('output_layer_options')} with --output-layer {head}, whose options are flags"
        raise ValueError(f"--output-layer-options: needs a registered output layer; got {got}. Leave it out.")
    if settings("class_file") and head == "classes" and options.classes != getattr(config, "classes", None):
        got = f"{options.classes} with --class-file {options.class_file}"
        raise ValueError(f"--classes: needs classes by frequency; got {got}. Use one of them.")
    rank, width = settings("embedding_rank"), settings("decoder_embed_dim")
    if rank and rank >= width:
        needs = f"less than {width}, the width of the vectors"
        raise ValueError(f"--embedding-rank: needs {needs}; got {rank}. Use {width // 2}, or leave it out.")
    if settings("class_file") and head == "tree" and options.tree != BY_CLASSES:
        use = f"--tree {BY_CLASSES}, or leave --class-file out"
        raise ValueError(f"--class-file: needs --tree {BY_CLASSES}; got --tree {options.tree}. Use {use}.")
