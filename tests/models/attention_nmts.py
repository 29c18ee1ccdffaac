"""Small attention NMT models for tests, built as fairseq builds them."""

from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models.attention_nmt import AttentionNMTModel

from .common import dictionary

WORDS = dictionary(17)


def build(
    preset: str, *, source: Dictionary = WORDS, target: Dictionary = WORDS, left_pad_target: object = False, **options
) -> AttentionNMTModel:
    """A model of a preset, with narrow layers and no dropout unless options say otherwise."""
    model = ARCH_MODEL_REGISTRY[preset]
    sizes = {"max_source_positions": 100, "max_target_positions": 100, "dropout": 0.0}
    sizes |= dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim", "decoder_out_embed_dim"), 6)
    sizes |= {"encoder_hidden_size": 5, "decoder_hidden_size": 5}
    cfg = getattr(model, "__dataclass")(**{**sizes, **options})
    cfg._name = preset
    task = SimpleNamespace(
        source_dictionary=source, target_dictionary=target, cfg=SimpleNamespace(left_pad_target=left_pad_target)
    )
    return model.build_model(cfg, task)
