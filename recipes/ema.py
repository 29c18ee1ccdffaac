"""Saves the moving average of a training's weights (fairseq's --store-ema) as a checkpoint of its own.

python recipes/ema.py CHECKPOINT OUT
"""

import argparse
import pickle
import sys
from pathlib import Path
from typing import Any

import torch


def averaged(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Returns the checkpoint with its moving average as the model, and without the optimizer's state.

    Raises:
        ValueError: if the checkpoint has no moving average.
    """
    extra = dict(checkpoint.get("extra_state") or {})
    if "ema" not in extra:
        raise ValueError("needs a moving average; got a checkpoint without. Use one that was trained with --store-ema.")
    # Beside an average in half precision --ema-fp32 keeps the exact one.
    model = {**extra.pop("ema"), **extra.pop("ema_fp32_params", {})}
    return {**checkpoint, "model": model, "extra_state": extra, "last_optimizer_state": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    parser.add_argument("out", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    try:
        # fairseq's checkpoints hold its settings as objects.
        checkpoint = averaged(torch.load(arguments.checkpoint, map_location="cpu", weights_only=False))
    except (ValueError, OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        sys.exit(f"ema.py: {arguments.checkpoint}: {reason}")
    fresh = arguments.out.with_name(arguments.out.name + ".partial")
    torch.save(checkpoint, fresh)
    fresh.rename(arguments.out)


if __name__ == "__main__":
    main()
