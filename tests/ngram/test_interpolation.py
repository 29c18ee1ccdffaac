"""Interpolation: EM against a grid, files of word scores, and the command."""

import math
import re

import numpy as np
import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.ngram import estimate_mixture, is_word_scores, mixture, read_word_scores, write_word_scores

from .oracle import Oracle
from .texts import random_text


def made_up(models: int, tokens: int = 500) -> np.ndarray:
    """Logarithms of probabilities, some models better than others, none everywhere."""
    draws = np.random.default_rng(1).uniform(size=(models, tokens))
    return np.log(draws ** np.arange(1, models + 1)[:, None])


def test_em_finds_the_best_of_a_grid_and_never_falls():
    logs = made_up(2)
    weights, trace = estimate_mixture(logs)
    assert np.diff(trace).min() > -1e-15
    assert weights.sum() == pytest.approx(1, abs=1e-15)

    def mean_log(weight):
        pairs = zip(*np.exp(logs).tolist(), strict=True)
        return math.fsum(math.log(weight * one + (1 - weight) * other) for one, other in pairs) / logs.shape[1]

    best = max((step / 1000 for step in range(1001)), key=mean_log)
    assert weights[0] == pytest.approx(best, abs=1e-3)
    assert trace[-1] == pytest.approx(mean_log(weights[0]), rel=1e-12)
    assert trace[-1] >= mean_log(best) - 1e-9


def test_em_of_three_models():
    logs = made_up(3)
    weights, trace = estimate_mixture(logs)
    assert np.diff(trace).min() > -1e-15
    # At the maximum the expected share of every model that has a weight is that weight.
    share = np.exp(logs - mixture(logs, weights)).mean(axis=1)
    assert share[weights > 1e-3] == pytest.approx(1, abs=1e-3)
    assert share.max() < 1 + 1e-3


def test_improbable_and_impossible_tokens():
    logs = np.array([[-2000.0, -1.0, -math.inf], [-2001.0, -math.inf, -3.0]])
    expected = [-2000 + math.log(0.5 + 0.5 / math.e), -1 + math.log(0.5), -3 + math.log(0.5)]
    assert mixture(logs, np.array([0.5, 0.5])).tolist() == pytest.approx(expected, rel=1e-12)
    assert mixture(logs, np.array([1.0, 0.0]))[2] == -math.inf
    with pytest.raises(ValueError, match="--held-out: needs tokens .*; got 0 by all models for token number 2"):
        estimate_mixture(np.array([[-1.0, -math.inf], [-2.0, -math.inf]]))


