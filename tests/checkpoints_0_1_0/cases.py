"""The checkpoints of version 0.1.0: with which flags each was trained, and the questions it is asked.

The flags are those of that version, and stay as they are: what they say must keep working too.
"""

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils

FOLDER = Path(__file__).parent
# `data` and this folder's files are named relatively, so that checkpoints hold no path of a machine.
TRANSLATION = "data/translation --task translation --dataset-impl raw --batch-size 10"
STREAM = "data/language_modeling --dataset-impl raw --batch-size 3 --tokens-per-sample 5"
SENTENCES = (
    "data/language_modeling --task language_modeling --dataset-impl raw --sample-break-mode eos --tokens-per-sample 20 "
    "--batch-size 10"
)
UPDATES = 3
RESUMED = 5

NMT = (
    f"{TRANSLATION} --encoder-embed-dim 4 --encoder-hidden-size 5 --decoder-embed-dim 4 --decoder-hidden-size 5 "
    "--decoder-out-embed-dim 4 --dropout 0"
)
ADAM = "--optimizer adam --lr 0.1 --clip-norm 1"  # large, so that every parameter matters after three updates
OURS = "--criterion tied_cross_entropy --label-smoothing 0.1"
NARROW = "--decoder-embed-dim 6 --decoder-hidden-size 6"
BANDS = "--criterion adaptive_loss --ddp-backend legacy_ddp --adaptive-softmax-cutoff 8,14 --adaptive-softmax-factor 2"
SIDES = " ".join(
    f"--{side}-layers 1 --{side}-embed-dim 4 --{side}-ffn-embed-dim 4 --{side}-attention-heads 2"
    for side in ("encoder", "decoder")
)
DECODER = "--decoder-layers 1 --decoder-embed-dim 4 --decoder-ffn-embed-dim 4 --decoder-attention-heads 2 "
DECODER += "--decoder-input-dim 4 --decoder-output-dim 4"
TRANSFORMER = f"{TRANSLATION} --arch tied_transformer {SIDES} --dropout 0 {ADAM}"
CONVOLUTION = "--input-dropout 0 --weight-dropout 0 --relu-dropout 0 --attention-dropout 0 --dropout 0"
LIGHTCONV = (
    f"{TRANSLATION} --arch tied_lightconv {SIDES} --encoder-conv-dim 4 --decoder-conv-dim 4 --encoder-kernel-size-list "
    f"[3] --decoder-kernel-size-list [3] {CONVOLUTION} {ADAM}"
)
TRANSFORMER_LM = f"{SENTENCES} --arch tied_transformer_lm {DECODER} --dropout 0 {ADAM}"
LIGHTCONV_LM = f"{SENTENCES} --arch tied_lightconv_lm {DECODER} --decoder-kernel-size-list [3] {CONVOLUTION} {ADAM}"
ADAPTIVE = "--adaptive-input --tie-adaptive-weights --adaptive-input-cutoff 8,14 --adaptive-input-factor 2"
TIED, THREE_WAY = "--share-decoder-input-output-embed", "--share-all-embeddings"

# name -> flags of fairseq-train
CASES = {
    "lstm_nmt": f"{NMT} --arch lstm_nmt {OURS} {ADAM}",
    "lstm_nmt_wt": f"{NMT} --arch lstm_nmt_wt --criterion cross_entropy --decoder-layers 2 {ADAM}",
    "lstm_nmt_twwt-cosine": f"{NMT} --arch lstm_nmt_twwt --sharing-method cosine {OURS} {ADAM}",
    "dl4mt_twwt": (
        f"{NMT} --arch dl4mt_twwt --criterion tied_cross_entropy --optimizer adadelta --lr 100 --sentence-avg"
    ),
    "dl4mt-tied-distance": f"{NMT} --arch dl4mt {TIED} --sharing-method distance {OURS} {ADAM}",
    "zaremba_lm_small": f"{STREAM} --arch zaremba_lm_small {NARROW}",
    "zaremba_lm_small_wt_pr": f"{STREAM} --arch zaremba_lm_small_wt_pr {NARROW}",
    "tied_lstm_lm-projection-square": (
        f"{STREAM} --task contiguous_lm --arch tied_lstm_lm {TIED} --projection --decoder-embed-dim 4 "
        f"--decoder-hidden-size 6 --sharing-method square-output --criterion tied_cross_entropy {ADAM}"
    ),
    "tied_lstm_lm-bands": (
        f"{STREAM} --task contiguous_lm --arch tied_lstm_lm {TIED} {NARROW} {BANDS} --sharing-method l2-input {ADAM}"
    ),
    "zaremba_lm_small-bands-untied": f"{STREAM} --arch zaremba_lm_small {NARROW} {BANDS}",
    "zaremba_lm_small_wt-bands": f"{STREAM} --arch zaremba_lm_small_wt {NARROW} {BANDS}",
    "gal_lm_large_wt": f"{STREAM} --arch gal_lm_large_wt {NARROW}",
    "highway_lm_8x890_wt": f"{STREAM} --arch highway_lm_8x890_wt --decoder-depth 2 {NARROW}",
    "tied_transformer-untied": f"{TRANSFORMER} {OURS}",
    "tied_transformer-all": f"{TRANSFORMER} {THREE_WAY} {OURS} --store-ema --ema-decay 0.5",
    "tied_transformer-tied-distance": f"{TRANSFORMER} {TIED} --sharing-method distance {OURS}",
    "tied_transformer-all-l2": f"{TRANSFORMER} {THREE_WAY} --sharing-method l2-input {OURS}",
    "tied_transformer-all-rank": f"{TRANSFORMER} {THREE_WAY} --embedding-rank 3 {OURS}",
    "tied_transformer-tied-rank-cosine": (
        f"{TRANSFORMER} {TIED} --embedding-rank 3 --sharing-method cosine "
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"
    ),
    "tied_lightconv-all": f"{LIGHTCONV} {THREE_WAY} {OURS}",
    "tied_lightconv-tied-square": (
        f"{LIGHTCONV} --encoder-conv-type lightweight --decoder-conv-type lightweight {TIED} "
        f"--sharing-method square-output {OURS}"
    ),
    "tied_transformer_lm": f"{TRANSFORMER_LM} {TIED} --criterion tied_cross_entropy",
    "tied_transformer_lm-bands": f"{TRANSFORMER_LM} {ADAPTIVE} {BANDS} --sharing-method cosine",
    "tied_transformer_lm-bands-projections": f"{TRANSFORMER_LM} {ADAPTIVE} {BANDS} --tie-adaptive-proj",
    "tied_lightconv_lm": f"{LIGHTCONV_LM} {TIED} --criterion tied_cross_entropy",
    "tied_lightconv_lm-bands": f"{LIGHTCONV_LM} {ADAPTIVE} {BANDS} --sharing-method l2-input",
}
# Their dropout cannot be left out, and its random numbers are not the same on every machine.
RANDOM = ("gal_lm_large_wt", "highway_lm_8x890_wt")
# Trained on in the quick tests: one of each family, and each kind of output layer.
RESUMES = (
    "lstm_nmt_wt",
    "zaremba_lm_small_wt_pr",
    "tied_lstm_lm-bands",
    "highway_lm_8x890_wt",
    "tied_transformer-all-rank",
    "tied_lightconv-tied-square",
    "tied_transformer_lm-bands",
    "tied_lightconv_lm",
)


