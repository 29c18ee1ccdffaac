"""The non-monotone trigger: when the average of the weights begins, and that it is the mean of all since."""

import re
from pathlib import Path

import pytest
import torch
from fairseq.optim import build_optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler
from omegaconf import OmegaConf

from fairseq_tiedemb.optim.non_monotone import NonMonotone

from ..conftest import InProcess

LM = "--arch zaremba_lm_small_wt --decoder-embed-dim 8 --decoder-hidden-size 8 --batch-size 6 --num-workers 0".split()
AVERAGED = [*LM, *"--no-epoch-checkpoints --lr-scheduler non_monotone --non-monotone 1 --lr 20".split()]


def schedule(n: int = 5, lr: float | list[float] = 30.0) -> NonMonotone:
    optimizer = build_optimizer(
        OmegaConf.create({"_name": "sgdw", "momentum": 0.0, "weight_decay": 0.0, "lr": [1.0]}),
        [torch.nn.Parameter(torch.ones(1))],
    )
    rates = lr if isinstance(lr, list) else [lr]
    return build_lr_scheduler(OmegaConf.create({"_name": "non_monotone", "non_monotone": n, "lr": rates}), optimizer)


@pytest.mark.parametrize(
    ("n", "losses", "epoch"),
    [
        (5, [9, 8, 7, 6, 5, 4, 3, 2], None),
        (2, [9, 5, 6, 7, 8], 4),  # 8 is above 5, the best before the last two
        (2, [9, 5, 6, 4, 5, 5, 5], 6),  # 5 is above 4 once that is three epochs ago
        (5, [5, 6, 7, 8, 9], None),  # too few
        (1, [5, 5, 5], None),  # as good is not worse
    ],
)
def test_when_the_average_begins(n: int, losses: list[float], epoch: int | None) -> None:
    found = schedule(n)
    for number, loss in enumerate(losses):
        found.end_epoch(loss, 10 * number)
    assert found.trigger == (None if epoch is None else 10 * epoch)
    assert found.step_update(7) == found.optimizer.get_lr() == 30.0
    other = schedule(n)
    other.load_state_dict(found.state_dict())
    assert (other.losses, other.trigger) == (losses, found.trigger)


def test_the_average_is_the_mean_of_all_weights_since() -> None:
    found, weights = schedule(), torch.randn(12, dtype=torch.float64)
    found.trigger = 4
    average = torch.zeros(())
    for number, weight in enumerate(weights, start=1):
        average = torch.lerp(weight, average.double(), found.decay_of_average(number))
        expected = weights[4:number].mean() if number > 4 else weight
        torch.testing.assert_close(average, expected)
    assert schedule().decay_of_average(100) == 0


def test_a_training_averages_from_its_trigger_on_and_resumes(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    def trained(name: str, epochs: int) -> tuple[dict, str]:
        # Of a loss that falls, and should rise, on every machine.
        flags = (*AVERAGED, "--lr", 0.5, "--maximize-best-checkpoint-metric", "--store-ema", "--max-epoch", epochs)
        text = train(lm_data, *flags, "--save-dir", tmp_path / name)
        return torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False), text

    whole, text = trained("whole", 6)
    state = whole["last_optimizer_state"], whole["optimizer_history"][-1]["lr_scheduler_state"]
    assert f"weights are averaged from update {state[1]['trigger']} on" in text
    parted, _ = trained("parted", 2)
    assert parted["optimizer_history"][-1]["lr_scheduler_state"]["losses"] == state[1]["losses"][:2]
    parted, _ = trained("parted", 6)
    assert parted["optimizer_history"][-1]["lr_scheduler_state"] == state[1]
    for name, value in whole["extra_state"]["ema"].items():
        assert torch.equal(parted["extra_state"]["ema"][name], value)
    assert not torch.equal(whole["extra_state"]["ema"]["decoder.output.bias"], whole["model"]["decoder.output.bias"])


@pytest.mark.parametrize("maximize", [(), ("--maximize-best-checkpoint-metric",)])
def test_what_is_worse_depends_on_the_metric(
    maximize: tuple[str, ...], train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    """A falling loss, taken for a metric that should rise, is worse in the third epoch than in the first."""
    command = ("--lr", 0.01, "--store-ema", "--max-epoch", 3, *maximize, "--save-dir", tmp_path)
    text = train(lm_data, *AVERAGED, *command)
    assert ("weights are averaged" in text) == bool(maximize)


def test_it_takes_over_from_another_schedule_and_has_the_rate_of_the_command(
    train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    train(lm_data, *LM, "--lr-scheduler", "fixed", "--lr", 1.5, "--max-epoch", 1, "--save-dir", tmp_path)
    for epoch, rate in ((2, 0.75), (3, 0.5)):
        command = (*AVERAGED[:-1], rate, "--store-ema", "--log-interval", 1, "--max-epoch", epoch)
        text = train(lm_data, *command, "--save-dir", tmp_path)
        rates = set(re.findall(r"\| lr ([\d.]+)|[ ,]lr=([\d.]+)", text))
        assert {float(one or other) for one, other in rates} == {rate}


def test_what_is_refused(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--lr-scheduler non_monotone: needs --store-ema, .*; got none. Use --store"):
        train(lm_data, *AVERAGED, "--max-epoch", 1, "--save-dir", tmp_path)
    with pytest.raises(ValueError, match="--ema-update-freq: needs 1 with --lr-scheduler non_monotone, .*; got 2. L"):
        train(lm_data, *AVERAGED, "--store-ema", "--ema-update-freq", 2, "--max-epoch", 1, "--save-dir", tmp_path)
    with pytest.raises(ValueError, match="--disable-validation: needs another .*; got --lr-scheduler non_monotone. L"):
        train(lm_data, *AVERAGED, "--store-ema", "--disable-validation", "--max-epoch", 1, "--save-dir", tmp_path)
    with pytest.raises(ValueError, match="--non-monotone: needs a positive whole number; got 0. Use 1 or more"):
        schedule(0)
    with pytest.raises(ValueError, match=r"--lr: needs one value .*; got \[1.0, 2.0\]. Use 1.0"):
        schedule(5, [1.0, 2.0])
