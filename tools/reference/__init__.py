"""Parts of ``tools/train_reference.py``: corpus, rows, model, optimiser, training, evaluation."""
