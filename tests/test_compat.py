"""Each entry of compat, in this process. tests/test_compat_commands.py runs the commands themselves."""

import argparse
import ast
import gc
import importlib
import importlib.machinery
import inspect
import logging
import math
import random
import sys
import types
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import fairseq
import numpy as np
import pytest
import torch
from fairseq import options, tasks, utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.ema.ema import EMA
from fairseq.modules import (
    AdaptiveInput,
    AdaptiveSoftmax,
    CharacterTokenEmbedder,
    DynamicConv1dTBC,
    DynamicConv_scripatable,
)
from fairseq.nan_detector import NanDetector
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_tiedemb import compat, wrapping
from fairseq_tiedemb.compat import flags, literals, noise

from .models import families

# --- settings -----------------------------------------------------------------------------------------------------


LITERALS = """[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)]; [3,7,15,31]; (0.9, 0.98); True; None; {1, 2};
    {'max_target_positions': 100, 'lr': [-1e-3]}; 20000,60000 ; 'a text'; [True] * 4; 2 * 3 - 4 / 2""".split(";")
NO_LITERALS = """__import__('os').system('true'); open; [].__class__; [x for x in (1, 2)]; lambda: 0; f'{1}'; 9 ** 9;
    [0] * 100000000; 100000000 * 'text'; {**{}}; [[0] * 9999] * [2]; 1 +; 1 / 0""".split(";")


@pytest.mark.parametrize("text", LITERALS)
def test_settings_mean_what_eval_made_of_them(text: str) -> None:
    assert literals.parse_literal(text) == eval(text.strip())


@pytest.mark.parametrize("text", [*NO_LITERALS, "(" * 5000, "-" * 100000 + "1"])
def test_other_settings_are_refused_and_not_run(text: str) -> None:
    with pytest.raises(ValueError, match="needs numbers, text, lists or dicts; got .* nothing of it was run"):
        literals.parse_literal(text)


def test_functions_of_fairseq_parse_settings() -> None:
    assert utils.eval_str_list("[2, 3] * 2", type=int) == [2, 3, 2, 3]
    assert utils.eval_str_dict("{'a': 1}") == {"a": 1}
    assert (utils.eval_bool("False", default=True), utils.eval_bool(True, default=False)) == (False, False)
    for function in (utils.eval_str_list, utils.eval_str_dict, utils.eval_bool, options.eval_str_list):
        with pytest.raises(ValueError, match="open"):
            function("open('x', 'w')")


def modules_that_call_eval() -> list[str]:
    """The names of fairseq's modules, but for its examples, in whose text the built-in `eval` is called."""
    root = Path(fairseq.__file__).parent
    names = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        text = path.read_text()
        if parts[0] != "examples" and "eval(" in text:
            calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            if any(isinstance(func, ast.Name) and func.id == "eval" for func in calls):
                names.append(".".join(("fairseq", *parts)))
    return names


def test_a_command_that_runs_parses_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    running = types.ModuleType("__main__")
    running.__spec__ = importlib.machinery.ModuleSpec("fairseq_cli.eval_lm", None)
    other = types.ModuleType("__mp_main__")
    monkeypatch.setitem(sys.modules, "__main__", running)
    monkeypatch.setitem(sys.modules, "__mp_main__", other)
    monkeypatch.setattr(sys, "meta_path", [])
    literals.literal_settings()
    assert (vars(running).get("eval"), vars(other).get("eval")) == (literals.parse_literal, None)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_no_module_of_fairseq_reaches_eval() -> None:
    names = modules_that_call_eval()
    assert len(names) > 10
    assert [
        name for name in names if getattr(importlib.import_module(name), "eval", None) is not literals.parse_literal
    ] == []


# --- batches ---------------------------------------------------------------------------------------------------------


