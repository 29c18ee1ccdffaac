"""Learning curves: every form of fairseq's logs, runs that go back or break off, the table, the picture."""

import logging
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.analysis.curves import Run, read_log, run_names

# What stands before the message in a terminal, in a `--log-file`, and in a log of hydra.
PREFIXES = {
    "terminal": "2026-11-21 08:55:13 | INFO | {tag} | ",
    "file": "",
    "hydra": "[2026-11-21 08:55:13,123][{tag}][INFO] - ",
}

Values = list[tuple[int, str | None, float]]


def text_lines(values: Values, prefix: str = PREFIXES["terminal"]) -> str:
    """A log in the format `simple`; a value is an epoch, a validation subset or None, and a perplexity."""
    lines = []
    for epoch, subset, ppl in values:
        where = f"valid on '{subset}' subset | " if subset else ""
        lines += [
            prefix.format(tag=subset or "train")
            + f"epoch {epoch:03d} | {where}loss 7.1 | nll_loss 7 | ppl {ppl:g} | wps 0 | num_updates 5\n",
            prefix.format(tag="fairseq.trainer") + f"begin training epoch {epoch + 1}\n",
        ]
    return "".join(lines)


def json_lines(values: Values, prefix: str = PREFIXES["terminal"]) -> str:
    lines = []
    for epoch, subset, ppl in values:
        tag = subset or "train"
        lines += [
            prefix.format(tag="train_inner") + f'{{"epoch": {epoch}, "update": 0.2, "loss": "9", "ppl": "512"}}\n',
            prefix.format(tag=tag)
            + f'{{"epoch": {epoch}, "{tag}_loss": "7.1", "{tag}_ppl": "{ppl:g}", "{tag}_num_updates": "5"}}\n',
        ]
    return "".join(lines)


THREE_EPOCHS: Values = [
    *((1, "valid", 300.25), (1, "other", 400), (1, None, 1.5e6)),
    *((2, "valid", float("inf")), (2, "other", 350), (2, None, 200)),
    (3, "valid", 90.5),  # broken off
]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("lines", "prefix"),
    [*((text_lines, prefix) for prefix in PREFIXES), (json_lines, "terminal"), (json_lines, "file")],
)
def test_every_form_of_log_gives_the_same_curves(lines, prefix, tmp_path):
    run = read_log(write(tmp_path / "log", lines(THREE_EPOCHS, PREFIXES[prefix])))
    valid = {"valid": {1: 300.25, 2: float("inf"), 3: 90.5}, "other": {1: 400, 2: 350}}
    assert run == Run(train={1: 1.5e6, 2: 200}, valid=valid)
    assert list(run.valid) == ["valid", "other"]


def test_the_lowest_perplexity_so_far_is_no_subset(tmp_path):
    """fairseq logs it beside an epoch's with --best-checkpoint-metric ppl."""
    lines = json_lines([(1, "valid", 16), (2, "valid", 18)]).replace('"valid_num', '"valid_best_ppl": "16", "valid_num')
    assert read_log(write(tmp_path / "log", lines)) == Run(valid={"valid": {1: 16, 2: 18}})


def test_a_validation_subset_may_be_called_train(tmp_path):
    run = read_log(write(tmp_path / "log", text_lines([(1, "train", 30), (1, "valid", 10), (1, None, 20)])))
    assert run == Run(train={1: 20}, valid={"train": {1: 30}, "valid": {1: 10}})


def test_lines_within_an_epoch_do_not_count(tmp_path):
    bar = "\repoch 002 | valid on 'valid' subset:  50%|#####     | 1/2 [00:00<00:00, 9.1it/s, loss=1, ppl=2]"
    inner = (
        f"{bar}{bar}\r"
        "2026-11-21 08:55:13 | INFO | train_inner | epoch 002:      4 / 5 loss=3.7, ppl=13.16, wps=2, wall=1\n"
        "2026-11-21 08:55:13 | INFO | valid | epoch 002 | valid on 'valid' subset:      1 / 2 loss=3, ppl=8, wps=0\n"
    )
    run = read_log(write(tmp_path / "log", inner + text_lines([(1, "valid", 10), (1, None, 20)]) + inner))
    assert run == Run(train={1: 20}, valid={"valid": {1: 10}})


@pytest.mark.parametrize(
    "end",
    [
        "2026-11-21 08:55:13 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 3.4 | ppl 1",
        '2026-11-21 08:55:13 | INFO | valid | {"epoch": 2, "valid_loss": "3.4", "valid_ppl": "1',
        "epoch 001 | loss 1 | ppl 3.4.5 | wps 0\n",
        f"epoch {'9' * 5000} | loss 1 | ppl 3 | wps 0\n",
        *(f'{{"epoch": {epoch}, "train_ppl": "5.2"}}\n' for epoch in ('"one"', "null", "1.5", "-1", "9" * 23)),
        *(f'{{"epoch": 1, "train_ppl": {value}}}\n' for value in ('"x"', "[1]", "true", "-5", "{}")),
    ],
)
def test_a_line_that_breaks_off_or_is_none_of_fairseqs_does_not_count(end, tmp_path):
    """The perplexity of one that breaks off may have lost digits."""
    assert read_log(write(tmp_path / "log", text_lines([(1, "valid", 10)]) + end)) == Run(valid={"valid": {1: 10}})


