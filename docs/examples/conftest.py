"""The examples are distributions of their own; tests/packaging installs them and runs their tests."""

collect_ignore_glob = ["explainer-*"]
