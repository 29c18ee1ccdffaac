"""Shows the results of the demo's three models: a table, a few translations, and a picture of attention.

    python examples/number_words/report.py FOLDER

reads the output of fairseq-train, fairseq-generate and sacrebleu in FOLDER, and writes FOLDER/attention.png.
"""

import argparse
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ARCHITECTURES = ("lstm_nmt", "lstm_nmt_wt", "lstm_nmt_twwt")
SHOWN = 6


class Result(NamedTuple):
    """A row of the table."""

    arch: str
    parameters: str
    embeddings: str  # share of the parameters
    words_per_second: float
    bleu: str


class Translation(NamedTuple):
    """A test sentence in subwords."""

    source: list[str]
    hypothesis: list[str]
    # A row for each subword of the hypothesis, </s> included; a column for each of the source.
    attention: list[list[float]]


def search(pattern: str, path: Path) -> re.Match[str]:
    """Returns the first match of a pattern in a file; raises ValueError if there is none."""
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{path}: needs a line that matches {pattern!r}; found none. Remove its folder, run again.")
    return found


def read_result(folder: Path, arch: str) -> Result:
    """Reads the logs of one model."""
    log = folder / f"{arch}.log"
    size = search(r"; ([\d,]+) parameters: .*\(embeddings ([\d.]+%)\)", log)
    # fairseq counts target tokens, here subwords; the median ignores moments when the machine was busy.
    speeds = re.findall(r"\| train_inner \|.* wps=([\d.]+)", log.read_text(encoding="utf-8"))
    if not speeds:
        raise ValueError(f"{log}: needs train_inner lines with wps=; found none. Remove its folder, run again.")
    speed = statistics.median(float(speed) for speed in speeds)
    return Result(arch, size[1], size[2], speed, (folder / f"{arch}.bleu").read_text(encoding="utf-8").strip())


def format_table(results: list[Result]) -> Iterator[str]:
    """Yields the lines of the table."""
    row = "{:<16}{:>12}{:>14}{:>12}{:>8}"
    yield row.format("architecture", "parameters", "in embeddings", "words/s", "BLEU")
    for result in results:
        yield row.format(*result[:3], f"{result.words_per_second:,.0f}", result.bleu)


def read_translations(path: Path) -> dict[int, Translation]:
    """Reads the best hypotheses from the output of fairseq-generate --print-alignment soft, by number of the sentence.

    `path` is generate-test.txt, whose lines are KIND-SENTENCE and tab-separated fields.
    """
    fields: dict[tuple[str, int], str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"([SHA])-(\d+)\t", line)
        if found:
            fields[found[1], int(found[2])] = line.rpartition("\t")[2]
    return {
        sentence: Translation(
            source=fields["S", sentence].split(),
            hypothesis=fields["H", sentence].split(),
            attention=[[float(p) for p in word.split(",")] for word in fields["A", sentence].split()],
        )
        for kind, sentence in sorted(fields)
        if kind == "H"
    }


def join_subwords(subwords: list[str]) -> str:
    """Joins the subwords of subword-nmt to text."""
    return " ".join(subwords).replace("@@ ", "")


def choose(translations: dict[int, Translation]) -> list[int]:
    """Returns the sentences to show: the longest, then the first of the test set."""
    longest = max(translations, key=lambda sentence: join_subwords(translations[sentence].source).count(" "))
    return [longest, *(sentence for sentence in sorted(translations) if sentence != longest)][:SHOWN]


def format_translations(
    sentences: list[int], references: list[str], hypotheses: dict[str, dict[int, Translation]]
) -> Iterator[str]:
    """Yields source, reference and the models' translations of the sentences."""
    sources = hypotheses[ARCHITECTURES[0]]
    for sentence in sentences:
        yield f"\n  {'English':<16}{join_subwords(sources[sentence].source)}"
        yield f"  {'reference':<16}{references[sentence]}"
        for arch in ARCHITECTURES:
            text = join_subwords(hypotheses[arch][sentence].hypothesis)
            yield f"  {arch:<16}{'the same' if text == references[sentence] else text}"


def draw_attention(translation: Translation, path: Path, title: str) -> None:
    """Draws attention weights to a PNG: a row per target subword, a column per source subword."""
    import matplotlib

    # Works without a screen.
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns, rows = [*translation.source, "</s>"], [*translation.hypothesis, "</s>"]
    # Weights beyond the sentence are zeros, at the batch's padding.
    weights = [row[: len(columns)] for row in translation.attention]
    figure, axes = pyplot.subplots(figsize=(1.5 + 0.42 * len(columns), 1.5 + 0.36 * len(rows)), layout="constrained")
    axes.imshow(weights, cmap="Greys", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.set_xlabel(title)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of this file's command line."""
    parser = argparse.ArgumentParser(description="Show what the demo's models learnt.")
    parser.add_argument("folder", type=Path, help="the folder of run.sh")
    return parser


def main() -> None:
    """Prints the table and the translations, and draws the picture."""
    folder = create_parser().parse_args().folder
    for line in format_table([read_result(folder, arch) for arch in ARCHITECTURES]):
        print(line)
    hypotheses = {arch: read_translations(folder / arch / "generate-test.txt") for arch in ARCHITECTURES}
    references = (folder / "text" / "test.de").read_text(encoding="utf-8").splitlines()
    shown = choose(hypotheses[ARCHITECTURES[-1]])
    for line in format_translations(shown, references, hypotheses):
        print(line)
    picture = folder / "attention.png"
    draw_attention(
        hypotheses[ARCHITECTURES[-1]][shown[0]], picture, f"{ARCHITECTURES[-1]}: from English words to German ones"
    )
    print(f"\nWhere {ARCHITECTURES[-1]} looked while it wrote the first of these: {picture}")


if __name__ == "__main__":
    main()
