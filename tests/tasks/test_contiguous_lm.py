"""`contiguous_lm`: what it refuses, and the state that goes into a checkpoint and comes back."""

import multiprocessing
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.sgd import SGD

from fairseq_tiedemb.criterions.cross_entropy import TiedCrossEntropy
from fairseq_tiedemb.models._stream_lm import StreamLM
from fairseq_tiedemb.tasks.contiguous_lm import ContiguousLMTask

from ..models.common import grown
from ..models.recurrent_lms import build
from ..processes import in_two_processes
from .streams import WORDS, batches, stream, task_with


def configuration(data: Path, *flags: str) -> Any:
    """What fairseq-train makes of its command line."""
    arguments = [str(data), "--task", "contiguous_lm", *flags]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def set_up(data: Path, *flags: str) -> ContiguousLMTask:
    return tasks.setup_task(configuration(data, "--arch", "tied_lstm_lm", *flags).task)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--sample-break-mode complete", r"--sample-break-mode: needs none \(one stream\) or eos .* got complete. Use"),
        ("--sample-break-mode complete_doc", "got complete_doc. Use --task language_modeling"),
        ("--tokens-per-sample 0", "--tokens-per-sample: needs at least 1 token of a row in a batch; got 0. Use 20"),
        ("--tokens-per-sample -5", "got -5. Use 20, say"),
        ("--add-bos-token", "--add-bos-token: needs to be left out with one stream of text; got True. Use --sample-b"),
        ("--self-target", "--self-target: needs to be left out .* got True"),
        ("--past-target", "--past-target: needs to be left out .* got True"),
        ("--output-dictionary-size 10", "--output-dictionary-size: needs to be left out .* got 10. Use"),
        ("--shorten-method truncate", "--shorten-method: needs to be left out .* got truncate. Use"),
        ("--pad-to-fixed-length", "--pad-to-fixed-length: needs to be left out .* got True"),
        ("--pad-to-fixed-bsz", "--pad-to-fixed-bsz: needs to be left out .* got True"),
    ],
)
def test_options_that_do_not_go_with_a_stream_are_refused(flags: str, message: str, lm_data: Path) -> None:
    with pytest.raises(ValueError, match=message):
        set_up(lm_data, *flags.split())


def test_sentences_take_options_of_samples(lm_data: Path) -> None:
    task = set_up(lm_data, "--sample-break-mode", "eos", "--add-bos-token", "--output-dictionary-size", "10")
    assert not task.one_stream
    assert len(task.target_dictionary) == 10


@pytest.mark.parametrize("arch", ["transformer_lm", "lstm_lm"])
def test_a_model_that_carries_no_state_is_refused(arch: str, lm_data: Path) -> None:
    flags = ["--arch", arch, "--decoder-embed-dim", "8"]
    flags += ["--decoder-attention-heads", "2"] if arch == "transformer_lm" else ["--decoder-out-embed-dim", "8"]
    cfg = configuration(lm_data, *flags)
    with pytest.raises(ValueError, match="--task contiguous_lm: needs a language model of .*; got .*LanguageModel. Us"):
        tasks.setup_task(cfg.task).build_model(cfg.model)
    cfg.task.sample_break_mode = "eos"
    tasks.setup_task(cfg.task).build_model(cfg.model)


def test_a_split_that_is_not_there_is_named(lm_data: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"split other: needs .* {lm_data}/other.bin, .*; found none. Use"):
        set_up(lm_data).load_dataset("other")


def test_an_empty_split_is_named(lm_data: Path, tmp_path: Path) -> None:
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "train.bin"))
    builder.finalize(str(tmp_path / "train.idx"))
    shutil.copy(lm_data / "dict.txt", tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path}/train.bin: needs at least one sentence; got an empty file"):
        set_up(tmp_path).load_dataset("train")


def test_one_stream_has_no_context_window() -> None:
    with pytest.raises(ValueError, match="--context-window: needs 0 with one stream of text, .* got 5. Leave it out"):
        task_with(5).eval_lm_dataloader(stream(20), context_window=5)


def test_sentences_have_the_context_window_of_fairseqs_task(lm_data: Path) -> None:
    def rows_of(*flags: str) -> list[list[list[int]]]:
        task = set_up(lm_data, *flags, "--sample-break-mode", "eos", "--tokens-per-sample", "40")
        task.load_dataset("valid")
        rows = task.eval_lm_dataloader(task.dataset("valid"), batch_size=2, max_positions=50, context_window=4)
        return [batch["net_input"]["src_tokens"].tolist() for batch in rows]

    assert rows_of() == rows_of("--task", "language_modeling")


def test_generation_needs_sentences() -> None:
    task = task_with(5)
    task.datasets["test"] = stream(20)
    with pytest.raises(ValueError, match="--sample-break-mode: .* got none. Use --samp"):
        task.build_generator([build(words=WORDS)], SimpleNamespace())


# --- the state in a checkpoint ---------------------------------------------------------------------------------------


def training(rows: int) -> tuple[ContiguousLMTask, StreamLM, Any]:
    """A task, a model, and a function that trains it with a batch and returns the loss."""
    task = task_with(5, batch_size=rows)
    model = grown(build(words=WORDS, dropout=0.3))
    criterion = TiedCrossEntropy(task, sentence_avg=True, label_smoothing=0.0)
    optimizer = SGD(SimpleNamespace(lr=[0.1], momentum=0.0, weight_decay=0.0), list(model.parameters()))

    def step(batch: dict[str, Any], update: int) -> torch.Tensor:
        torch.manual_seed(update)  # as fairseq's trainer does
        optimizer.zero_grad()
        loss, _, _ = task.train_step(batch, model, criterion, optimizer, update)
        optimizer.step()
        return loss.detach()

    return task, model, step


