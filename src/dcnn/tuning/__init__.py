"""``dcnn tune``: many short trainings on Optuna, judged on dev alone.

``search`` has the search space, the size of a model folder, the study and the search itself;
``report`` writes the page, the table of trials and the best settings.
"""
