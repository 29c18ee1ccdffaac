"""Learns a sentencepiece BPE model on several texts together, or splits a text into pieces.

Commands: `python recipes/pieces.py learn MODEL SIZE TEXT...` and `python recipes/pieces.py cut MODEL IN OUT`.
"""

import argparse
import sys

import sentencepiece


def learn(arguments: argparse.Namespace) -> None:
    """Writes MODEL.model and MODEL.vocab."""
    sentencepiece.SentencePieceTrainer.train(
        input=arguments.texts,
        model_prefix=arguments.model,
        vocab_size=arguments.size,
        model_type="bpe",
        character_coverage=0.9995,
        input_sentence_size=10_000_000,
        # fairseq's dictionary has its own special symbols; as pieces they would be in it twice.
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
    )


def cut(arguments: argparse.Namespace) -> None:
    """Writes a text as pieces, separated by spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{arguments.model}.model")
    with (
        open(arguments.read, encoding="utf-8-sig", newline="\n") as source,
        open(arguments.write, "w", encoding="utf-8") as target,
    ):
        for line in source:
            target.write(" ".join(processor.encode(line.rstrip("\r\n"), out_type=str)) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    learns = commands.add_parser("learn")
    learns.add_argument("model", metavar="MODEL")
    learns.add_argument("size", type=int, metavar="SIZE")
    learns.add_argument("texts", nargs="+", metavar="TEXT")
    learns.set_defaults(run=learn)
    cuts = commands.add_parser("cut")
    cuts.add_argument("model", metavar="MODEL")
    cuts.add_argument("read", metavar="IN")
    cuts.add_argument("write", metavar="OUT")
    cuts.set_defaults(run=cut)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (OSError, RuntimeError) as error:  # sentencepiece's own
        sys.exit(f"pieces.py: {error}")


if __name__ == "__main__":
    main()
