"""The generated corpus of examples/number_words: its words against tables typed by hand, its splits, its seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "number_words"
sys.path.insert(0, str(FOLDER))

import grammar  # noqa: E402
import report  # noqa: E402
import words  # noqa: E402

# Typed by hand: English and German.
NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    7: ("seven", "sieben"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    48: ("forty-eight", "achtundvierzig"),
    66: ("sixty-six", "sechsundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    347: ("three hundred and forty-seven", "dreihundertsiebenundvierzig"),
    1000: ("one thousand", "eintausend"),
    1001: ("one thousand and one", "eintausendeins"),
    2300: ("two thousand three hundred", "zweitausenddreihundert"),
    21_999: ("twenty-one thousand nine hundred and ninety-nine", "einundzwanzigtausendneunhundertneunundneunzig"),
    101_000: ("one hundred and one thousand", "einhunderteintausend"),
}
ORDINALS = {
    1: ("first", "erste"),
    2: ("second", "zweite"),
    3: ("third", "dritte"),
    5: ("fifth", "fünfte"),
    7: ("seventh", "siebte"),
    8: ("eighth", "achte"),
    9: ("ninth", "neunte"),
    12: ("twelfth", "zwölfte"),
    16: ("sixteenth", "sechzehnte"),
    19: ("nineteenth", "neunzehnte"),
    20: ("twentieth", "zwanzigste"),
    21: ("twenty-first", "einundzwanzigste"),
    30: ("thirtieth", "dreißigste"),
}
YEARS = {
    1100: ("eleven hundred", "elfhundert"),
    1905: ("nineteen oh five", "neunzehnhundertfünf"),
    1984: ("nineteen eighty-four", "neunzehnhundertvierundachtzig"),
    2000: ("two thousand", "zweitausend"),
    2007: ("two thousand and seven", "zweitausendsieben"),
}
TIMES = {
    (7, 0): ("seven o'clock", "sieben Uhr"),
    (1, 0): ("one o'clock", "ein Uhr"),
    (1, 10): ("ten past one", "zehn nach eins"),
    (7, 1): ("one minute past seven", "eine Minute nach sieben"),
    (7, 15): ("a quarter past seven", "Viertel nach sieben"),
    (7, 22): ("twenty-two minutes past seven", "zweiundzwanzig Minuten nach sieben"),
    (7, 25): ("twenty-five past seven", "fünf vor halb acht"),
    (7, 30): ("half past seven", "halb acht"),
    (7, 35): ("twenty-five to eight", "fünf nach halb acht"),
    (12, 30): ("half past twelve", "halb eins"),
    (12, 45): ("a quarter to one", "Viertel vor eins"),
    (7, 59): ("one minute to eight", "eine Minute vor acht"),
}
DATES = {(3, 5): ("the third of May", "dritten Mai"), (31, 3): ("the thirty-first of March", "einunddreißigsten März")}


def test_words():
    assert {number: (words.english_number(number), words.german_number(number)) for number in NUMBERS} == NUMBERS
    assert {number: (words.english_ordinal(number), words.german_ordinal(number)) for number in ORDINALS} == ORDINALS
    assert {year: words.year(year) for year in YEARS} == YEARS
    assert {time: words.time_of_day(*time) for time in TIMES} == TIMES
    assert {day: words.date(*day) for day in DATES} == DATES


def test_every_number_has_its_own_words():
    numbers = range(10_000)
    assert len({words.english_number(number) for number in numbers}) == len(numbers)
    assert len({words.german_number(number) for number in numbers}) == len(numbers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: words.english_number(-1), "number: needs 0 to 999999; got -1"),
        (lambda: words.german_number(1_000_000), "number: needs 0 to 999999; got 1000000"),
        (lambda: words.english_ordinal(0), "ordinal: needs 1 to 39; got 0"),
        (lambda: words.german_ordinal(40), "ordinal: needs 1 to 39; got 40"),
        (lambda: words.year(1066), "year: needs 1100 to 2099; got 1066"),
        (lambda: words.date(1, 13), "month: needs 1 to 12; got 13"),
        (lambda: words.date(29, 2), "day: needs 1 to 28; got 29"),
        (lambda: words.time_of_day(13, 0), "hour: needs 1 to 12; got 13"),
        (lambda: words.time_of_day(1, 60), "minute: needs 0 to 59; got 60"),
    ],
)
def test_values_without_words_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_seed_decides_the_corpus():
    assert grammar.corpus(seed=1, size=50) == grammar.corpus(seed=1, size=50)
    assert grammar.corpus(seed=1, size=50) != grammar.corpus(seed=2, size=50)


def test_splits_share_no_sentence_in_either_language(tmp_path):
    sizes = {"train": 3000, "valid": 200, "test": 300}
    command = [sys.executable, str(FOLDER / "grammar.py"), str(tmp_path / "corpus"), "--seed", "7"]
    refused = subprocess.run([*command, "--valid", "-5"], capture_output=True, text=True)
    assert "--valid: needs 0 sentences or more; got -5. Use 500" in refused.stderr
    assert not (tmp_path / "corpus").exists()
    subprocess.run(command + [f"--{split}={size}" for split, size in sizes.items()], check=True)
    for language in ("en", "de"):
        lines = {split: (tmp_path / "corpus" / f"{split}.{language}").read_text().splitlines() for split in sizes}
        assert {split: len(part) for split, part in lines.items()} == sizes
        assert len(set().union(*lines.values())) == sum(sizes.values())


def test_every_kind_of_sentence_is_in_a_small_corpus():
    texts = " / ".join(pair.german for pair in grammar.corpus(seed=1, size=500))
    for word in ("weiß, dass", "geboren", "gekauft", "kostet", "trifft", "macht", "steht", "halb"):
        assert word in texts


LOG = """\
INFO | lstm_nmt: shares nothing by method plain; 1,234,567 parameters: encoder input 2, rest 1 (embeddings 12.3%)
INFO | train_inner | epoch 001: 1 / 3 loss=2, wps=100.5, ups=1
INFO | train_inner | epoch 001: 2 / 3 loss=2, wps=3000, ups=1
INFO | train_inner | epoch 001: 3 / 3 loss=2, wps=2000, ups=1
"""
GENERATED = """\
S-1\tone@@ s two
T-1\tdrei
H-1\t-0.5\ted rei@@ n
D-1\t-0.5\ted rei@@ n
P-1\t-0.1 -0.2 -0.3 -0.4
A-1\t0.7,0.2,0.1,0.0 0.2,0.7,0.1,0.0 0.1,0.2,0.7,0.0 0.0,0.0,0.0,1.0
S-0\tnine
T-0\tneun
H-0\t-0.25\tneun
A-0\t1.0,0.0 0.0,1.0
Generate test with beam=5: BLEU4 = 12.34
"""


def test_a_row_of_the_table_is_read_from_the_logs(tmp_path):
    (tmp_path / "lstm_nmt.log").write_text(LOG)
    (tmp_path / "lstm_nmt.bleu").write_text("98.7\n")
    row = report.read_result(tmp_path, "lstm_nmt")
    assert row == ("lstm_nmt", "1,234,567", "12.3%", 2000.0, "98.7")
    assert list(report.format_table([row]))[1].split() == ["lstm_nmt", "1,234,567", "12.3%", "2,000", "98.7"]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", r"lstm_nmt.log: needs a line that matches .* parameters"),
        (LOG.partition("INFO | train_inner")[0], "lstm_nmt.log: needs train_inner lines"),
    ],
)
def test_a_log_that_says_too_little_is_named(tmp_path, log, message):
    (tmp_path / "lstm_nmt.log").write_text(log)
    with pytest.raises(ValueError, match=message):
        report.read_result(tmp_path, "lstm_nmt")


def test_translations_are_read_and_drawn(tmp_path):
    path = tmp_path / "generate-test.txt"
    path.write_text(GENERATED)
    translations = report.read_translations(path)
    assert list(translations) == [0, 1]
    assert translations[0] == (["nine"], ["neun"], [[1.0, 0.0], [0.0, 1.0]])
    assert report.join_subwords(translations[1].hypothesis) == "ed rein"
    assert report.choose(translations) == [1, 0]
    lines = list(report.format_translations([0], ["neun"], dict.fromkeys(report.ARCHITECTURES, translations)))
    assert [line.split() for line in lines[:2]] == [["English", "nine"], ["reference", "neun"]]
    assert all(line.endswith("the same") for line in lines[2:])
    picture = tmp_path / "attention.png"
    report.draw_attention(translations[1], picture, "title")
    assert picture.read_bytes().startswith(b"\x89PNG")


def run_demo(folder, **options):
    """Runs the demo with the commands of this Python's environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    options = {"check": True, "capture_output": True, "text": True, "env": {**os.environ, "PATH": path}} | options
    return subprocess.run([FOLDER / "run.sh", folder], **options)


def test_a_failed_step_is_removed_with_its_reason(tmp_path):
    (tmp_path / "demo" / "text").mkdir(parents=True)  # holds no corpus, so that the next step fails
    process = run_demo(tmp_path / "demo", check=False)
    assert process.returncode == 1
    assert "train.en: No such file" in process.stderr
    assert f"{tmp_path}/demo/codes, which it had begun, is removed" in process.stderr
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["text"]


@pytest.mark.slow
def test_the_demo_translates(tmp_path):
    first = run_demo(tmp_path / "demo").stdout
    for arch in report.ARCHITECTURES:
        assert float((tmp_path / "demo" / f"{arch}.bleu").read_text()) >= 90
    assert (tmp_path / "demo" / "attention.png").read_bytes().startswith(b"\x89PNG")
    # Again: nothing is made again, and the same is shown.
    again = run_demo(tmp_path / "demo", timeout=60).stdout
    assert "fairseq-train" in first
    assert "fairseq-train" not in again
    assert again.count("the same") == first.count("the same")
