"""What the scripts share that read models' folders."""

import pathlib

from safetensors.torch import load_file


def tensors_of(folder):
    """All weights of a Hugging Face folder, by name; a golden's reference is none of them."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        if path.name != "reference.safetensors":
            tensors.update(load_file(path))
    return tensors
