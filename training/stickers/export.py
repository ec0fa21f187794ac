"""Write what ships: the weights in half precision, and the model that they belong to.

python training/stickers/export.py run/
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "plugins" / "explainer_plugins" / "stickers" / "data"


def main(run: Path) -> None:
    """Export the last checkpoint of a run."""
    state = torch.load(run / "checkpoint.pt", weights_only=True)["model"]
    half = {name: value.half().contiguous() if value.is_floating_point() else value for name, value in state.items()}
    weights = DATA / "weights.safetensors"
    save_file(half, weights)
    weights.chmod(0o644)  # it is written for its owner alone
    model = yaml.safe_load((HERE / "config.yaml").read_text())["model"]
    model["vision_cfg"]["patch_dropout"] = 0.0
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    (DATA / "model.json").write_text(json.dumps(model | {"sha256": digest}, indent=2) + "\n")
    print(f"{weights.stat().st_size / 1e6:.2f} MB, sha256 {digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
