from __future__ import annotations

import json
import subprocess
import sys

import explainer_registry

HEAVY = ("torch", "numpy", "PIL", "timm", "open_clip")

PROBE = f"""
import json, sys, time
start = time.process_time()
import explainer_registry
seconds = time.process_time() - start
print(json.dumps([seconds, [name for name in {HEAVY} if name in sys.modules]]))
"""


def probe() -> tuple[float, list[str]]:
    """Import the registry in a fresh interpreter; return its CPU seconds and the heavy modules it loaded."""
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, heavy = json.loads(done.stdout)
    return seconds, heavy


def test_importing_the_registry_is_cheap():
    # The least of three: the first may have to compile, and a busy machine costs all of them.
    runs = [probe() for _ in range(3)]
    assert [heavy for _, heavy in runs] == [[], [], []]
    assert min(seconds for seconds, _ in runs) < 0.5


def test_every_public_name_exists():
    assert [name for name in explainer_registry.__all__ if not hasattr(explainer_registry, name)] == []
