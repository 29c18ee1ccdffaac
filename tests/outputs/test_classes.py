"""The class-based softmax against its equation in float64, its classes, files of classes, and checkpoints."""

import copy
import logging
import math
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fairseq_tiedemb import LossOptions, SharedEmbedding, SharingMethod
from fairseq_tiedemb.outputs import ClassBased, OutputLayer, read_classes
from fairseq_tiedemb.outputs.classes import frequency_bins
from fairseq_tiedemb.sharing import SHARING_METHODS

from .. import reference
from ..gradients import assert_same_gradients
from .oracle import scores

V, D, N = 17, 5, 9
MARKS = (0, 1)
# </s> and <unk> stand before more frequent words in fairseq's dictionaries.
COUNTS = torch.tensor([0, 0, 30, 12, 50, 33, 20, 20, 14, 9, 9, 5, 4, 2, 1, 1, 0])
CLASSES = torch.tensor([0, 3, 2, 0, 1, 1, 1, 2, 3, 0, 3, 3, 0, 2, 2, 2, 1])  # nowhere in a row, but for 4 to 6


def build(method: str = "plain", class_of: Tensor | None = CLASSES, counts: Tensor = COUNTS, **options: int):
    table = SharedEmbedding(V, D, 1, method=method, bias=True).double()
    head = ClassBased(table, counts, MARKS, class_of=class_of, **options).double()
    for parameter in (*table.parameters(), *head.parameters()):
        nn.init.normal_(parameter)
    return table, head


def expected_log_prob(method: str, table: SharedEmbedding, head: ClassBased, features: Tensor) -> Tensor:
    """(N, V), word by word."""
    of_words = scores(method, table.weight, table.bias, features)
    of_classes = features @ head.classes.weight.T + head.classes.bias
    columns = []
    for word in range(V):
        number = int(head.class_of[word])
        if COUNTS[word] == 0 and word in MARKS:
            columns.append(torch.full((len(features),), -math.inf, dtype=torch.float64))
            continue
        mates = [each for each in range(V) if int(head.class_of[each]) == number]
        of_class = of_classes[:, number] - of_classes.logsumexp(1)
        columns.append(of_class + of_words[:, word] - of_words[:, mates].logsumexp(1))
    return torch.stack(columns, 1)


def everything(table: SharedEmbedding, head: ClassBased) -> list[nn.Parameter]:
    return [*table.parameters(), *head.parameters()]


@pytest.mark.parametrize("method", reference.SCORES)
@pytest.mark.parametrize("class_of", [CLASSES, None], ids=["scattered", "by frequency"])
def test_probabilities_and_gradients(method: str, class_of: Tensor | None) -> None:
    table, head = build(method, class_of, classes=4)
    assert len(head.sizes) == 4
    features = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    target = torch.randint(2, V, (N,))
    expected = expected_log_prob(method, table, head, features)
    torch.testing.assert_close(expected.exp().sum(1), torch.ones(N, dtype=torch.float64))
    picked = expected.gather(1, target.unsqueeze(1)).squeeze(1)
    weights, loss = torch.rand(N, dtype=torch.float64), head.loss(features, target, LossOptions(reduce=False)).loss
    assert_same_gradients(loss @ weights, -picked @ weights, [features, *everything(table, head)])
    torch.testing.assert_close(head.scores(features), expected)


def test_marks_have_no_probability_unless_the_text_has_them() -> None:
    _, head = build()
    features = torch.randn(3, D, dtype=torch.float64)
    assert head.log_prob(features, torch.tensor([0, 5, 1])).isinf().tolist() == [True, False, True]
    _, head = build(counts=COUNTS + torch.eye(V, dtype=torch.int64)[1])  # a literal <pad>
    assert head.log_prob(features, torch.tensor([0, 5, 1])).isinf().tolist() == [True, False, False]
    torch.testing.assert_close(head.scores(features).exp().sum(1), torch.ones(3, dtype=torch.float64))


def test_a_feature_map_comes_before_words_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    method = SharingMethod("tanh", "tanh", "a test", feature_map=lambda width: nn.Tanh())
    monkeypatch.setitem(SHARING_METHODS, "tanh", method)
    table, head = build("tanh")
    features = torch.randn(N, D, dtype=torch.float64)
    expected = expected_log_prob("plain", table, head, features.tanh())
    torch.testing.assert_close(head.scores(features), expected)
    torch.testing.assert_close(head.log_prob(features, torch.full((N,), 7)), expected[:, 7])


