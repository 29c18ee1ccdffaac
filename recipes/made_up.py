"""Makes up a small corpus, in the form in which a recipe gets the real one, for SMOKE=1.

python recipes/made_up.py CORPUS FOLDER
"""

import gzip
import hashlib
import io
import random
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path


def write_ptb(folder: Path, train: int = 60, held_out: int = 10) -> dict[str, object]:
    """Writes ptb.{train,valid,test}.txt, and returns the variables that make prepare-ptb.sh take them."""
    rng = random.Random(1)
    words = [*("".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(50)), "<unk>", "N"]
    folder.mkdir(parents=True, exist_ok=True)
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


def write_multi30k(folder: Path, lines: int) -> None:
    """Writes what prepare-multi30k.sh takes from a local folder: "German" is "English" with other letters."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(50)]
    for split in ("train", "val", "test_2016_flickr"):
        english = "".join(" ".join(rng.choices(words, k=rng.randint(2, 9))) + " .\n" for _ in range(lines))
        (folder / f"{split}.en").write_text(english)
        (folder / f"{split}.de").write_text(english.translate(str.maketrans("abcde", "vwxyz")))


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


def sentence_pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of sentences in which a foreign word is the English one with other letters."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(200)]
    sentences = [" ".join(rng.choices(words, k=rng.randint(3, 9))).capitalize() + "." for _ in range(count)]
    return [(sentence.translate(str.maketrans("abcde", "vwxyz")), sentence) for sentence in sentences]


def write_wmt(folder: Path, pairs: list[tuple[str, str]], foreign: str = "de") -> None:
    """Writes the text that the recipes for WMT take in place of the archives: 60 pairs are held out."""
    folder.mkdir(exist_ok=True)
    for split, part in {"train": pairs[60:], "valid": pairs[:20], "test": pairs[20:40], "test1": pairs[40:60]}.items():
        for language, text in zip((foreign, "en"), zip(*part, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{sentence}\n" for sentence in text))


def write_tatoeba(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Writes (foreign, English) pairs as Tatoeba's are published: English first, a note behind."""
    text = "".join(f"{english}\t{foreign}\tCC-BY 2.0\n" for foreign, english in pairs)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("_about.txt", "notes")
            archive.writestr("deu.txt", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_reviews(folder: Path, count: int = 12, *, different: bool = False) -> Path:
    """Writes reviews of films as their archive has them, the same in train and test unless they are to be different."""
    for part in ("train/neg", "train/pos", "train/unsup", "test/neg", "test/pos"):
        (folder / part).mkdir(parents=True)
        for number in range(count):
            text = f"It's a {part[-3:]} FILM,<br /><br />rated {number}/10: caf\u00e9 scenes & a plot of sorts."
            text += f" Seen for {part}." * different
            (folder / part / f"{number}_7.txt").write_text(text, encoding="utf-8")
    return folder


def write_text8(path: Path, count: int = 4000) -> list[str]:
    """Writes a text of 80 words, the first ones more often, and returns its words."""
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(80)]
    words = rng.choices(names, weights=[1 / (1 + number) for number in range(80)], k=count)
    text = f" {' '.join(words)}"
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text8", text)
    else:
        path.write_text(text)
    return words


def write_iwslt(
    folder: Path, language: str, pairs: list[tuple[str, str]], talks: list[tuple[str, str]] | None = None
) -> Path:
    """Writes the archive of a pair as IWSLT 2014 has it: these pairs, one that is too long, and five sets of 20.

    The sets are of ``talks``, if there are some, else made up.
    """
    pair = f"{language}-en"
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    sets = {
        name: talks[20 * number : 20 * (number + 1)] if talks else sentence_pairs(20, seed=number + 2)
        for number, name in enumerate(names)
    }
    pairs = [*pairs, ("wort " * 200, "word " * 200)]
    about = ["<url>http://x</url>", "<keywords>talks, ideas</keywords>", "<speaker>A B</speaker>", "<talkid>1</talkid>"]
    files = {}
    for number, side in enumerate((language, "en")):
        titled = [f"<title>{pairs[0][number]}</title>", f"<description>{pairs[1][number]}</description>"]
        lines = [*about, *titled, *(f" {each[number]} " for each in pairs[2:])]
        files[f"train.tags.{pair}.{side}"] = "".join(f"{line}\n" for line in lines)
        for name, sentences in sets.items():
            segments = enumerate((each[number] for each in sentences), 1)
            body = "".join(f'<seg id="{index}"> {text} </seg>\n' for index, text in segments)
            files[f"IWSLT14.{name}.{pair}.{side}.xml"] = f'<?xml version="1.0"?>\n<doc docid="1">\n{body}</doc>\n'
    archive = folder / f"{pair}.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{pair}/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


def packed(folder: Path, kind: str, archive: str) -> None:
    """Packs a folder, with its name, into an archive beside it."""
    shutil.make_archive(str(folder.parent / archive), kind, folder.parent, folder.name)


# What makes each corpus in a folder, which is what its recipe takes, or has the file that it takes.
CORPORA: dict[str, Callable[[Path], object]] = {
    "ptb": lambda folder: write_ptb(folder, train=500, held_out=50),
    "bbc": lambda folder: packed(write_stories(folder / "bbc", count=80), "zip", "bbc-fulltext"),
    "imdb": lambda folder: packed(write_reviews(folder / "aclImdb", count=40, different=True), "gztar", "aclImdb"),
    "text8": lambda folder: write_text8(folder / "text8", count=6000),
    "multi30k": lambda folder: write_multi30k(folder, lines=300),
    "tatoeba": lambda folder: write_tatoeba(folder / "pairs.zip", sentence_pairs(400)),
    "iwslt14-de": lambda folder: write_iwslt(folder, "de", sentence_pairs(300)),
    "iwslt14-es": lambda folder: write_iwslt(folder, "es", sentence_pairs(300)),
    "iwslt14-ro": lambda folder: write_iwslt(folder, "ro", sentence_pairs(300)),
    "wmt-de": lambda folder: write_wmt(folder, sentence_pairs(460), "de"),
    "wmt-fr": lambda folder: write_wmt(folder, sentence_pairs(460), "fr"),
}

if __name__ == "__main__":
    corpus, made = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    CORPORA[corpus](made)
