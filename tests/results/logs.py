"""What the stock commands print of a training, as short as it can be."""

EVAL_LM = """\
2026-11-21 08:55:13 | INFO | fairseq_cli.eval_lm | Evaluated 82,430 tokens in 12.7s (6490.55 tokens/s)
2026-11-21 08:55:13 | INFO | fairseq_cli.eval_lm | Loss (base 2): 6.8716, Perplexity: {}
"""
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0"
BLEU = f"BLEU|{SIGNATURE} = {{}} 74.1/50.2/35.6/25.4 (BP = 0.975 ratio = 0.976 hyp_len = 12765 ref_len = 13080)\n"
TRAIN = """\
{'_name': None, 'common': {'_name': None, 'seed': 1, 'fp16': False, 'user_dir': 'x'}, \
'model': Namespace(_name='m', dropout=0.3, limit=-inf, layers=[1, 2]), 'bpe': None}
num. shared model params: 4,652,402 (num. trained: 4,652,402)
epoch 001 | valid on 'valid' subset | loss 7.1 | ppl 300.25 | wps 0 | num_updates 5
epoch 001 | loss 9 | ppl 512 | wps 0 | num_updates 5
epoch 002 | valid on 'valid' subset | loss 7.1 | ppl inf | wps 0 | num_updates 9
epoch 002 | loss 9 | ppl 256.5 | wps 0 | num_updates 9
"""
# Two runs, of which the second has a line of its first half minute, too.
USAGE = """\
{"begin": "2026-11-21T08:00:00+00:00", "commit": "aaa", "cpu_seconds": 60.5, "wall_seconds": 70.0, "peak_memory": 5}
{"run": "f", "commit": "bbb+", "cpu_seconds": 9.0, "wall_seconds": 30.0, "peak_memory": 3, "status": null}
{"run": "f", "commit": "bbb+", "cpu_seconds": 30.0, "wall_seconds": 31.0, "peak_memory": 4, "status": 0}
"""