def test_only_rows_of_the_classes_of_the_targets_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def linear(features: Tensor, rows: Tensor) -> Tensor:
        seen.append((len(features), len(rows)))
        return features @ rows.T

    _, head = build()
    target = torch.tensor([4, 8, 5, 5])  # classes 1 and 3, of 4 and 3 words
    features = torch.randn(4, D, dtype=torch.float64)
    monkeypatch.setattr("fairseq_tiedemb.outputs.classes.blas_linear", linear)
    head.log_prob(features, target)
    assert seen == [(3, 4), (1, 3)]


# --- classes by frequency --------------------------------------------------------------------------------------------


def rnnlm(counts: list[int], classes: int) -> list[int]:
    """rnnlm's rule, as the specification words it."""
    order = sorted(range(len(counts)), key=lambda word: (-counts[word], word))
    total, share, current = sum(math.sqrt(count) for count in counts), 0.0, 0
    found = [0] * len(counts)
    for word in order:
        share += math.sqrt(counts[word]) / total
        found[word] = current
        if share > (current + 1) / classes and current < classes - 1:
            current += 1
    return found


@pytest.mark.parametrize("classes", [1, 3, 10, 400])
def test_frequency_bins_are_rnnlms(classes: int) -> None:
    counts = [0, 0, *torch.randint(1, 1000, (300,)).square().tolist(), 0, 1]
    assert frequency_bins(torch.tensor(counts), classes).tolist() == rnnlm(counts, classes)


def test_rounding_makes_no_further_bin() -> None:
    """Here the words that occur have 1 + 2e-16 of the sum, and others follow."""
    assert not frequency_bins(torch.tensor([6, 5, 4, 3, 2, 1, 0, 0]), 1).any()


def test_frequency_bins_of_ptb() -> None:
    path = Path(os.environ.get("PTB", Path(__file__).parents[2] / ".." / "shared" / "data" / "ptb")) / "ptb.train.txt"
    if not path.is_file():
        pytest.skip(f"needs PTB=a folder with ptb.train.txt; {path} is none")
    counts = Counter(path.read_text().replace("\n", " </s> ").split())
    sizes = torch.bincount(frequency_bins(torch.tensor(sorted(counts.values(), reverse=True)), 100)).tolist()
    assert sizes[:4] == [3, 4, 4, 8]
    assert max(sizes) == 292
    assert len(sizes) == 100


# --- files of classes ------------------------------------------------------------------------------------------------

WORDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "the": 4, "of": 5, "cat": 6, "dog": 7, "é": 8}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("00\tthe\t30\n00\tof\t20\n0101\tcat\t7\n0101\tdog\t6\n00\tgone\t3\n", ["00", "0101"]),
        ("the DET\nof  DET\n\ncat\tNOUN\ndog NOUN \ngone X\ndog NOUN\n", ["DET", "NOUN"]),
        ("\ufeffthe 2\r\nof 2\r\ncat 1\r\ndog 1\r\ngone 1\r\n", ["2", "1"]),
    ],
    ids=["Brown clusters", "words and classes", "a byte-order mark and DOS lines"],
)
def test_files_of_classes(text: str, names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "classes"
    path.write_text(text, encoding="utf-8", newline="")
    with caplog.at_level(logging.INFO):
        found = read_classes(str(path), WORDS, (0, 1))
    assert found.class_of.tolist() == [2, 2, 2, 2, 0, 0, 1, 1, 2]
    assert found.names == [*names, ""]
    assert (
        f"--class-file: 2 classes for 4 of 9 words in {path}; 3 that it lacks are a class of their own" in caplog.text
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1\nof\n", "--class-file: needs lines of .*; got 'of' in line 2 of '.*classes'"),
        ("the 1 2\n", "got 'the 1 2' in line 1"),
        ("02\tthe\t3\n", r"got '02\\tthe\\t3' in line 1"),
        ("01\tthe\tmany\n", r"got '01\\tthe\\tmany' in line 1"),
        ("the 1\nof 1\nthe 2\n", "needs one class for each word; got 1 and, in line 3 of '.*classes', 2 for 'the'"),
        ("zebra 1\n", "needs classes for the words of the dictionary; got '.*classes' with 1 words, none of them"),
        ("<s> 1\n<pad> 1\n", "got '.*classes' with 2 words, none of them in it"),
        ("", "got '.*classes' with 0 words"),
    ],
)
def test_broken_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "classes").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_classes(str(tmp_path / "classes"), WORDS, (0, 1))