class Sentences(FairseqDataset):
    """A dataset of sentences of which nothing but the sizes is known."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = np.array(sizes)

    def __getitem__(self, index: int) -> int:
        return int(self.sizes[index])

    def __len__(self) -> int:
        return len(self.sizes)

    def collater(self, samples: list[int]) -> list[int]:
        return samples

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        return np.argsort(self.sizes, kind="stable")


def batches(sizes: list[int], **limits: Any) -> list[list[int]]:
    """The batches, as lists of sizes, that fairseq makes of sentences of these sizes."""
    dataset = Sentences(sizes)
    return [[sizes[index] for index in batch] for batch in dataset.batch_by_size(dataset.ordered_indices(), **limits)]


@pytest.mark.parametrize("multiple", [1, 3, 8])
@pytest.mark.parametrize("max_sentences", [None, 8, 20])
@pytest.mark.parametrize("max_tokens", [None, 40, 200])
def test_every_sentence_is_in_one_batch(max_tokens: int | None, max_sentences: int | None, multiple: int) -> None:
    for count in (0, 1, 7, 8, 20, 100):
        sizes = [random.randint(1, 40) for _ in range(count)]
        made = batches(sizes, max_tokens=max_tokens, max_sentences=max_sentences, required_batch_size_multiple=multiple)
        assert sorted(sizes) == sorted(size for batch in made for size in batch)
        assert all(made)
        assert max_tokens is None or all(len(batch) * max(batch) <= max_tokens for batch in made)
        assert max_sentences is None or all(len(batch) <= max_sentences for batch in made)


def test_a_text_longer_than_a_batch_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"--max-tokens: needs the tokens of the longest text .*; got 3 \(.*\)\. Use more"
    ):
        batches([2, 5], max_tokens=3)


@pytest.mark.parametrize("rows", [4, 16, 20])
def test_every_sentence_is_in_one_batch_of_a_fixed_shape(rows: int) -> None:
    for count in (1, 20, 99):
        sizes = np.array(sorted(random.randint(1, 40) for _ in range(count)))
        shapes = [(rows, 10), (rows, 25), (rows, 40)]
        made = data_utils.batch_by_size(np.arange(count), sizes.__getitem__, sizes, 10000, rows, 8, fixed_shapes=shapes)
        assert sorted(index for batch in made for index in batch) == list(range(count))


@pytest.mark.parametrize(
    ("rows", "tokens", "expected"),
    [(20, None, 20), (5, None, 5), (64, None, 64), (None, 39, 32), (64, 39, 32), (37, 39, 37)],
)
def test_a_batch_has_the_rows_of_batch_size(rows: int | None, tokens: int | None, expected: int) -> None:
    """Multiples of 8 where tokens cut it."""
    made = batches([1] * 200, max_tokens=tokens, max_sentences=rows, required_batch_size_multiple=8)
    assert [len(batch) for batch in made[:-1]] == [expected] * (len(made) - 1)


def eval_lm(sizes: list[int], break_mode: str, **kwargs: Any) -> int:
    """How many of the blocks of these sizes fairseq-eval-lm would score."""
    dictionary = Dictionary()
    task = LanguageModelingTask(argparse.Namespace(sample_break_mode=break_mode, tokens_per_sample=35), dictionary)
    return sum(len(batch) for batch in task.eval_lm_dataloader(dataset=Sentences(sizes), num_workers=0, **kwargs))


def test_eval_lm_refuses_blocks_that_the_model_cannot_read() -> None:
    refused = r"--tokens-per-sample: needs blocks of at most 20 .* got 2 of 3 .* up to 35 .* Use --tokens-per-sample 20"
    with pytest.raises(ValueError, match=refused):
        eval_lm([35, 35, 7], "none", max_positions=20)
    assert eval_lm([20, 20, 7], "none", max_positions=20) == 3
    assert eval_lm([35, 35, 7], "eos", max_positions=20) == 1
    with pytest.raises(ValueError, match=r"at most 20 tokens, .* got 2 of 2 .* --sample-break-mode none"):
        eval_lm([35, 21], "eos", max_positions=20)  # whose perplexity of no word fairseq prints as 1


# --- training --------------------------------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """One weight under two names, and another weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 2, bias=False)
        self.second = torch.nn.Linear(2, 2, bias=False)
        self.other = torch.nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        torch.nn.init.zeros_(self.first.weight)
        torch.nn.init.zeros_(self.other.weight)


