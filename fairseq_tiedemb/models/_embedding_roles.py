"""Builds the tables of an encoder-decoder model, shared or separate."""

from typing import Any, NamedTuple

from ..embedding import SharedEmbedding


class EmbeddingRoles(NamedTuple):
    """The table of each role; roles that share a table hold the same object.

    Attributes:
        source: encoder input.
        target: decoder input.
        output: decoder output, with the output bias.
    """

    source: SharedEmbedding
    target: SharedEmbedding
    output: SharedEmbedding


def embedding_roles(
    *,
    source_size: int,
    target_size: int,
    source_dim: int,
    target_dim: int,
    output_dim: int,
    padding_idx: int,
    share_decoder: bool,
    share_all: bool,
    method: str = "plain",
    std: float = 0.01,
) -> EmbeddingRoles:
    """Builds the tables of an encoder-decoder model and decides what they share.

    ``share_all`` makes one table for all three roles (three-way weight tying), ``share_decoder`` one for the decoder's
    two roles (weight tying). Models check sizes first, to name their flags. Source: Press & Wolf 2016, sections 3 and
    4.

    Raises:
        ValueError: if roles that share a table differ in size.
    """
    sizes = {
        "source": (source_size, source_dim),
        "target": (target_size, target_dim),
        "output": (target_size, output_dim),
    }
    shared = ("source", "target", "output") if share_all else ("target", "output") if share_decoder else ()
    if len({sizes[role] for role in shared}) > 1:
        got = ", ".join(f"{role} {sizes[role]}" for role in shared)
        raise ValueError(f"shared embeddings: need one (vocabulary, width) for all roles; got {got}. Use equal sizes.")

    def table(role: str) -> SharedEmbedding:
        options: dict[str, Any] = {"method": method, "std": std}
        if role == "output":
            return SharedEmbedding(*sizes[role], padding_idx, bias=True, embeds="target" in shared, **options)
        return SharedEmbedding(*sizes[role], padding_idx, scores=False, **options)

    output = table("output")
    target = output if "target" in shared else table("target")
    source = output if "source" in shared else table("source")
    return EmbeddingRoles(source, target, output)