def test_no_file_and_another_encoding_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--class-file: needs a text file; got .*nowhere \(No such file"):
        read_classes(str(tmp_path / "nowhere"), WORDS)
    (tmp_path / "latin1").write_bytes("é 1\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"needs UTF-8 text; got .*latin1 \('utf-8' codec .* 0xe9"):
        read_classes(str(tmp_path / "latin1"), WORDS)


def test_a_word_with_the_name_of_a_special_symbol_may_have_a_class(tmp_path: Path) -> None:
    """As `<unk> 3 #fairseq:overwrite` in dict.txt makes it: the dictionary then knows the last row of the name."""
    (tmp_path / "classes").write_text("a 1\n<unk> 2\n")
    found = read_classes(str(tmp_path / "classes"), {"<s>": 0, "<pad>": 1, "</s>": 2, "a": 4, "<unk>": 5}, (0, 1))
    assert found.class_of.tolist() == [2, 2, 2, 2, 0, 1]
    assert found.names == ["1", "2", ""]


def test_a_file_of_all_words_has_no_other_class(tmp_path: Path) -> None:
    (tmp_path / "classes").write_text("".join(f"{word} {len(word)}\n" for word in WORDS))
    found = read_classes(str(tmp_path / "classes"), WORDS)
    assert found.names == [str(length) for length in dict.fromkeys(map(len, WORDS))]


def test_classes_without_words_are_left_out() -> None:
    class_of = torch.full((V,), 5)
    class_of[0] = 2  # <s>, which has no probability
    class_of[4:8] = 9
    _, head = build(class_of=class_of)
    assert head.sizes == [V - 6, 4]
    assert head.classes.out_features == 2


# --- checkpoints -----------------------------------------------------------------------------------------------------


def layer(head_options: dict, counts: Tensor | None = COUNTS):
    table = SharedEmbedding(V, D, 1, bias=True)
    return OutputLayer(table, over=ClassBased(table, counts, MARKS, **head_options))


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"classes": 7}, COUNTS),
        ({"classes": 2}, COUNTS),
        ({"classes": 4}, None),
        ({"problem": ValueError("--class-file: gone")}, COUNTS),
    ],
    ids=["more", "fewer", "no training text", "no file"],
)
@pytest.mark.parametrize("assign", [False, True])
def test_classes_come_from_the_checkpoint(
    options: dict, counts: Tensor | None, assign: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trained = layer({"class_of": CLASSES})
    for parameter in trained.parameters():
        nn.init.normal_(parameter)
    state = copy.deepcopy(trained.state_dict())
    assert sorted(state) == ["bias", *(f"over.{each}" for each in ("class_of", "classes.bias", "classes.weight"))] + [
        "over.counts",
        "weight",
    ]
    other = layer(options, counts)
    parameters = list(other.parameters())
    other.load_state_dict(state, assign=assign)
    if not assign:
        assert all(a is b for a, b in zip(parameters, other.parameters(), strict=True))
    features, target = torch.randn(N, D), torch.randint(2, V, (N,))
    torch.testing.assert_close(other.scores(features), trained.scores(features))
    torch.testing.assert_close(other.log_prob(features, target), trained.log_prob(features, target))
    warning = "--output-layer classes: the 4 classes are those of the checkpoint, not those of the options"
    assert (warning in caplog.text) == bool(other.head.problem is None and counts is not None)


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"class_of": (3 - CLASSES)}, False),
        ({"class_of": CLASSES}, False),
        ({"class_of": CLASSES.roll(1)}, True),
        ({"classes": 2}, False),
        ({"problem": ValueError("--class-file: gone")}, False),
    ],
    ids=["same file, lines reordered", "same file", "another", "none", "gone"],
)
def test_classes_of_another_file_are_not_trained(options: dict, is_refused: bool) -> None:
    other = layer(options)
    other.load_state_dict(layer({"class_of": CLASSES}).state_dict())
    if is_refused:
        with pytest.raises(ValueError, match="--class-file: .* got one with other"):
            other.check_training(LossOptions())
    else:
        other.check_training(LossOptions())


def test_nothing_is_computed_without_classes() -> None:
    output = layer({"problem": ValueError("--class-file: broken")})
    features, target = torch.randn(N, D), torch.randint(2, V, (N,))
    for compute in (
        lambda: output.scores(features),
        lambda: output.loss(features, target),
        lambda: output.log_prob(features, target),
        lambda: output.check_training(LossOptions()),
    ):
        with pytest.raises(ValueError, match="--class-file: broken"):
            compute()