@pytest.mark.parametrize("ema_fp32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_average_of_a_tied_weight_decays_once(ema_fp32: bool, dtype: torch.dtype) -> None:
    config = argparse.Namespace(
        ema_decay=0.9, ema_seed_model=None, ema_fp32=ema_fp32, ema_start_update=0, ema_update_freq=1
    )
    model = Tied().to(dtype)
    ema = EMA(model, config)
    torch.nn.init.ones_(model.first.weight)
    torch.nn.init.ones_(model.other.weight)
    for update, expected in ((1, 0.10), (2, 0.19)):
        ema.step(model, update)
        averages = [weight.weight.mean().item() for weight in (ema.model.first, ema.model.second, ema.model.other)]
        # bfloat16 has 8 bits of mantissa.
        assert averages == pytest.approx([expected] * 3, rel=1e-6 if dtype == torch.float32 else 1e-2)
    assert ema.model.first.weight is ema.model.second.weight


@pytest.mark.parametrize("criterion", ["cross_entropy", "tied_cross_entropy"])
def test_a_trainer_takes_a_namespace(criterion: str, lm_data: Path) -> None:
    """As programs older than fairseq's configuration by hydra give it."""
    flags = ("--task", "language_modeling", "--arch", "tied_lstm_lm", "--cpu", "--criterion", criterion)
    flags += ("--user-dir", str(Path(compat.__file__).parent.parent), "--sample-break-mode", "eos")
    arguments = options.parse_args_and_arch(options.get_training_parser(), [str(lm_data), *flags])
    cfg = convert_namespace_to_omegaconf(arguments)
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(arguments, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    assert trainer.cfg.common.cpu


@pytest.mark.parametrize("tie_proj", [False, True])
@pytest.mark.parametrize(("input_dim", "embed_dim"), [(16, 16), (16, 32), (32, 16)])
def test_tied_adaptive_softmax_takes_the_features_of_the_decoder(
    input_dim: int, embed_dim: int, tie_proj: bool
) -> None:
    embedding = AdaptiveInput(30, 1, input_dim, 2, embed_dim, [6, 10, 30])
    softmax = AdaptiveSoftmax(30, input_dim, [6, 10], 0.0, factor=2, adaptive_inputs=embedding, tie_proj=tie_proj)
    features = embedding(torch.arange(28).view(2, 14))
    log_probs = softmax.get_log_prob(features, None)
    assert log_probs.shape == (2, 14, 30)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 14))


def test_untied_adaptive_softmax_keeps_its_width() -> None:
    assert AdaptiveSoftmax(30, 16, [6, 10], 0.0).head.in_features == 16


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_adaptive_loss_counts_every_word_but_padding(sentence_avg: bool) -> None:
    padding, cutoffs = 1, [6, 10, 30]
    softmax = AdaptiveSoftmax(30, 16, cutoffs, 0.0).double()
    features = torch.randn(4, 8, 16, dtype=torch.float64, requires_grad=True)
    target = torch.arange(2, 34).view(4, 8)  # every word but the special ones; 7 and 11 are second in their bands
    target[target > 29] = padding
    model = mock.Mock(return_value=(features, {}), decoder=mock.Mock(adaptive_softmax=softmax))
    model.get_targets = lambda sample, _: sample["target"]
    task = mock.Mock(target_dictionary=mock.Mock(pad=lambda: padding))
    criterion, sample = AdaptiveLoss(task, sentence_avg), {"net_input": {}, "target": target}

    head = softmax.head(features).log_softmax(2)
    tails = [tail(features).log_softmax(2) + head[:, :, [6 + index]] for index, tail in enumerate(softmax.tail)]
    log_probs = torch.cat([head[:, :, :6], *tails], 2)
    expected = -log_probs.gather(2, target.unsqueeze(2)).squeeze(2).masked_fill(target.eq(padding), 0)
    loss, sample_size, log = criterion(model, sample)
    torch.testing.assert_close(loss, expected.sum().view(1))
    assert (sample_size, log["ntokens"], log["nsentences"]) == (4 if sentence_avg else 28, 28, 4)
    torch.testing.assert_close(criterion(model, sample, reduce=False)[0], expected.flatten())

    gradient = torch.autograd.grad(loss, features)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), features)[0])


