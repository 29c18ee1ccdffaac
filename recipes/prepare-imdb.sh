#!/usr/bin/env bash
# The Large Movie Review Dataset (Maas et al. 2011) as text for word embeddings: text, and fairseq's binary files.
#
#   recipes/prepare-imdb.sh                                   # from its publisher
#   FROM=/path/to/aclImdb.tar.xz recipes/prepare-imdb.sh      # from a local copy
#
# Makes      $WORK/text and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 3 minutes, 600 MB of disk, 84 MB to download
# Expected   17876506 / 229304 tokens in train / valid, with one <eos> a review: 17801506 words of 75000 reviews, and
#            228304 of 1000; 47159 lines in dict.txt, the words that come 5 times or more
# Check      the recipe checks these counts, and the archive's SHA-1, which many projects give
#
# As large as text8, the corpus of Press & Wolf's table 2, and cleaned like it: words of a-z (imdb_text.py). Training is on
# train and unsup, validation on 1000 reviews of test.
#
# FROM    the archive, or its address; SHA256: of another archive; SECOND: another address, for where FROM fails
# COUNTS  tokens of train and valid, and lines of dict.txt, for another archive
# WORK    output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/imdb$of_work}
made_up imdb aclImdb.tar.gz
SECOND=${SECOND:-${FROM:-http://d2l-data.s3-accelerate.amazonaws.com/aclImdb_v1.tar.gz}}
FROM=${FROM:-https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz}
[[ $FROM != */aclImdb_v1.tar.gz ]] || SHA256=${SHA256-01ada507287d82875905620988597833ad4e0903}
COUNTS=${COUNTS:-17876506 229304 47159}

need python fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl
read -ra counts <<<"$COUNTS"
((${#counts[@]} == 3)) || stop "COUNTS: needs tokens of train and valid, and types; got $COUNTS."

fetch "$FROM" "$RUNS/download" "${SHA256:-}" "$SECOND"
begin_corpus "$WORK/reviews" "$WORK/all" "$WORK/text" "$WORK/bin"
run mkdir -p "$WORK/all" "$WORK/text"
run python "$recipes/unpack.py" "$fetched" "$WORK/reviews"
run python "$recipes/imdb_text.py" "$WORK/reviews/aclImdb" "$WORK/all"
for split in train valid; do
    text_of "$split" "$WORK/all/$split.txt"
done
run rm -rf "$WORK/reviews" "$WORK/all"
# Words below word2vec.c's --min-count become <unk> and are left out; every type of the dictionary occurs.
parts=(train valid) preprocessing=(--thresholdsrc 5)
binarize "${counts[@]}"
