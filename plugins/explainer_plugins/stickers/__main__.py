"""List the nouns that the sticker model knows: ``python -m explainer_plugins.stickers``."""

import click

from explainer_plugins.stickers.tokenizer import nouns

click.echo("\n".join(nouns()))
