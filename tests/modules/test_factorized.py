"""Linear layers between widths."""

import pytest
import torch
from torch.nn.functional import linear

from fairseq_tiedemb import products
from fairseq_tiedemb.modules.factorized import gaussian_linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_a_layer_keeps_its_packed_weight_while_it_decodes(dtype: torch.dtype, bias: bool) -> None:
    layer, inputs = gaussian_linear(6, 10, bias=bias).eval().to(dtype), torch.randn(2, 3, 6).to(dtype)
    layer.keep()
    close = {} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(layer(inputs), linear(inputs, layer.weight, layer.bias), **close)
    kept = layer.kept.last[1]
    layer(inputs)
    assert layer.kept.last[1] is kept
    assert kept.is_mkldnn == products.packed(torch.ones(2, 2, dtype=dtype)).is_mkldnn
    layer.weight.mul_(2)
    torch.testing.assert_close(layer(inputs), linear(inputs, layer.weight, layer.bias), **close)
    layer.train()
    torch.testing.assert_close(layer(inputs), linear(inputs, layer.weight, layer.bias), rtol=0, atol=0)
    assert layer.kept.last == (None, None)