def flags(name: str, updates: int) -> list[str]:
    """The command line of fairseq-train, without the plugin."""
    more = f"--max-update {updates} --no-epoch-checkpoints --num-workers 0 --log-format json --seed 1"
    return [*CASES[name].split(), *more.split()]


def unpack(name: str, path: Path) -> Path:
    """Writes a checkpoint of version 0.1.0 where fairseq can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.pt.xz").read_bytes()))
    return path


def machine() -> dict[str, str]:
    """On what the bits of a result depend: the kernels that torch and its libraries choose."""
    path = Path("/proc/cpuinfo")
    lines = [line.split(":") for line in path.read_text().splitlines() if ":" in line] if path.is_file() else []
    processor = {key.strip(): value.strip() for key, value, *_ in lines}
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "vendor": processor.get("vendor_id", ""),
        "family": processor.get("cpu family", ""),
    }


# Three sentences; the longest first, the others with padding, of which fairseq puts a source's at the left.
SOURCE = torch.tensor([[5, 6, 7, 8, 2], [1, 9, 10, 4, 2], [1, 1, 12, 19, 2]])
PREVIOUS = torch.tensor([[2, 8, 7, 6, 5], [2, 4, 10, 9, 1], [2, 19, 12, 1, 1]])
TARGET = torch.tensor([[8, 7, 6, 5, 2], [4, 10, 9, 2, 1], [19, 12, 2, 1, 1]])


def sample(translation: bool) -> dict[str, Any]:
    """The batch whose words are scored."""
    inputs = {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(1).sum(1), "prev_output_tokens": PREVIOUS}
    if not translation:
        inputs = {"src_tokens": PREVIOUS, "src_lengths": PREVIOUS.ne(1).sum(1)}
    return {
        "id": torch.arange(3),
        "nsentences": 3,
        "ntokens": int(TARGET.ne(1).sum()),
        "net_input": inputs,
        "target": TARGET,
    }


@torch.no_grad()
def answers(path: Path) -> dict[str, np.ndarray]:
    """What the model of a checkpoint makes of the batch.

    Args:
        path: of the checkpoint, in a folder with the name of the case.

    Returns:
        scores: as the model returns them (3, 5, V); a model with bands of words has none.
        log_p: log-probabilities (3, 5, V).
        ema_log_p: those of the moving average, if the checkpoint has one.
        loss: of the checkpoint's criterion, in nats, and its sample size.
    """
    name = path.parent.name
    data = {"data": str(FOLDER / CASES[name].split()[0])}
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=data)
    model.eval()
    batch = sample(translation=CASES[name].startswith(TRANSLATION))
    output = model(**batch["net_input"])
    found = {"log_p": model.get_normalized_probs(output, log_probs=True, sample=batch)}
    if "--adaptive-softmax-cutoff" not in CASES[name]:
        found["scores"] = output[0]
    loss, sample_size, _ = task.build_criterion(cfg.criterion).eval()(model, batch)
    found["loss"] = torch.tensor([float(loss), float(sample_size)], dtype=torch.float64)
    if "--store-ema" in CASES[name]:
        model.load_state_dict(checkpoint_utils.load_checkpoint_to_cpu(str(path))["extra_state"]["ema"])
        output = model(**batch["net_input"])
        found["ema_log_p"] = model.get_normalized_probs(output, log_probs=True, sample=batch)
    return {key: value.contiguous().numpy() for key, value in found.items()}
