#!/usr/bin/env bash
# English to German number words, dates and times of day: from a grammar to three trained and scored translators.
#
#   examples/number_words/run.sh [FOLDER]
#
# FOLDER (default .demo) keeps what is made: see examples/steps.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh" "${1-}"

examples=examples/number_words

mkdir -p "$demo"
SECONDS=0

title "A corpus, written by a grammar: no test sentence is in the training set"
make "$demo/text" "python $examples/grammar.py $demo/text"

title "Subwords, learnt from both languages together (a few seconds)"
make "$demo/codes" "cat $demo/text/train.en $demo/text/train.de | subword-nmt learn-bpe --symbols 300 > $demo/codes"
make "$demo/bpe" "mkdir $demo/bpe; for part in {train,valid,test}.{en,de}; do
    subword-nmt apply-bpe --codes $demo/codes --input $demo/text/\$part --output $demo/bpe/\$part
done"

title "One dictionary for both languages, which sharing all embeddings needs (10 seconds)"
log=$demo/preprocess.log
make "$demo/bin" "fairseq-preprocess --user-dir fairseq_tiedemb --source-lang en --target-lang de --joined-dictionary \\
    --trainpref $demo/bpe/train --validpref $demo/bpe/valid --testpref $demo/bpe/test --destdir $demo/bin > $log 2>&1"

for arch in lstm_nmt lstm_nmt_wt lstm_nmt_twwt; do
    case $arch in
        lstm_nmt) title "Untied: three embeddings, of source, target and output words (1 minute)" ;;
        lstm_nmt_wt) title "Weight tying (WT): target and output words share theirs (1 minute)" ;;
        lstm_nmt_twwt) title "Three-way weight tying (TWWT): one embedding for everything (1 minute)" ;;
    esac
    log=$demo/$arch.log
    make "$demo/$arch" "fairseq-train $demo/bin --user-dir fairseq_tiedemb --arch $arch --save-dir $demo/$arch \\
    --encoder-embed-dim 128 --encoder-hidden-size 64 --decoder-embed-dim 128 --decoder-hidden-size 128 \\
    --decoder-out-embed-dim 128 --dropout 0 --criterion tied_cross_entropy \\
    --optimizer adam --lr 0.01 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update 1200 \\
    --clip-norm 1 --max-tokens 400 --max-update 1200 --no-epoch-checkpoints --seed 1 > $log"

    log=$demo/$arch.generate.log
    make "$demo/$arch/generate-test.txt" "fairseq-generate $demo/bin --user-dir fairseq_tiedemb --beam 5 --batch-size 100 \\
    --path $demo/$arch/checkpoint_last.pt --print-alignment soft --results-path $demo/$arch > $log 2>&1"
    # The hypotheses in the order of the test set, their subwords joined.
    make "$demo/$arch.de" "grep ^H- $demo/$arch/generate-test.txt | sort -t- -k2n | cut -f3 | sed 's/@@ //g' > $demo/$arch.de"
    make "$demo/$arch.bleu" "sacrebleu $demo/text/test.de -i $demo/$arch.de --score-only > $demo/$arch.bleu"
done

title "What came out"
unfinished=
printf '\n$ %s\n\n' "python $examples/report.py $demo"
python $examples/report.py "$demo"
printf '\nThat took %d minutes %d seconds. To see it all again: rm -r %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$demo"
