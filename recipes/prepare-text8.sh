#!/usr/bin/env bash
# text8 (Mahoney 2006), the first corpus of Press & Wolf's table 7: text, and fairseq's binary files.
#
#   recipes/prepare-text8.sh                              # from its publisher
#   FROM=/path/to/text8.zip recipes/prepare-text8.sh      # from a local copy, packed or not
#
# Makes      $WORK/text and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, minutes; 4 GB of memory, 300 MB of disk, 31 MB to download
# Expected   17 million words in three lines, each with an <eos>; never run here on the whole text
# Check      the SHA-256 of text8.zip, which its publisher does not give, but many projects that take it; COUNTS, where
#            they are given, of the words and the types that fairseq-preprocess prints
#
# The paper takes split and vocabulary of Mikolov et al. (2014) and gives no perplexity of a validation set. Here the
# split is the usual one, 90 / 5 / 5 million characters, and the vocabulary the words that come 10 times or more in
# train: perplexities are comparable with one another, not with the paper's.
#
# FROM    text8.zip or text8, or its address
# SHA256  of it; by default that of text8.zip, and none for another name
# COUNTS  tokens of train, valid and test, and lines of dict.txt; none by default
# WORK    output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/text8$of_work}
made_up text8 text8
FROM=${FROM:-http://mattmahoney.net/dc/text8.zip}
[[ $FROM != *.zip ]] || SHA256=${SHA256-a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232}

need python fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl
read -ra counts <<<"${COUNTS:-}"
((${#counts[@]} % 4 == 0)) || stop "COUNTS: needs tokens of train, valid and test, and types; got $COUNTS."

fetch "$FROM" "$RUNS/download" "${SHA256:-}"
begin_corpus "$WORK/text" "$WORK/bin"
run mkdir -p "$WORK/text"
run python "$recipes/text8_text.py" "$fetched" "$WORK/text" ${SMOKE:+--characters 30000}
binarize "${counts[@]}"
