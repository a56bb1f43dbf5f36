"""The paper's four experiments (Sect. 5), from a recipe to the tables.

``recipes`` are settings in plain files and ``tasks`` corpora as ids and targets; ``runs`` trains
networks and ``ngrams`` the baselines, and writes one file of ``results`` per run; ``statistics``
and ``tables`` read those files and nothing else.
"""
