#!/usr/bin/env bash
# BBC news (Greene & Cunningham 2006), the third corpus of Press & Wolf's table 7: text, and fairseq's binary files.
#
#   recipes/prepare-bbc.sh                                    # from its publisher
#   FROM=/path/to/bbc-fulltext.zip recipes/prepare-bbc.sh     # from a local copy
#
# Makes      $WORK/text and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 20 seconds, 30 MB of disk, 3 MB to download
# Expected   847828 / 56985 / 42301 tokens in train / valid / test, with one <eos> a line; 9998 lines in dict.txt
# Check      the recipe checks the archive's SHA-256 and these counts
#
# The paper splits the archive itself, and uses the vocabulary of Miyamoto & Cho (2016); neither is published.
# bbc_text.py documents our choices: perplexities are comparable with one another, not with the paper's.
#
# FROM    the archive, or its address
# SHA256  SHA-256 of another archive; the default has two, which pack the stories differently
# COUNTS  tokens of train, valid and test, and lines of dict.txt, for another archive
# WORK    output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/bbc$of_work}
made_up bbc bbc-fulltext.zip
FROM=${FROM:-http://mlg.ucd.ie/files/datasets/bbc-fulltext.zip}
SHA256=${SHA256:-8e7881a2b5dcdbbe46656e23e57c399514b50080b40a4e2419a02ff57383eb64 \
a351031a62325b3d7ff13146eeb035c22feca8290913b5183d1ff3be35109495}
COUNTS=${COUNTS:-847828 56985 42301 9998}

need python fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl
read -ra counts <<<"$COUNTS"
((${#counts[@]} == 4)) || stop "COUNTS: needs tokens of train, valid and test, and types; got $COUNTS."

fetch "$FROM" "$RUNS/download" "$SHA256"
begin_corpus "$WORK/stories" "$WORK/all" "$WORK/text" "$WORK/bin"
run mkdir -p "$WORK/all" "$WORK/text"
run python "$recipes/unpack.py" "$fetched" "$WORK/stories"
run python "$recipes/bbc_text.py" "$WORK/stories/bbc" "$WORK/all"
for split in train valid test; do
    text_of "$split" "$WORK/all/$split.txt"
done
run rm -rf "$WORK/stories" "$WORK/all"
binarize "${counts[@]}"
