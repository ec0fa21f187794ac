"""Public reports about installations: pytorch-grad-cam (pgc) 593 137, whose import needs an OpenCV with windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

UNWANTED = ("cv2", "sklearn", "matplotlib", "pandas", "seaborn", "skimage", "tkinter", "IPython")

# Everything a user does with a picture, up to the drawing on disk.
WHOLE_RUN = """
import json, sys
import numpy as np
import timm
import explainer
ex = explainer.wrap(timm.create_model("test_vit", num_classes=7))
e = ex(np.zeros((40, 40, 3), np.uint8) + np.arange(40, dtype=np.uint8)[:, None, None], [1, 3])
e.boxes(), e.grid(), e._repr_png_(), str(ex.inspect())
e.save("out")
print(json.dumps([name for name in {unwanted} if name in sys.modules]))
"""


def test_nothing_is_loaded_that_draws_on_a_screen(tmp_path: Path) -> None:
    program = WHOLE_RUN.format(unwanted=UNWANTED)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert len(list((tmp_path / "out").glob("*.png"))) == 2
