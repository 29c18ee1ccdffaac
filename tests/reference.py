"""The equations of the papers, restated in the most boring way, in float64, importing nothing of the package.

Vectors are 1-d, one sentence and one word at a time; weights are dictionaries of arrays.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Weights = dict[str, Array]


def norm(row: Array) -> float:
    return math.sqrt(sum(float(x) ** 2 for x in row))


# Score of a word by the product of its row with the feature and by the row's norm, in numpy and torch alike. A new
# sharing method adds its line here and, if its input vectors are not the rows, to INPUT_VECTORS.
SCORES: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda inner, norm: inner,
    "l2-input": lambda inner, norm: inner / norm,
    "square-output": lambda inner, norm: inner / norm**2,
    "distance": lambda inner, norm: inner - norm**2 / 2,
    "cosine": lambda inner, norm: inner / norm,
}
INPUT_VECTORS: dict[str, Callable[[Any, Any], Any]] = {"l2-input": lambda row, norm: row / norm}
# The same of methods with parameters or a feature map: functions of the row, the feature and, by their names, the
# parameters' values for the word.
LEARNED_SCORES: dict[str, Callable[[Array, Array, Any], float]] = {
    "scaled": lambda row, h, own: own["scale"] * (row @ h),
    "scaled-words": lambda row, h, own: own["scales"] * (row @ h),
    "scaled-cosine": lambda row, h, own: own["temperature"] * (row @ h) / norm(row),
    "fixnorm": lambda row, h, own: own["g"] * (row @ h) / (norm(row) * norm(h)),
    "half-swap": lambda row, h, own: row @ np.concatenate([h[-(len(h) // 2) :], h[: -(len(h) // 2)]]),
}
LEARNED_VECTORS: dict[str, Callable[[Array, Any], Array]] = {
    "fixnorm": lambda row, own: own["radius"] * row / norm(row)
}


def input_vector(method: str, row: Array) -> Array:
    """Vector of the word with this row (papers: Press & Wolf 2016; Liu et al. 2020, eq. 19, 22, 26, 27)."""
    return INPUT_VECTORS.get(method, lambda row, norm: row)(row, norm(row))


def score(method: str, row: Array, feature: Array) -> float:
    """Score of the word with this row, without an output bias."""
    return SCORES[method](float(np.dot(row, feature)), norm(row))


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def smoothed_cross_entropy(scores: Array, target: int, epsilon: float) -> tuple[float, float]:
    """Label-smoothed loss and negative log-likelihood of one word: epsilon / (V - 1) for each wrong word."""
    log_p = np.log(softmax(scores))
    wrong = epsilon / (len(scores) - 1)
    weights = [1 - epsilon if word == target else wrong for word in range(len(scores))]
    return -sum(w * lp for w, lp in zip(weights, log_p, strict=True)), -log_p[target]


def augmented_loss(scores: Array, similar: Array, alpha: float, tau: float) -> float:
    """alpha KL(softmax(y / tau) || softmax(z / tau)) of a word with scores z, whose own vector scores y (Inan 2017)."""
    soft, p = softmax(similar / tau), softmax(scores / tau)
    return alpha * float(sum(q * math.log(q / r) for q, r in zip(soft, p, strict=True)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gru(x_share: Array, state: Array, recurrent: Array, bias: Array) -> Array:
    """One step; ``x_share`` is the input's share of r, z, n, ``bias`` the bias inside the reset product."""
    h = len(state)
    r = sigmoid(x_share[:h] + (recurrent @ state + bias)[:h])
    z = sigmoid(x_share[h : 2 * h] + (recurrent @ state + bias)[h : 2 * h])
    n = np.tanh(x_share[2 * h :] + r * (recurrent @ state + bias)[2 * h :])
    return (1 - z) * n + z * state


def lstm(x_share: Array, state: Array, recurrent: Array, bias: Array) -> Array:
    """One step; the state is h and c, one after the other."""
    size = len(state) // 2
    h, c = state[:size], state[size:]
    i, f, g, o = np.split(x_share + recurrent @ h + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c])


CELLS = {"gru": gru, "lstm": lstm}


def attention(query: Array, keys: Array, annotations: Array, vector: Array, bias: float) -> tuple[Array, Array]:
    """Weights and context: e_j = v . tanh(q + k_j) + c (Bahdanau et al. 2015)."""
    weights = softmax(np.array([vector @ np.tanh(query + key) + bias for key in keys]))
    return weights, sum(w * x for w, x in zip(weights, annotations, strict=True))


