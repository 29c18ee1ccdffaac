"""Small corpora in the form in which the recipes get the real ones."""

import hashlib
import random
from pathlib import Path


def write_ptb(folder: Path, train: int = 60, held_out: int = 10) -> dict[str, object]:
    """Writes ptb.{train,valid,test}.txt, and returns the variables that make prepare-ptb.sh take them."""
    rng = random.Random(1)
    words = [*("".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(50)), "<unk>", "N"]
    folder.mkdir(parents=True)
    hashes, tokens = [], []
    for split, lines in (("train", train), ("valid", held_out), ("test", held_out)):
        sentences = [rng.choices(words, k=rng.randint(4, 12)) for _ in range(lines)]
        text = "".join(f" {' '.join(sentence)} \n" for sentence in sentences)
        (folder / f"ptb.{split}.txt").write_text(text)
        hashes.append(f"{hashlib.sha256(text.encode()).hexdigest()}  ptb.{split}.txt\n")
        tokens.append(sum(len(sentence) + 1 for sentence in sentences))
    (folder / "sha256").write_text("".join(hashes))
    types = len(set((folder / "ptb.train.txt").read_text().split()) - {"<unk>"})
    return {"FROM": folder, "CHECKSUMS": folder / "sha256", "COUNTS": " ".join(map(str, [*tokens, types]))}


STORY = (
    "Title of story {number}\n\n"
    '{name} bought {number},500 shares at £3.{number}m. "It didn\'t hurt," said Mr {name}. '
    "A 25-year-old was first in J. K. Smith's shop, and {name} agreed.\n\n"
    "It ended here?\n\n"
)


def write_stories(folder: Path, count: int = 40) -> Path:
    """Writes stories as the BBC's archive has them, in two topics."""
    for number in range(count):
        path = folder / ("sport", "tech")[number % 2] / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STORY.format(number=number, name=f"Ann{chr(97 + number % 26)}{chr(97 + number // 26)}"))
    return folder
