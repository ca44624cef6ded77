"""Compiled parts of the model for a CPU: a layer's small operations, attention over packed rows, and decoding, in C.

A small model on two cores is bound by the number of operations, not by their arithmetic: transformers' layer is sixty
of them, and as many again backward. In training (`layers.py`) compiled code does what stands between the matrix
products, each part in one pass, and the products stay torch's; in sampling (`decode.py`) one call decodes a whole turn
of all conversations. The C sources are compiled once by the compiler of the machine (`build.py`); where there is none,
or a model is not one that is known here, the model's own forward is used, and all results are the same but for
rounding.
"""