def encode(words: Sequence[int], w: Weights, cell: str, layers: int) -> Array:
    """Annotations of one source sentence, without padding."""
    step = CELLS[cell]
    x = [w["encoder.embed_tokens.weight"][word] for word in words]
    for layer in range(layers):
        outputs = {}
        for direction, order in (("forwards", range(len(x))), ("backwards", reversed(range(len(x))))):
            prefix = f"encoder.layers.{layer}.{direction}."
            recurrent = w[prefix + "weight_hh"]
            size = recurrent.shape[1]
            state = np.zeros(size if cell == "gru" else 2 * size)
            for j in order:
                share = w[prefix + "weight_ih"] @ x[j] + w[prefix + "bias"]
                state = step(share, state, recurrent, np.zeros(len(share)))
                outputs[direction, j] = state[:size]
        x = [np.concatenate([outputs["forwards", j], outputs["backwards", j]]) for j in range(len(x))]
    return np.array(x)


def translate_scores(
    source: Sequence[int], previous: Sequence[int], w: Weights, *, cell: str, encoder_layers: int, decoder_layers: int
) -> tuple[Array, Array]:
    """Scores (T, V) and attention weights (T, S) of DL4MT for one sentence (plain sharing, dropout off).

    ``previous[0]`` is the end of sentence, whose vector is zero.
    """
    step = CELLS[cell]
    annotations = encode(source, w, cell, encoder_layers)
    keys = [w["encoder.keys.weight"] @ x + w["encoder.keys.bias"] for x in annotations]
    states = np.tanh(w["encoder.bridge.weight"] @ annotations.mean(0) + w["encoder.bridge.bias"])
    states = np.split(states, decoder_layers)
    size = w["decoder.layer.weight_hidden1"].shape[1]
    all_scores, all_weights = [], []
    for t, word in enumerate(previous):
        y = np.zeros_like(w["decoder.embed_tokens.weight"][0]) if t == 0 else w["decoder.embed_tokens.weight"][word]
        share = w["decoder.layer.weight_input"] @ y + w["decoder.layer.bias_input"]
        middle = step(share, states[0], w["decoder.layer.weight_hidden1"], np.zeros(len(share)))
        query = w["decoder.layer.weight_query"] @ middle[:size]
        weights, context = attention(
            query, keys, annotations, w["decoder.layer.energy"], float(w["decoder.layer.energy_bias"][0])
        )
        share = w["decoder.layer.weight_context"] @ context
        states[0] = step(share, middle, w["decoder.layer.weight_hidden2"], w["decoder.layer.bias_hidden2"])
        for layer in range(decoder_layers - 1):
            prefix = f"decoder.upper_layers.{layer}."
            share = w[prefix + "weight_ih"] @ states[layer][:size] + w[prefix + "bias"]
            states[layer + 1] = step(share, states[layer + 1], w[prefix + "weight_hh"], np.zeros(len(share)))
        deep = sum(
            w[f"decoder.readout_{name}.weight"] @ part + w[f"decoder.readout_{name}.bias"]
            for name, part in (("state", states[-1][:size]), ("input", y), ("context", context))
        )
        all_scores.append(w["decoder.output.weight"] @ np.tanh(deep) + w["decoder.output.bias"])
        all_weights.append(weights)
    return np.array(all_scores), np.array(all_weights)


def dl4mt_parameters(e: int, d: int, *, source: int, target: int, sharing: str) -> int:
    """Closed formula of DL4MT's size: sharing is "none", "decoder" (then V = target) or "all"."""
    core = 12 * e * d + 26 * d**2 + 17 * d + e**2 + 3 * e + 1
    tables = {"none": e * (source + 2 * target), "decoder": e * (source + target), "all": e * target}
    return core + tables[sharing] + target


def masked_lstm(x: Array, state: Array, w_ih: Array, w_hh: Array, bias: Array, mask_i: Array, mask_h: Array) -> Array:
    """One step of Gal's LSTM: gate a (i, f, g, o) has input mask ``mask_i[a]`` and recurrent mask ``mask_h[a]``."""
    size = len(state) // 2
    h, c = state[:size], state[size:]
    gates = []
    for a in range(4):
        rows = slice(a * size, (a + 1) * size)
        gates.append(w_ih[rows] @ (x * mask_i[a]) + w_hh[rows] @ (h * mask_h[a]) + bias[rows])
    c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * np.tanh(gates[2])
    return np.concatenate([sigmoid(gates[3]) * np.tanh(c), c])


def recurrent_highway(
    x: Array, state: Array, w_input: Array, w_recurrent: Array, bias: Array, mask_i: Array, mask_h: Array
) -> Array:
    """One step of a recurrent highway network (Zilly et al. 2017): rows of weights and biases are h's, then t's."""
    size = len(state)
    for layer in range(len(w_recurrent)):
        total = w_recurrent[layer] @ (state * mask_h) + bias[layer]
        if layer == 0:
            total = total + w_input @ (x * mask_i)
        h, t = np.tanh(total[:size]), sigmoid(total[size:])
        state = h * t + state * (1 - t)
    return state


def highway_parameters(units: int, depth: int) -> int:
    """Size of a recurrent highway network whose inputs are as wide as its states: h and t, one bias each a layer."""
    return 2 * units**2 + depth * (2 * units**2 + 2 * units)


