"""``dcnn tune``: many short trainings on Optuna, never judged on test.

``space`` has what may change and the size of a model folder, ``evaluation`` the training and
evaluation of one trial, ``search`` the study and the search itself, in one process or several;
``report`` tests the gain and writes the page, the table of trials and the best settings.
"""
