"""``dcnn compare``: models side by side on one test set.

``contenders`` are ours and the n-gram ones, ``rivals`` other people's; ``measuring`` trains, scores
and times them; ``standing`` is the outcome as values; ``showing`` the table and the plot.
"""
