"""Finding good settings: many short trainings, judged on dev alone, on Optuna.

``search_space`` says what may change and ``folder_size`` what fits; ``search`` tries, prunes and
keeps time; ``study_file`` is where all of it lies, so that a stopped search goes on; ``trials``
reads it back as plain values; ``report``, ``plots`` and ``tables`` show it.
"""
