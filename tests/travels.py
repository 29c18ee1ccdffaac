"""Ways on which a model's tables may come apart: copies, files, and what is loaded from them."""

import copy
import io
import pickle
from typing import TypeVar

import torch

Model = TypeVar("Model", bound=torch.nn.Module)


def through_pickle(model: Model) -> Model:
    return pickle.loads(pickle.dumps(model))


def through_file(model: Model) -> Model:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file, weights_only=True))
    return model


def through_assignment(model: Model) -> Model:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.nn.Module.load_state_dict(model, state, assign=True)
    return model


TRAVELS = (copy.deepcopy, through_pickle, through_file, through_assignment, torch.nn.Module.half)
