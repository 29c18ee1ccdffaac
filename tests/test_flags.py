"""Flags of fairseq's commands that stopped it, or left a model half described."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.modules import AdaptiveSoftmax
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim.lr_scheduler.fixed_schedule import FixedLRScheduleConfig
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf, open_dict

import fairseq_tiedemb.plugin  # noqa: F401 (mends fairseq)

from .conftest import USER_DIR, RunCommand, configuration
from .models import families, recurrent_lms
from .models.common import dictionary
from .untrained import write_checkpoint


def parsed(*words: str) -> Any:
    return options.parse_args_and_arch(options.get_training_parser(), ["data", *words])


@pytest.mark.parametrize(
    ("flags", "widths"),
    [
        ("--arch lstm_nmt_twwt --decoder-embed-dim 32", (32, 32, 32)),
        ("--arch lstm_nmt_twwt --encoder-embed-dim 32", (32, 32, 32)),
        ("--arch dl4mt --share-decoder-input-output-embed --decoder-out-embed-dim 32", (500, 32, 32)),
        ("--arch lstm_nmt_wt --decoder-embed-dim 32 --decoder-out-embed-dim 16", (512, 32, 16)),
        ("--arch lstm_nmt_wt --decoder-embed-dim 32 --projection", (512, 32, 512)),
        ("--arch lstm_nmt --decoder-embed-dim 32", (512, 32, 512)),
    ],
)
def test_widths_of_shared_tables_follow_the_one_that_is_given(flags: str, widths: tuple[int, ...]) -> None:
    model = convert_namespace_to_omegaconf(parsed(*flags.split())).model
    assert (model.encoder_embed_dim, model.decoder_embed_dim, model.decoder_out_embed_dim) == widths


def test_so_do_those_of_a_language_model() -> None:
    for arch, width in (("zaremba_lm_small_wt", 32), ("zaremba_lm_small_wt_pr", 200)):
        args = parsed("--arch", arch, "--decoder-hidden-size", "32")
        assert convert_namespace_to_omegaconf(args).model.decoder_embed_dim == width


def test_a_beam_without_hypotheses_is_refused(words: Dictionary) -> None:
    with pytest.raises(ValueError, match="--beam: needs 1 or more; got 0. Use 1 for greedy search."):
        SequenceGenerator([], words, beam_size=0)


def test_a_language_model_of_other_words_is_refused(words: Dictionary) -> None:
    """fairseq scores each word by its number."""
    [same, other] = (recurrent_lms.build(words=each) for each in (words, dictionary(len(words) + 1)))
    translation = families.build("transformer", source=words, target=words)
    SequenceGenerator([translation], words, lm_model=same)
    for model, got in ((other, f"one of {len(words) + 1}, others"), (translation, "TiedTransformer")):
        with pytest.raises(ValueError, match=f"--lm-path: needs a language model of .*; got {got}.* Use one that was"):
            SequenceGenerator([translation], words, lm_model=model)


@pytest.mark.parametrize("size", [2, 3])
def test_an_ngram_is_not_repeated(size: int) -> None:
    """`--no-repeat-ngram-size`: after 5 6 7 5 6, the word 7 would repeat two words, and three."""
    tokens = torch.tensor([[2, 5, 6, 7, 5, 6, 1, 1], [2, 5, 6, 5, 7, 7, 1, 1]])  # and padding, as fairseq's search has
    blocked = NGramRepeatBlock(size)(tokens, torch.zeros(2, 9), 1, 2, step=5).isinf()
    assert [row.nonzero().flatten().tolist() for row in blocked] == [[7], [7] if size == 2 else []]


@pytest.mark.parametrize("flags", ["--bf16 --fp16", "--bf16 --memory-efficient-fp16", "--tpu --fp16"])
def test_two_precisions_are_refused(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--fp16: needs neither --bf16 nor --tpu; got one of them"):
        parsed("--arch", "lstm_nmt", *flags.split())
    monkeypatch.setattr("fairseq_tiedemb.compat.trainer.find_spec", lambda name: name)
    with pytest.raises(ValueError, match="Cannot combine --fp16 and --tpu"):  # where --bf16 means a TPU
        parsed("--arch", "lstm_nmt", *flags.split())


def test_writing_in_the_background_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--arch", "lstm_nmt", "--write-checkpoints-asynchronously")
    monkeypatch.setattr("fairseq_tiedemb.compat.flags.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="--write-checkpoints-asynchronously: needs the package iopath; got a Python"):
        parsed(*flags)
    monkeypatch.setattr("fairseq_tiedemb.compat.flags.find_spec", lambda name: name)
    assert parsed(*flags).write_checkpoints_asynchronously


@pytest.mark.parametrize("window", [-4, 30, 31])
def test_a_context_window_leaves_words(window: int) -> None:
    def parse(window: int) -> Any:
        flags = ("--path", "x.pt", "--tokens-per-sample", 30, "--context-window", window)
        return configuration(options.get_eval_lm_parser(), Path("data"), *flags)

    message = f"^--context-window: needs 0 or more, and less than the 30 of --tokens-per-sample; got {window}. Use f"
    with pytest.raises(ValueError, match=message):
        parse(window)
    assert parse(29).eval_lm.context_window == 29


def test_references_have_hard_alignments_alone() -> None:
    flags = ("--path", "x.pt", "--score-reference", "--print-alignment")
    with pytest.raises(ValueError, match="^--print-alignment: needs hard with --score-reference; got soft. Use hard.$"):
        configuration(options.get_generation_parser(), Path("data"), *flags, "soft")
    assert configuration(options.get_generation_parser(), Path("data"), *flags).generation.print_alignment == "hard"


def test_a_plugins_model_takes_the_section_of_fairseqs() -> None:
    """As in the second job of a sweep by fairseq-hydra-train, which has imported the plugin."""
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.model = TransformerLanguageModelConfig(_name="tied_transformer_lm", decoder_layers=3)
    with open_dict(cfg.model):
        cfg.model.sharing_method = "cosine"
    cfg.optimization.lr = [0.5]
    cfg.lr_scheduler = FixedLRScheduleConfig(_name="fixed")
    add_defaults(cfg)
    model = cfg.model
    assert (model.decoder_layers, model.sharing_method, model.decoder_input_dim) == (3, "cosine", 512)
    assert cfg.lr_scheduler.lr == [0.5]  # of another section


def test_validation_takes_the_task_of_the_checkpoint(run_command: RunCommand, lm_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    write_checkpoint(path, lm_data, *"--arch zaremba_lm_small --decoder-embed-dim 8 --decoder-hidden-size 8".split())
    process = run_command("fairseq_cli.validate", lm_data, "--user-dir", USER_DIR, "--path", path, "--batch-size", 4)
    assert "valid on 'valid' subset | loss " in process.stdout + process.stderr


def test_gradients_of_all_log_probabilities_of_an_adaptive_softmax() -> None:
    torch.manual_seed(1)
    softmax = AdaptiveSoftmax(12, 8, [4, 8], dropout=0.0).double()
    features = torch.randn(2, 3, 8, dtype=torch.double, requires_grad=True)
    log_probs = softmax.get_log_prob(features, None)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3, dtype=torch.double))
    assert torch.autograd.gradcheck(lambda each: softmax.get_log_prob(each, None), features)


def test_a_shared_input_table_beside_an_adaptive_softmax_loads(words: Dictionary) -> None:
    cfg = TransformerConfig()
    cfg.decoder.embed_dim = cfg.decoder.input_dim = cfg.decoder.output_dim = 8
    cfg.decoder.layers, cfg.share_decoder_input_output_embed = 0, True
    cfg.adaptive_softmax_cutoff, cfg.max_target_positions = "4,6", 10
    decoder = TransformerDecoderBase(cfg, words, torch.nn.Embedding(len(words), 8, padding_idx=1))
    state = {f"decoder.{name}": value for name, value in decoder.state_dict().items()}
    names = sorted(state)
    decoder.upgrade_state_dict_named(state, "decoder")
    assert sorted(state) == names


@pytest.fixture
def words() -> Dictionary:
    dictionary = Dictionary()
    for word in "abcdefgh":
        dictionary.add_symbol(word)
    return dictionary