def language_model_scores(words: Sequence[int], w: Weights, layers: int) -> Array:
    """Scores (T, V) of a row of text: LSTM layers with one bias a gate, P with its bias if there is one, output."""
    tables = (f"decoder.stack.weight_hh.{layer}" for layer in range(layers))
    states = [np.zeros(2 * w[table].shape[1]) for table in tables]
    scores = []
    for word in words:
        x = w["decoder.embed_tokens.weight"][word]
        for layer in range(layers):
            share = w[f"decoder.stack.weight_ih.{layer}"] @ x + w[f"decoder.stack.bias.{layer}"]
            states[layer] = lstm(share, states[layer], w[f"decoder.stack.weight_hh.{layer}"], np.zeros(len(share)))
            x = states[layer][: len(states[layer]) // 2]
        if "decoder.projection.weight" in w:
            x = w["decoder.projection.weight"] @ x + w.get("decoder.projection.bias", 0.0)
        scores.append(w["decoder.output.weight"] @ x + w["decoder.output.bias"])
    return np.array(scores)


def feedforward_language_model_scores(
    words: Sequence[int], w: Weights, *, order: int, layers: int, activation: str, skip: bool, deep: str, end: int
) -> Array:
    """Scores (T, V) of a row of text: the vectors of n - 1 words, layers, deep output, output (Bengio et al. 2003).

    Words before the row are ends of sentence. The matrices that see x too have its columns last.
    """
    functions = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0), "linear": lambda a: a}
    text = [end] * (order - 2) + list(words)
    scores = []
    for t in range(len(words)):
        x = np.concatenate([w["decoder.embed_tokens.weight"][word] for word in text[t : t + order - 1]])
        a = x
        for layer in range(layers):
            prefix = f"decoder.stack.layers.{layer}."
            a = functions[activation](w[prefix + "bias"] + w[prefix + "weight"] @ a)
        table, z = w["decoder.output.weight"], a
        if deep != "none":
            prefix = "decoder.projection." if deep == "linear" else "decoder.deep_output.0."
            z = w[prefix + "bias"] + w[prefix + "weight"][:, : len(a)] @ a
            if skip:
                z = z + w[prefix + "weight"][:, len(a) :] @ x
            z = functions[deep](z)
        score = w["decoder.output.bias"] + table[:, : len(z)] @ z
        if skip and deep == "none":
            score = score + table[:, len(z) :] @ x
        scores.append(score)
    return np.array(scores)


def logistic_word2vec(
    inputs: Array, outputs: Array, predictions: Sequence[tuple[Sequence[int], Sequence[tuple[int, float, int]]]]
) -> tuple[float, Array, Array]:
    """Loss of word2vec's logistic terms, and its gradients of both tables (Mikolov et al. 2013, eq. 3 and 4).

    A prediction is (words whose input vectors' mean is h, terms); a term is (row u of the output table, weight, sign)
    and costs -weight * log sigmoid(sign * u . h).
    """
    loss, of_inputs, of_outputs = 0.0, np.zeros_like(inputs), np.zeros_like(outputs)
    for words, terms in predictions:
        h = sum(inputs[word] for word in words) / len(words)
        for row, weight, sign in terms:
            s = sign * float(np.dot(outputs[row], h))
            loss += weight * math.log1p(math.exp(-s))
            slope = -weight * sign / (1 + math.exp(s))
            of_outputs[row] += slope * h
            for word in words:
                of_inputs[word] += slope * outputs[row] / len(words)
    return loss, of_inputs, of_outputs


def paths(tree: Any) -> list[list[tuple[int, int]]]:
    """The inner nodes above each leaf of a tree, from the root down, with the sides at them."""
    inner = len(tree.parents) // 2
    found = []
    for node in range(inner, 2 * inner + 1):
        path: list[tuple[int, int]] = []
        while tree.parents[node] >= 0:
            path.insert(0, (int(tree.parents[node]), int(tree.turns[node])))
            node = tree.parents[node]
        found.append(path)
    return found


def softmax_word2vec(
    inputs: Array, outputs: Array, predictions: Sequence[tuple[Sequence[int], int]]
) -> tuple[float, Array, Array]:
    """Cross entropy of the softmax over all words, and its gradients of both tables (Mikolov et al. 2013, eq. 2)."""
    loss, of_inputs, of_outputs = 0.0, np.zeros_like(inputs), np.zeros_like(outputs)
    for words, target in predictions:
        h = sum(inputs[word] for word in words) / len(words)
        p = softmax(outputs @ h)
        loss -= math.log(p[target])
        for row in range(len(outputs)):
            slope = p[row] - (row == target)
            of_outputs[row] += slope * h
            for word in words:
                of_inputs[word] += slope * outputs[row] / len(words)
    return loss, of_inputs, of_outputs
