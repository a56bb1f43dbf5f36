"""The paper's four experiments, from a recipe to the tables.

``recipes`` (settings as plain files) and ``tasks`` (corpora as ids and targets) meet in
``networks`` and ``ngrams``, which train; ``runner`` writes a ``results`` file a run;
``statistics``, ``comparison`` and ``tables`` read those files and nothing else.
"""
