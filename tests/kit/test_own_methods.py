"""All methods that come with the package keep the contract; there is no list of exemptions."""

from __future__ import annotations

from typing import Any

from explainer.testing import MethodContract, fresh_registry

with fresh_registry() as _registry:
    METHODS: dict[str, Any] = {name: name for name in _registry.methods}
METHODS["gradcam_signed"] = {"name": "gradcam", "relu": False}
METHODS["query_key_heads"] = {"name": "query_key", "heads": "each"}
METHODS["self_self_map"] = {"name": "self_self", "output": "map"}

for _name, _method in METHODS.items():
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (MethodContract,), {"method": _method})