FIRST: Values = [(epoch, subset, 100 - epoch) for epoch in (1, 2, 3, 4) for subset in ("valid", None)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Twice in an epoch: validation every so many updates, or a run resumed in its last epoch.
        (
            [(1, "valid", 10), (1, "valid", 9), (1, None, 20), (2, "valid", 8), (2, "valid", 7), (2, None, 6)],
            Run(train={1: 20, 2: 6}, valid={"valid": {1: 9, 2: 7}}),
        ),
        # As when a log is appended to by a run from the start, or from an older checkpoint: no mixture of two runs.
        (
            [*FIRST, (2, "valid", 50), (2, None, 51), (3, "valid", 40)],
            Run(train={1: 99, 2: 51}, valid={"valid": {1: 99, 2: 50, 3: 40}}),
        ),
        ([*FIRST, (2, "valid", 50)], Run(train={1: 99}, valid={"valid": {1: 99, 2: 50}})),
    ],
    ids=["the last value counts", "a run that goes back", "and has just begun"],
)
def test_what_comes_later_replaces_what_came_before(values, expected, tmp_path):
    assert read_log(write(tmp_path / "log", text_lines(values))) == expected


def test_the_command_prints_a_table_of_every_run(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write(Path("wt.log"), text_lines(THREE_EPOCHS))
    write(Path("untied.log"), json_lines([(1, None, 500), (2, None, 400)]))  # --disable-validation
    out = cli("curves", "wt.log", "untied.log").out
    assert out.splitlines() == [
        "epoch    wt train  wt valid  untied train  untied valid",
        "    1  1500000.00    300.25        500.00             -",
        "    2      200.00       inf        400.00             -",
        "    3           -     90.50             -             -",
        "wt: lowest valid 90.50, epoch 3",
    ]
    out = cli("curves", "wt.log", "--subset", "other", "--label", "weight tying").out
    assert out.splitlines() == [
        "epoch  weight tying train  weight tying valid",
        "    1          1500000.00              400.00",
        "    2              200.00              350.00",
        "weight tying: lowest valid 350.00, epoch 2",
    ]


def test_what_logs_are_called(tmp_path, monkeypatch, cli):
    (tmp_path / "here/b/a").mkdir(parents=True)
    (tmp_path / "here/a").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for logs, names in (
        (("a/x.log", "b/x.log"), ("a/x.log", "b/x.log")),
        (("a/x.log", "b/y.log"), ("x", "y")),
        (("a/train.log", "b/train.log"), ("a", "b")),
        (("a/train.log", "b/a/train.log"), ("a/train.log", "b/a/train.log")),
        (("train.log",), ("here",)),
        (("a", "b"), ("a", "b")),
        (("a", "b/a"), ("a", "b/a")),
    ):
        assert run_names([Path(log) for log in logs]) == list(names)
    log = write(Path("a/train.log"), text_lines([(1, None, 5)]))
    assert cli("curves", log).out.splitlines()[0] == "epoch  a train  a valid"


SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """The texts of an SVG picture, and of each curve its moves and lines and its style."""
    tree = ElementTree.parse(picture)
    axes = tree.find(f".//{SVG}g[@id='axes_1']")
    lines = [group for group in axes if re.fullmatch(r"line2d_\d+", group.get("id", ""))]
    paths = [line.find(f"{SVG}path") for line in lines]
    curves = [path for path in paths if path is not None and "clip-path" in path.attrib]
    return (
        [text.text or "" for text in tree.iter(f"{SVG}text")],
        [
            (
                "".join(re.findall("[ML]", path.get("d", ""))),
                "dashed" if "dasharray" in path.get("style", "") else "solid",
            )
            for path in curves
        ],
    )


@pytest.fixture
def readable_svg():
    """Text as text, and every point of a line."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "path.simplify": False}):
        yield


@pytest.mark.usefixtures("readable_svg")
def test_the_picture_has_a_solid_and_a_dashed_line_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(Path("wt.log"), text_lines(THREE_EPOCHS))
    write(Path("pr.log"), text_lines([(e, s, 90 - e) for e in range(1, 6) for s in ("valid", None)]))
    assert cli.main(["curves", "wt.log", "pr.log", "--output", "two.svg"]) == 0
    texts, curves = drawn(Path("two.svg"))
    assert {"wt", "pr", "valid", "train", "epoch", "perplexity"} <= set(texts)
    # The infinite value is left out.
    assert [curve for curve in curves if curve[0]] == [
        *(("ML", "dashed"), ("ML", "solid")),
        *(("MLLLL", "dashed"), ("MLLLL", "solid")),
    ]
    assert "1e+06" in texts  # the wide range has a logarithmic axis
    assert {"500", "200"} <= set(texts)
    assert cli.main(["curves", "pr.log", "--output", "one.svg"]) == 0
    assert {"85.5", "86.0"} <= set(drawn(Path("one.svg"))[0])  # and the narrow one has not
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.svg", "pr.log", "two.svg", "wt.log"]


@pytest.mark.filterwarnings("error")  # a legend without room
@pytest.mark.usefixtures("readable_svg")
def test_a_run_without_a_finite_value_and_many_runs_are_drawn(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    names = [write(Path(f"r{i}.log"), text_lines([(1, None, float("nan") if i == 0 else i)])) for i in range(30)]
    with caplog.at_level(logging.WARNING):
        assert cli.main(["curves", *names, "--output", "many.svg"]) == 0
        assert cli.main(["curves", names[0], "--output", "none.svg"]) == 0
        assert cli.main(["curves", names[1], "--output", "base.svg", "--label", "_base"]) == 0
    assert {f"r{i}" for i in range(30)} <= set(drawn(Path("many.svg"))[0])
    assert " _base" in drawn(Path("base.svg"))[0]
    assert not caplog.records


def test_the_extension_says_the_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Perplexities of any size and labels of any kind are drawn.
    write(Path("log"), json_lines([(1, None, 1e308), (2, None, 1e-300), (3, None, 5)]))
    for name, start in (("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")):
        assert cli.main(["curves", "log", "--output", name, "--label", "$\\frac \x1b[2J"]) == 0
        assert Path(name).read_bytes().startswith(start)
    ElementTree.parse("a.svg")


REFUSED = [
    (["none"], "LOG: needs a log of fairseq-train; got none (No such file or directory)"),
    (["good", "empty"], "perplexities at the end of epochs, as in `epoch 001 | loss ... | ppl ... |`; got empty"),
    (["unfinished"], "got unfinished, which has none. Use the log of a fairseq-train that ended an epoch"),
    (["good", "--subset", "test"], "that every log has; got 'test', but good has valid, other. Use --subset v"),
    (["bare", "--subset", "test"], "got 'test', but bare has no validation. Use logs of runs with validation."),
    (["good", "bare", "--label", "a"], "--label: needs one for each log; got 1 for 2. Use 2."),
    (["good", "--output", "a.txt"], ".png, .ps, .raw, .rgba, .svg, .svgz, .tif, .tiff, .webp; got a.txt. Use a.png."),
    (["good", "./good"], "LOG: needs each log once; got ./good twice. Leave one out."),
    (["good", "--output", "curves"], "got curves. Use curves.png."),
    (["good", "--output", "no/a.png"], "--output: needs a folder that exists; got no. Use mkdir -p no."),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_is_refused(words, message, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write(Path("good"), text_lines(THREE_EPOCHS))
    write(Path("bare"), text_lines([(1, None, 5)]))
    write(Path("empty"), "")
    write(Path("unfinished"), "2026-11-21 08:55:13 | INFO | fairseq.trainer | begin training epoch 1\n")
    assert message in cli("curves", *words, status=2).err


@pytest.mark.slow
def test_logs_of_a_real_training(lm_data, tmp_path, run_command):
    """Both formats, printed and to a file, say the same; a training that is resumed in the same log goes on."""
    model = "--arch transformer_lm --decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --decoder-layers 1"
    flags = (
        f"--task language_modeling {model} --decoder-attention-heads 2 --tokens-per-sample 20 --max-tokens 200".split()
    )
    flags += "--optimizer adam --lr 0.01 --seed 1 --valid-subset valid,test".split()
    runs = []
    for log_format in ("simple", "json"):
        command = (
            *(lm_data, *flags, "--log-format", log_format, "--log-file", tmp_path / f"{log_format}.file"),
            *("--save-dir", tmp_path / log_format),
        )
        printed = "".join(run_command("train", *command, "--max-epoch", epochs).stdout for epochs in (2, 3))
        runs += [read_log(write(tmp_path / "printed", printed)), read_log(tmp_path / f"{log_format}.file")]
    assert runs[0].train.keys() == runs[0].valid["valid"].keys() == runs[0].valid["test"].keys() == {1, 2, 3}
    assert list(runs[0].valid) == ["valid", "test"]
    assert runs[1:] == [runs[0]] * 3
    picture = tmp_path / "curves.png"
    process = run_command("fairseq_tiedemb.cli", "curves", *sorted(tmp_path.glob("*.file")), "--output", picture)
    assert f"{runs[0].train[3]:.2f}" in process.stdout.splitlines()[3]
    assert picture.stat().st_size > 10_000