def test_word_scores_out_and_in_again(tmp_path):
    path = tmp_path / "scores"
    scores = [("a", -0.1), ("<unk>", -12.3456789), ("ü", 0.0), ("</s>", -math.inf), ("\u2028", -1e-7)]
    with path.open("w") as file:
        write_word_scores(scores[:4], file)
    assert path.read_text().splitlines()[:2] == ["-0.1\ta", "-12.3456789\t<unk>"]
    assert is_word_scores(path, flag="--interpolate")
    found = read_word_scores(path, flag="--interpolate")
    assert found.tokens == [token for token, _ in scores[:4]]
    assert found.logs.tolist() == [log for _, log in scores[:4]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1\ta\n-1 b\n", "needs lines .*; got '-1 b' in line 2 of"),
        ("-1\ta\n-1\tb c\n", "got '-1.*tb c' in line 2 of"),
        ("-1\ta\n-1\t\n", "got '-1' in line 2 of"),
        ("x\ta\n", "got 'x.*ta' in line 1 of"),
        ("0.5\ta\n", "got '0.5.*ta' in line 1 of"),
        ("nan\ta\n", "got 'nan.*ta' in line 1 of"),
        ("", "needs one line per token; got .*scores, which is empty"),
    ],
)
def test_broken_word_scores(text, message, tmp_path):
    (tmp_path / "scores").write_text(text)
    with pytest.raises(ValueError, match=f"--interpolate: .*{message}"):
        read_word_scores(tmp_path / "scores", flag="--interpolate")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """train, valid, test; an ARPA file of Witten-Bell bigrams, and what its restatement gives each token."""
    tmp_path = tmp_path_factory.mktemp("interpolation")
    texts = {"train": random_text(seed=51), "valid": random_text(seed=52), "test": random_text(seed=53)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    oracle = Oracle(texts["train"], 2, "witten-bell")
    for name in ("valid", "test"):
        with (tmp_path / f"{name}.scores").open("w") as file:
            for line in texts[name].splitlines():
                sentence = ("<s>", *line.split(), "</s>")
                pairs = zip(sentence[1:], sentence, strict=False)
                write_word_scores([(word, math.log(oracle.probability(word, (last,)))) for word, last in pairs], file)
    options = ["--order", "2", "--smoothing", "witten-bell", "--arpa", str(tmp_path / "wb.arpa")]
    assert cli.main(["ngram", str(tmp_path / "train"), *options]) == 0
    first = (tmp_path / "valid.scores").read_text().splitlines()[0]
    (tmp_path / "short").write_text(f"{first}\n")
    (tmp_path / "small.arpa").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-99 <s>\n-0.1 </s>\n\n\\end\\\n")
    (tmp_path / "link").symlink_to("valid")
    return tmp_path


@pytest.fixture
def folder(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    return made


TEXTS = ["--held-out", "valid", "--test", "test"]


def interpolated(output: str) -> list[list[str]]:
    """The table of weights and perplexities on valid and test."""
    lines = output.partition("\ninterpolated, ")[2].splitlines()[1:-1]
    return [re.split(r"\s+", line.strip(), maxsplit=3) for line in lines]


def test_an_arpa_file_and_word_scores_are_the_same_model(folder, cli):
    tables = []
    for files in (["wb.arpa"], ["valid.scores", "test.scores"]):
        tables.append(interpolated(cli("ngram", "train", "--order", "3", *TEXTS, "--interpolate", *files).out))
    assert [row[:3] for row in tables[0]] == [row[:3] for row in tables[1]]
    own, other, mixed = tables[0]
    assert own[3] == "modified Kneser-Ney, order 3"
    assert other[3] == "wb.arpa"
    assert float(own[0]) + float(other[0]) == pytest.approx(1, abs=2e-4)
    assert float(mixed[0]) <= min(float(own[1]), float(other[1]))  # valid, on which the weights are best
    wb = Oracle((folder / "train").read_text(), 2, "witten-bell")
    assert other[1:3] == [f"{wb.perplexity((folder / name).read_text(), 2):.2f}" for name in ("valid", "test")]


def test_models_of_word_scores_alone(folder, cli):
    command = ["ngram", *TEXTS, "--interpolate", "valid.scores", "test.scores", "--interpolate", "wb.arpa"]
    one, other, mixed = interpolated(cli(*command).out)
    assert one[1:3] == other[1:3] == mixed[:2]
    assert one[0] == other[0] == "0.5000"


REFUSED = [
    ([], "TRAIN: needs text to count n-grams in; got none"),
    (["--interpolate", "wb.arpa"], "TRAIN: needs text to count n-grams in; got none"),
    (["train", "--read-arpa", "wb.arpa"], "--read-arpa: needs no TRAIN; got train."),
    (["--read-arpa", "wb.arpa", "--order", "3"], "--order: needs TRAIN, to estimate a model from; got none"),
    (["--read-arpa", "wb.arpa", "--back-off"], "--back-off: needs TRAIN"),
    (["--read-arpa", "wb.arpa", "--dict", "train"], "--dict: needs TRAIN"),
    (["train", "--katz-k", "5"], "--katz-k: needs --smoothing katz; got modified-kneser-ney"),
    (["train", "--smoothing", "katz", "--katz-k", "0"], "--katz-k: needs a whole number from 1 to 10000; got 0"),
    (["train", "--weights-by", "order"], "--weights-by: needs --smoothing jelinek-mercer; got modified-kneser-ney"),
    (["train", "--smoothing", "jelinek-mercer"], "--held-out: needs text that is not in TRAIN, for the weights of"),
    (["train", "--interpolate", "wb.arpa"], "--held-out: needs text that is not in TRAIN, for the weights of --inter"),
    (["valid", "train", "--held-out", "./train", "--smoothing", "jelinek-mercer"], "in TRAIN; got ./train, which is."),
    (["valid", "--held-out", "link", "--interpolate", "wb.arpa"], "not in TRAIN; got link, which is. Use"),
    (["train", "--held-out", "valid"], "--held-out: needs weights to estimate, of --smoothing jelinek-mercer or"),
    (["train", "--cutoff", "0"], "--cutoff: needs 1 to 5 whole numbers of at least 1, for --order 5; got 0"),
    (["train", "--smoothing", "jelinek-mercer", "--back-off", *TEXTS], "--back-off: needs a method that has this form"),
    (
        ["--interpolate", "valid.scores", "test.scores", "--interpolate", "wb.arpa", *TEXTS, "--arpa", "out"],
        "--arpa: needs a model of n-grams to write, of TRAIN; got none",
    ),
    (
        [*["--held-out", "valid", "--test", "none"], *["--interpolate", "valid.scores", "test.scores"] * 2],
        "--test: needs a text file; got none (No such",
    ),
    (
        [*["--held-out", "test", "--test", "valid"], *["--interpolate", "valid.scores", "test.scores"] * 2],
        "--held-out: needs the text of 347 tokens that was scored; got test, of 332. Use the texts in the order",
    ),
    (["train", *TEXTS, "--interpolate", "valid.scores"], "--interpolate: needs 2 files of score --per-word"),
    (["train", *TEXTS, "--interpolate", "wb.arpa", "wb.arpa", "wb.arpa"], "got 3 of another form, wb.arpa wb.arpa wb"),
    (
        ["train", *TEXTS, "--interpolate", "wb.arpa", "small.arpa"],
        "got 2 of another form, wb.arpa small.arpa. Use --in",
    ),
    (["train", *TEXTS, "--interpolate", "none"], "--interpolate: needs a text file; got none (No such"),
    (["train", *TEXTS, "--interpolate", "test.scores", "valid.scores"], "needs models of the same words; got"),
    (["train", *TEXTS, "--interpolate", "short", "test.scores"], "got 1 from short test.scores. Use score --per-word"),
    (["train", *TEXTS, "--interpolate", "small.arpa"], "needs the words of small.arpa, which has no <unk>"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_is_refused(words, message, folder, cli):
    before = sorted(folder.iterdir())
    assert message in cli("ngram", *words, status=2).err
    assert sorted(folder.iterdir()) == before


def test_jelinek_mercer_on_the_command_line(folder, capsys):
    for by in ("count", "order"):
        command = ["ngram", "train", *TEXTS, "--smoothing", "jelinek-mercer", "--weights-by", by, "--order", "2"]
        assert cli.main(command) == 0
    one, two = (out for out in capsys.readouterr().out.split("Jelinek-Mercer, order 2: ")[1:])
    assert one.splitlines()[2] != two.splitlines()[2]
    assert one.splitlines()[2].endswith("  test")
    assert "  valid" not in one


def test_what_katz_falls_back_to_is_said(folder, cli):
    err = cli("ngram", "train", "--order", "2", "--smoothing", "katz").err
    assert re.search(r"too few different counts to estimate the discounts of order 2, .*: taking( [\d.]+){7}\n", err)
