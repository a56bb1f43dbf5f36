"""Where examples come from: users' tables, the paper's corpora, the built-in corpus; batches."""
