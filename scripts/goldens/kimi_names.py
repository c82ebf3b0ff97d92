"""Names of Kimi Linear's tensors as its releases have them.

transformers' save_pretrained also puts the MLPs of dense layers under block_sparse_moe, where releases and
upstream have layers of experts only; its from_pretrained reads both.
"""

import re

DENSE = re.compile(r"\.block_sparse_moe\.(gate_proj|up_proj|down_proj)\.")


def released_names(tensors):
    """The same values, dense layers' MLPs under mlp."""
    return {DENSE.sub(r".mlp.\1.", name): value for name, value in tensors.items()}