@pytest.mark.parametrize("ours", [False, True])
def test_the_first_nan_of_a_diverged_translation_is_found(ours: bool, caplog: pytest.LogCaptureFixture) -> None:
    model = families.build("transformer", ours=ours)
    with NanDetector(model):
        (families.scores(model, "transformer").sum() * math.nan).backward()
    assert "NaN detected in output of decoder.output_projection" in caplog.text


@pytest.mark.parametrize("conv_bias", [False, True])
def test_a_dynamic_convolution_holds_no_leftover_of_memory(conv_bias: bool) -> None:
    convolution = DynamicConv_scripatable(16, kernel_size=3, num_heads=2, conv_bias=conv_bias)
    torch.nn.init.constant_(convolution.conv_bias, math.nan)
    convolution.reset_parameters()
    assert convolution.conv_bias.tolist() == [[[0.0] * 16]]
    assert convolution.conv_bias.requires_grad == conv_bias


@pytest.mark.parametrize("words", [1, 2, 6, 7, 9])
def test_a_dynamic_convolution_has_the_same_filters_in_short_batches(words: int) -> None:
    """Those of a longer batch, of a search, and of fairseq's other class, with kernels of 7 words."""
    torch.manual_seed(1)
    options: dict[str, Any] = {"kernel_size": 7, "num_heads": 2, "padding_l": 6, "weight_softmax": True}
    convolution = DynamicConv_scripatable(8, **options).double()
    other = DynamicConv1dTBC(8, **options).double()
    other.weight_linear.load_state_dict(convolution.weight_linear.state_dict())
    x, steps = torch.randn(9, 3, 8, dtype=torch.double), {}
    expected = other(x, unfold=False)[:words]
    torch.testing.assert_close(convolution(x[:words]), expected)
    torch.testing.assert_close(torch.jit.script(convolution)(x[:words]), expected)
    torch.testing.assert_close(torch.cat([convolution(x[t : t + 1], steps) for t in range(words)]), expected)


@pytest.mark.parametrize(
    ("metric", "task"),
    [
        ("bleu", types.SimpleNamespace(cfg=argparse.Namespace(eval_bleu=True))),
        ("accuracy", types.SimpleNamespace(cfg=argparse.Namespace(), post_validate=print)),
    ],
)
def test_a_metric_that_the_first_batch_lacks_may_be_logged(metric: str, task: types.SimpleNamespace) -> None:
    dataset = types.SimpleNamespace(disable_validation=False, valid_subset="valid")
    iterator = types.SimpleNamespace(first_batch={})
    trainer = mock.Mock(task=task, cfg=types.SimpleNamespace(dataset=dataset), get_valid_iterator=lambda _: iterator)
    settings = argparse.Namespace(best_checkpoint_metric=metric)
    assert flags.validations_work(lambda *_: "loaded", settings, trainer) == "loaded"
    for asked in ("post_validate", "cfg"):
        vars(task).pop(asked, None)
    task.cfg = argparse.Namespace()
    with pytest.raises(ValueError, match=f"--best-checkpoint-metric: needs .*loss.*; got '{metric}'"):
        flags.validations_work(lambda *_: "loaded", settings, trainer)


# --- precision -------------------------------------------------------------------------------------------------------


def amp_optimizer(weight: torch.nn.Parameter, **common: Any) -> AMPOptimizer:
    settings = {"fp16_init_scale": 4, "amp_init_scale": 128, "amp_scale_window": None, "min_loss_scale": 1e-4, **common}
    of_sgd = {"_name": "sgd", "lr": [1.0], "momentum": 0.0, "weight_decay": 0.0}
    cfg = OmegaConf.create({"common": settings, "optimizer": of_sgd})
    return AMPOptimizer.build_optimizer(cfg, [weight])


def test_amp_divides_gradients_by_the_loss_scale_once() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = amp_optimizer(weight)
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    optimizer.backward(3 * weight.sum())
    assert optimizer.clip_grad_norm(0.0).item() == 3.0
    optimizer.step()
    assert weight.item() == -2.0


