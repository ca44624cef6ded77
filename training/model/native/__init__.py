"""Compiled parts of the model for a CPU, in C: a layer's small operations, attention over packed rows, and decoding.

A small model on two cores is limited by the number of operations, not by their arithmetic: a layer in transformers is
sixty operations, and as many again backward. In training (`layers.py`) compiled code does everything between the matrix
products, each part in one pass, and the products stay torch's; in sampling (`decode.py`) one call decodes a whole turn
of all conversations. The C sources are compiled once by the compiler of the machine (`build.py`); if there is none, or
the model's architecture is not supported here, the model's own forward is used, and all results are equal up to
rounding.
"""
