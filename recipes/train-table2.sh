#!/usr/bin/env bash
# Press & Wolf (2016), table 2: word2vec's input, output and tied embeddings. Trains one row, and measures it.
#
#   recipes/train-table2.sh ROW                 # rows, the paper's figures, hardware, time: tables/table2.json
#   CORPUS=ptb recipes/train-table2.sh ROW      # on Penn Treebank: a twentieth of the words, in 20 epochs
#
# Corpus     prepare-imdb.sh or prepare-ptb.sh
# Expected   the text is another one than the paper's text8, which this is as large as: its order need not come out
# Check      the last line that begins with "| valid": its loss, in bits a pair; of how many pairs each rho is
#
# The presets bring word2vec.c's defaults; words are thinned out from a share of 1e-4 on.
#
# With SETS the recipe measures and records all tables of the row: untied-in, untied-out and untied-sum, C + W'; with
# QUESTIONS also by analogies. With untied and tied of one SEED it also makes table 4 of word2vec, on the 10,000 most
# frequent words.
#
# SETS, QUESTIONS: vectors.sh. Without SETS it only trains
# CORPUS   imdb or ptb; the default is imdb
# EPOCHS   the default is 2, and 20 with CORPUS=ptb; UPDATES: of an epoch, by which the learning rate falls to 0, if the
#          corpus is another one
# SEED     the default is 1
# SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$recipes/vectors.sh"

SEED=${SEED:-1}
CORPUS=${CORPUS:-imdb}
case $CORPUS in
    imdb) EPOCHS=${EPOCHS:-2} UPDATES=${UPDATES:-9849} table=table2 prefix= ;;
    ptb) EPOCHS=${EPOCHS:-20} UPDATES=${UPDATES:-468} table=table2-ptb prefix=word2vec- ;;
    *) stop "CORPUS: needs imdb or ptb; got $CORPUS." ;;
esac
WORK=${WORK:-$RUNS/$CORPUS$of_work}

need_row ROW "$@"
options=(--arch word2vec_skipgram)
case $1 in
    full*) options+=(--word2vec-output full) ;;
    tree) options+=(--word2vec-output tree) ;;
    cbow*) options=(--arch word2vec_cbow) ;;
esac
case $1 in tied* | *-tied*) options+=(--share-decoder-input-output-embed) ;; esac
case $1 in *tied-*) options+=(--sharing-method "${1#*tied-}") ;; esac
updates=$((EPOCHS * UPDATES)) dim=100
[[ -z $SMOKE ]] || updates=50 EPOCHS=1 dim=5
[[ $1 != counts ]] || SEED='' # there is no chance in it

[[ -z $SETS ]] || find_sets
[[ -z $QUESTIONS || $SETS ]] || stop "QUESTIONS: needs SETS, too; got none. Use SETS=... with the folder of yours."
[[ -z $QUESTIONS || -f $QUESTIONS ]] || stop "QUESTIONS: needs a file; got $QUESTIONS. Use questions-words.txt of word2vec."

need fairseq-train python
prepared "prepare-$CORPUS.sh"
folder=$WORK/$prefix$1${SEED:+-$SEED}$training_variant
checkpoint=$folder/checkpoint_last.pt
if [[ $1 == counts ]]; then
    run mkdir -p "$folder"
    run rm -f "$folder/usage.jsonl" # of a call before, which is not resumed
    run_measured "$folder/usage.jsonl" "${tiedemb[@]}" counts "$WORK/bin" \
        --window 5 --dim "$dim" --output "$folder/vectors.txt"
else
    use_devices
    run_training "$folder" "$WORK/bin" "${options[@]}" --subsampling 1e-4 --max-tokens "$((2000 / processes))" \
        --max-epoch "$EPOCHS" --max-update "$updates" --no-epoch-checkpoints
    run_tiedemb norms "$checkpoint"
fi
[[ $SETS ]] || exit 0

case $1 in
    counts) rows=(counts) tables=("$folder/vectors.txt") ;;
    untied | full | cbow) rows=("$1"-{in,out,sum}) tables=("$checkpoint":{in,out,sum}) ;;
    tree) rows=(tree-in) tables=("$checkpoint:in") ;;
    *) rows=("$1") tables=("$checkpoint:tied") ;;
esac
words=(--dict "$WORK/bin/dict.txt")
similarity=$folder/similarity.log analogy=$folder/analogy.log
shown_tiedemb "$similarity" similarity "${tables[@]}" "${words[@]}" --sets "${sets[@]}"
[[ -z $QUESTIONS ]] || shown_tiedemb "$analogy" analogy "${tables[@]}" "${words[@]}" --questions "$QUESTIONS"
for number in "${!tables[@]}"; do
    mapfile -t figures < <(set_figures "$similarity" $((number + 1)))
    note=$(set_note "$similarity" $((number + 1)))
    if [[ $QUESTIONS && -z $DRY_RUN ]]; then
        for part in semantic syntactic total; do
            # Questions asked, questions in all, and the table's share of right answers; empty without such questions.
            read -r asked all share < <(awk -v part="$part" -v n="$number" '$1 == part { print $2, $3, $(4 + n) }' "$analogy") ||
                continue
            [[ $share == - ]] || figures+=("analogies-$part=$share")
            note+="; analogies, $part: $asked of $all"
        done
    fi
    record "$table" "${rows[number]}" "$folder" --figure "${figures[@]}" --note "$note"
done

[[ $CORPUS == imdb && ($1 == untied || $1 == tied) ]] || exit 0
others=("$WORK"/{untied,tied}-"$SEED$training_variant")
is_trained "${others[0]}" && is_trained "${others[1]}" || exit 0
shown_tiedemb "$folder/correlation.log" correlation "${others[@]/%//checkpoint_last.pt}" "${words[@]}" --most-frequent 10000
mapfile -t figures < <(correlation_figures "$folder/correlation.log" in-out in-tied out-tied)
record table4 word2vec --figure "${figures[@]}"