@pytest.mark.parametrize("kind", ["bands", "characters"])
def test_words_are_embedded_under_autocast(kind: str) -> None:
    words = Dictionary()
    for word in ("ab", "ba", "c", "cab"):
        words.add_symbol(word)
    torch.manual_seed(1)
    if kind == "bands":
        embed: torch.nn.Module = AdaptiveInput(len(words), words.pad(), 8, 2.0, 8, [5, len(words)])
    else:
        embed = CharacterTokenEmbedder(words, [(1, 8), (2, 8)], 4, 8, 2)
    tokens = torch.tensor([[4, 5, 6, words.eos()], [7, 4, words.eos(), words.pad()]])
    alone = embed(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        found = embed(tokens)
    assert found.dtype == torch.float32
    assert torch.equal(found, alone)
    found.sum().backward()
    assert all(weight.grad is not None for weight in embed.parameters())


@pytest.mark.parametrize("count", [1, 2])
def test_gradients_on_the_cpu_are_clipped_beside_a_gpu(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    parameters = [torch.nn.Parameter(torch.zeros(4)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.ones(4)
    assert utils.clip_grad_norm_(iter(parameters), 1.0).item() == pytest.approx(2 * count**0.5)
    for parameter in parameters:
        torch.testing.assert_close(parameter.grad, torch.full((4,), 0.5 / count**0.5))


@pytest.mark.parametrize(("window", "grown"), [(None, {}), (500, {"growth_interval": 500})])
def test_amp_follows_its_flags(window: int | None, grown: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *args, **kwargs: (args, kwargs))
    found = amp_optimizer(torch.nn.Parameter(torch.ones(1)), amp_init_scale=1024, amp_scale_window=window)
    assert found.scaler == (("cuda",), {"init_scale": 1024, **grown})


# --- noise -----------------------------------------------------------------------------------------------------------


def test_only_the_known_warnings_are_silenced() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.resetwarnings()
        noise.quiet_warnings()
        warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then ...", stacklevel=1)
        warnings.warn("RNN module weights are not part of single contiguous chunk of memory.", stacklevel=1)
        warnings.warn("\n'config' is validated against ConfigStore schema with the same name.", stacklevel=1)
        warnings.warn("the loss is not finite", stacklevel=1)
    assert [str(warning.message) for warning in heard] == ["the loss is not finite"]


def test_the_root_logger_is_not_left_at_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(noise, "CHOSEN", logging.WARNING)
    monkeypatch.setattr(root, "level", logging.DEBUG)
    noise.quiet_warnings()
    assert root.level == logging.INFO
    monkeypatch.setattr(root, "level", logging.DEBUG)
    with monkeypatch.context() as asked:
        asked.setenv("LOGLEVEL", "debug")
        noise.quiet_warnings()
    monkeypatch.setattr(noise, "CHOSEN", logging.DEBUG)  # by a program, before it imports fairseq
    noise.quiet_warnings()
    assert root.level == logging.DEBUG


def test_functions_in_fairseqs_place_take_its_keywords() -> None:
    of_two = {"tasks_fit_their_model", "checkpoint_errors"}  # of functions that name an argument differently
    gc.unfreeze()  # what conftest.py has hidden
    wrappers = [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]
    gc.freeze()
    wrappers = [each for each in wrappers if each.__code__.co_filename == wrapping.__file__]
    found = [inspect.getclosurevars(each).nonlocals for each in wrappers if each.__code__.co_name == "wrapper"]
    assert len(found) > 50
    for each in found:
        taken, own = (inspect.signature(each[key]).parameters.values() for key in ("original", "function"))
        names = [parameter.name for parameter in list(own)[1:] if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        if each["function"].__name__ not in of_two and all(each.kind is not each.VAR_POSITIONAL for each in taken):
            assert {parameter.name for parameter in taken}.issuperset(names), each["function"]


def test_every_entry_says_when_it_can_go() -> None:
    for entry in compat.ENTRIES:
        assert "Without it: " in entry.__doc__, entry.__name__
        assert "Goes " in entry.__doc__, entry.__name__
