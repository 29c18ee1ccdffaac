"""How a checkpoint's file is read: by fairseq's commands and by ours, and without fairseq. And word vectors as text.

`files` reads a checkpoint, with `pickles` for what it asks for, `stand_ins` for what is no tensor, and `settings`;
`dictionaries` tells whether words are those of its training. `word_vectors` reads what word2vec and GloVe write.
"""
