"""The paper's figures, drawn from real values (``make figures`` writes them).

- ``induced_graph``: Fig. 1, the feature graph over a sentence, one map and one row of it.
- ``convolution``: Fig. 2, narrow and wide convolution.
- ``network``: Fig. 3, every matrix of a DCNN on a sentence.
- ``top_ngrams``: Fig. 4, what some detectors react to.
- ``canvas``: what they are drawn with.
"""
