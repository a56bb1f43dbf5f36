"""How fast and how large it is, always side by side with eager torch in one run.

``workload`` (the network and what it is given), ``conditions`` (backend and threads) and ``timing``
(taking turns, medians) are what the cases share: ``prediction``, ``training``, ``layer`` and
``processes``, named in ``cases``. ``rivals`` are other people's classifiers. A case gives the rows
of a ``report``, ``scaling`` the points of ``curves``, and ``tables`` renders both.
"""