def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    text = batches(task_with(5), stream(100), max_sentences=3)
    task, model, step = training(3)
    for update in range(3):
        step(text[update], update)
    torch.save({"task": task.get_checkpoint_dict(), "model": model.state_dict()}, tmp_path / "checkpoint.pt")
    expected = [step(text[update], update) for update in range(3, 6)]

    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    other_task, other_model, other_step = training(3)
    other_model.load_state_dict(saved["model"])
    other_task.set_checkpoint_dict(saved["task"]["ContiguousLMTask"])
    found = [other_step(text[update], update) for update in range(3, 6)]
    assert all(map(torch.equal, expected, found))
    for name, value in model.state_dict().items():
        assert torch.equal(other_model.state_dict()[name], value), name


def test_states_of_processes_meet_in_a_checkpoint_only(tmp_path: Path) -> None:
    in_two_processes(_save_in_mid_epoch, tmp_path)


def _save_in_mid_epoch(rank: int) -> None:
    task, model, step = training(3)
    gathered = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "all_gather", lambda *_: gathered.append(1))
        text = batches(task_with(5), stream(100), max_sentences=3, num_shards=2, shard_id=rank)
        for update in range(2):
            step(text[update], update)
    assert not gathered
    with pytest.raises(RuntimeError, match=r"got the state of one"):
        task.get_checkpoint_dict()
    # The process that does not write comes no further; fairseq looks for more in the one that does.
    trainer = SimpleNamespace(
        task=task,
        data_parallel_rank=1,
        consolidate_optimizer=lambda: None,
        should_save_checkpoint_on_current_rank=False,
        always_call_state_dict_during_save_checkpoint=False,
    )
    in_mid_epoch = SimpleNamespace(end_of_epoch=lambda: False)
    for no_save in (True, False):
        checkpoint_utils.save_checkpoint(SimpleNamespace(no_save=no_save), trainer, in_mid_epoch, None)
    saved = task.get_checkpoint_dict()["ContiguousLMTask"]
    assert (saved["position"], saved["state"].shape[1]) == (10, 6)
    assert torch.equal(saved["state"].chunk(2, 1)[rank], model.carried_state()[1])
    assert not torch.equal(*saved["state"].chunk(2, 1))
    step(text[2], 2)
    with pytest.raises(RuntimeError, match="got the state of one"):  # and not the last checkpoint's
        task.get_checkpoint_dict()


def test_a_checkpoint_at_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    text = batches(task_with(5), stream(100), max_sentences=3)
    task, model, step = training(3)
    for update, batch in enumerate(text):
        step(batch, update)
    assert task.get_checkpoint_dict() == {"ContiguousLMTask": {}}  # so that the rows may be others
    _, other_model, other_step = training(3)
    other_model.load_state_dict(model.state_dict())
    for update, batch in enumerate(text[:2], start=len(text)):
        assert torch.equal(other_step(batch, update), step(batch, update))
    assert task.get_checkpoint_dict()["ContiguousLMTask"]["position"] == 10


def test_without_its_state_training_cannot_go_on_in_mid_epoch() -> None:
    text = batches(task_with(5), stream(100), max_sentences=3)
    _, _, step = training(3)
    with pytest.raises(ValueError, match="needs the batch at position 0, .* got position 15.*--reset-dataloader"):
        step(text[3], 3)


def test_another_number_of_rows_is_refused() -> None:
    task, _, step = training(3)
    step(batches(task_with(5), stream(100), max_sentences=3)[0], 0)
    other_task, _, _ = training(4)
    with pytest.raises(ValueError, match="--batch-size: needs 3 rows over all processes, .* got 4. Use 3 in total, or"):
        other_task.set_checkpoint_dict(task.get_checkpoint_dict()["ContiguousLMTask"])


def test_a_text_is_cut_into_rows_not_tokens() -> None:
    with pytest.raises(ValueError, match="--batch-size: needs the number of rows .* got --max-tokens 400 alone"):
        task_with(5).get_batch_iterator(stream(100), max_tokens=400)
    with pytest.raises(ValueError, match=r"--max-tokens, .* got 14. Use smaller"):
        task_with(5).get_batch_iterator(stream(100), max_tokens=14, max_sentences=3)
    assert len(batches(task_with(5), stream(100), max_tokens=15, max_sentences=3, num_shards=2)) == 4


def test_data_workers_end_with_their_epoch() -> None:
    settings = {"max_sentences": 3, "num_workers": 1, "data_buffer_size": 2}
    others = set(multiprocessing.active_children())  # of tests before
    epochs = task_with(5).get_batch_iterator(stream(100), **settings)
    for _ in range(2):
        assert len(list(epochs.next_epoch_itr(shuffle=False))) == 7
        deadline = time.monotonic() + 60  # fairseq reads in a thread, which ends by itself
        while not others.issuperset(multiprocessing.active_children()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert others.issuperset(multiprocessing.active_children())


def test_sentences_have_no_state_to_keep() -> None:
    task, _, step = training(3)
    step(batches(task_with(5), stream(100), max_sentences=3)[0], 0)
    carried = task.get_checkpoint_dict()["ContiguousLMTask"]
    assert set(carried) == {"position", "state", "chunk", "random_by"}
    other_task, _, other_step = training(4)
    other_task.args.sample_break_mode = "eos"
    with pytest.raises(
        ValueError, match="--sample-break-mode: needs none in the middle of an epoch, .* got eos. Use none"
    ):
        other_task.set_checkpoint_dict(carried)
    other_task.set_checkpoint_dict({})
    batch = batches(task_with(5), stream(100), max_sentences=4)[0]
    del batch["net_input"]["stream_position"]
    other_step(batch, 1)
    assert other_task.get_checkpoint_dict() == {"ContiguousLMTask": {}}
