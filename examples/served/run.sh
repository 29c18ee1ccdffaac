#!/usr/bin/env bash
# From text to a served translator: a Transformer whose scores are distances is trained, exported and asked.
#
#   examples/served/run.sh [FOLDER]
#
# Needs CTranslate2: pip install ctranslate2. FOLDER (default .demo) keeps what is made: see examples/steps.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh" "${1-}"
if ! python -c 'import ctranslate2' 2>/dev/null; then
    echo "served: needs the package ctranslate2; got a Python without it. Use pip install ctranslate2." >&2
    exit 2
fi

mkdir -p "$demo"

title "A corpus, its subwords, and one dictionary for both languages (half a minute)"
make "$demo/text" "python examples/number_words/grammar.py $demo/text"
make "$demo/codes" "cat $demo/text/train.en $demo/text/train.de | subword-nmt learn-bpe --symbols 300 > $demo/codes"
make "$demo/bpe" "mkdir $demo/bpe; for part in {train,valid,test}.{en,de}; do
    subword-nmt apply-bpe --codes $demo/codes --input $demo/text/\$part --output $demo/bpe/\$part
done"
log=$demo/preprocess.log
make "$demo/bin" "fairseq-preprocess --user-dir fairseq_tiedemb --source-lang en --target-lang de --joined-dictionary \\
    --trainpref $demo/bpe/train --validpref $demo/bpe/valid --testpref $demo/bpe/test --destdir $demo/bin > $log 2>&1"

title "Train: one table for everything, scores by distance"
log=$demo/transformer.log
make "$demo/transformer" "fairseq-train $demo/bin --user-dir fairseq_tiedemb --save-dir $demo/transformer \\
    --arch tied_transformer --share-all-embeddings --sharing-method distance --dropout 0.1 \\
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-layers 2 --encoder-attention-heads 4 \\
    --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-layers 2 --decoder-attention-heads 4 \\
    --encoder-normalize-before --decoder-normalize-before --criterion tied_cross_entropy \\
    --optimizer adam --lr 3e-3 --lr-scheduler polynomial_decay --warmup-updates 150 --total-num-update 1500 \\
    --max-update 1500 --clip-norm 1 --max-tokens 1000 --no-epoch-checkpoints --seed 1 > $log"

title "Export: eight bits for a number, and no fairseq from here on"
log=
make "$demo/served" "fairseq-tiedemb export $demo/transformer/checkpoint_last.pt $demo/served --to ctranslate2 --quantization int8"

title "Serve: sentences in, sentences out"
make "$demo/served.de" "python examples/served/translate.py $demo/served $demo/codes < $demo/text/test.en > $demo/served.de"
make "$demo/served.bleu" "sacrebleu $demo/text/test.de -i $demo/served.de --score-only > $demo/served.bleu"
printf '\nBLEU of the test set: %s\n\n' "$(cat "$demo/served.bleu")"
paste -d '\n' "$demo/text/test.en" "$demo/served.de" | head -n 8
printf '\nNow ask it yourself:\n\n  python examples/served/translate.py %s %s --port 8000 &\n' "$demo/served" "$demo/codes"
printf '  curl --data "one thousand and one" localhost:8000\n'
