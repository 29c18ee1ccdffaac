"""The text of one language pair of IWSLT 2014: training text and sets of talks, one sentence per line.

    python recipes/iwslt_text.py FOLDER PAIR OUT

FOLDER holds the pair's unpacked archive (de-en.tgz): train.tags.de-en.de, IWSLT14.TED.dev2010.de-en.de.xml, ... OUT
gets train.de, train.en, TED.dev2010.de, ..., not tokenised. Lines of the training text with data about a talk are left
out; titles and descriptions stay, without their tags.
"""

import argparse
import re
import sys
from pathlib import Path

ABOUT_A_TALK = re.compile(r"^\s*<(?:url|talkid|keywords|speaker|reviewer|translator|doc|/doc)\b")
TAG = re.compile(r"</?(?:title|description)>")
SENTENCE = re.compile(r'<seg id="\d+">\s*(.*?)\s*</seg>')


def training_text(path: Path) -> list[str]:
    """Returns the sentences of a training file."""
    lines = path.read_text(encoding="utf-8-sig").split("\n")[:-1]
    return [TAG.sub("", line).strip() for line in lines if not ABOUT_A_TALK.match(line)]


def talks(path: Path) -> list[str]:
    """Returns the sentences of a set of talks."""
    found = (SENTENCE.search(line) for line in path.read_text(encoding="utf-8-sig").split("\n"))
    return [sentence[1].replace("’", "'") for sentence in found if sentence]


def pair_text(folder: Path, pair: str) -> dict[str, list[str]]:
    """Returns the sentences by file name, such as train.de.

    Raises:
        ValueError: if there is no training text, or the languages of a set have different numbers of sentences.
    """
    text = {
        f"train.{language}": training_text(folder / f"train.tags.{pair}.{language}") for language in pair.split("-")
    }
    for path in sorted(folder.glob(f"IWSLT14.TED*.{pair}.*.xml")):
        name = path.name.removeprefix("IWSLT14.").removesuffix(".xml").replace(f".{pair}.", ".")
        text[name] = talks(path)
    for name, sentences in text.items():
        other = name.rpartition(".")[0] + "." + next(each for each in pair.split("-") if not name.endswith(f".{each}"))
        if len(text.get(other, [])) != len(sentences):
            raise ValueError(
                f"{folder}: needs as many sentences in {name} as in {other}; got {len(sentences)} and "
                f"{len(text.get(other, []))}. Use the archive of the pair as it was published."
            )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("pair", metavar="PAIR", help="de-en, say")
    parser.add_argument("out", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    try:
        text = pair_text(arguments.folder, arguments.pair)
    except (OSError, ValueError) as error:
        sys.exit(f"iwslt_text.py: {error}")
    for name, sentences in text.items():
        (arguments.out / name).write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")


if __name__ == "__main__":
    main()
