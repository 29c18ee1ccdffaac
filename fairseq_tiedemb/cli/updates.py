"""Count how often training updates a row, and by which role.

For a text: the rows of the input embedding that a batch and an epoch update; the full softmax updates every row of the
output embedding in every batch. For a language model: the probability of repeating the previous word, and the norms of
the gradient's two parts, from input and output embedding. The text is cut into rows that are read in parallel, as with
--task contiguous_lm; --batch-size 1 --tokens-per-sample 1 measures single words. Source: Press & Wolf 2016, section 3.
"""

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import add_number, add_user_dir, import_user_dir, refuse_options
from fairseq_tiedemb.cli._stream import add_text, read_stream

# Tokens scored at a time: of one row if the model carries a state, else of all sentences together.
LONG, MAX_TOKENS = 200, 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser, "text for the updates")
    about = "checkpoints of language models"
    parser.add_argument("--checkpoint", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help=about)
    add_number(parser, "--batch-size", "rows of a batch", 20)
    add_number(parser, "--tokens-per-sample", "tokens of a row", 20)
    # These two default to None, so that they can be refused without a model.
    parser.add_argument("--gen-subset", metavar="NAME", help="text for the repeats (default: test)")
    add_number(parser, "--batches", "number of batches whose gradients are computed (default: 20)")
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prints the figures of the text, then those of every model."""
    if not arguments.checkpoint:
        refuse_options(arguments, ["gen_subset", "batches"], needs="--checkpoint, whose figures it is for")
    for path in arguments.checkpoint:
        if not path.is_file():
            raise ValueError(f"--checkpoint: needs a file; got {path}, which is none. Use another path.")
    from fairseq_tiedemb.analysis.updates import input_updates
    from fairseq_tiedemb.loading import load_dictionary

    import_user_dir(arguments.user_dir)
    dictionary = load_dictionary(arguments.data / "dict.txt", flag="DATA")
    if arguments.checkpoint:  # a missing text must fail before the gradients are computed
        arguments.gen_subset = arguments.gen_subset or "test"
        read_stream(arguments.data, arguments.gen_subset, dictionary, flag="--gen-subset")
    words = (batch["net_input"]["src_tokens"].numpy() for batch in stream_batches(arguments, dictionary))
    not_words = (dictionary.bos(), dictionary.pad())
    print("\n".join(input_updates(words, len(dictionary), not_words=not_words).describe()))
    for checkpoint in arguments.checkpoint:
        print("\n".join(["", *of_model(checkpoint, arguments)]), flush=True)


def stream_batches(arguments: argparse.Namespace, dictionary: Any) -> Any:
    """Returns the batches (fairseq's dicts) of an epoch, in order."""
    from fairseq_tiedemb.tasks._streams import StreamRows

    stream = read_stream(arguments.data, arguments.train_subset, dictionary)
    rows = StreamRows(stream, arguments.batch_size, arguments.tokens_per_sample)
    return (rows.collater([rows[index] for index in batch]) for batch in rows.batches(1))


def of_model(checkpoint: Path, arguments: argparse.Namespace) -> list[str]:
    """Returns the figures of a model, as lines of text."""
    from fairseq_tiedemb.analysis.updates import describe_gradients, repeats, role_gradients
    from fairseq_tiedemb.loading import load_language_model

    model, task = load_language_model(checkpoint, arguments.data, flag="--checkpoint")
    dictionary = task.source_dictionary
    carries, limit = getattr(task, "one_stream", False), model.max_positions()
    if arguments.tokens_per_sample > limit:
        needs = f"at most {limit}, the positions of {checkpoint}"
        raise ValueError(f"--tokens-per-sample: needs {needs}; got {arguments.tokens_per_sample}. Use fewer.")

    def gradients() -> Any:
        for batch in islice(stream_batches(arguments, dictionary), arguments.batches or 20):
            if not carries:
                del batch["net_input"]["stream_position"]
            yield role_gradients(model, batch, pad=dictionary.pad())

    lines = [str(checkpoint), *describe_gradients(gradients())]
    if carries:
        task.args.tokens_per_sample = LONG
    task.load_dataset(arguments.gen_subset)
    text = task.eval_lm_dataloader(task.dataset(arguments.gen_subset), max_tokens=MAX_TOKENS, max_positions=limit)
    return [*lines, *repeats(model, text, dictionary).describe(dictionary)]
