"""A sheet of drawings with words above the columns and beside the rows."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

_PAPER, _INK = (255, 255, 255), (32, 32, 32)
_GAP = 6


def sheet(cells: Sequence[Sequence[Image.Image]], columns: Sequence[str], rows: Sequence[str]) -> Image.Image:
    """Lay out drawings of one size.

    Args:
        cells: Rows of drawings.
        columns: A heading for each column, wrapped where it is wider than a drawing.
        rows: A word for each row.

    Returns:
        An RGB picture.
    """
    width, height = cells[0][0].size
    font = ImageFont.load_default(size=max(10, width // 15))
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    headings = ["\n".join(wrapped(text, width, font)) for text in columns]
    margin = max(ruler.multiline_textbbox((0, 0), text, font=font)[2] for text in rows) + 2 * _GAP
    head = max(ruler.multiline_textbbox((0, 0), text, font=font)[3] for text in headings) + 2 * _GAP
    left, top, across, down = round(margin), round(head), width + _GAP, height + _GAP
    paper = Image.new("RGB", (left + across * len(columns), top + down * len(rows)), _PAPER)
    pen = ImageDraw.Draw(paper)
    for c, text in enumerate(headings):
        at = (left + c * across + width / 2, top - _GAP)
        pen.multiline_text(at, text, fill=_INK, font=font, anchor="md", align="center")
    for r, (text, row) in enumerate(zip(rows, cells, strict=True)):
        pen.text((left - _GAP, top + r * down + height / 2), text, fill=_INK, font=font, anchor="rm")
        for c, cell in enumerate(row):
            paper.paste(cell, (left + c * across, top + r * down))
    return paper


def wrapped(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> list[str]:
    """Break a text into lines that fit, between words where possible."""
    lines = [""]
    for word in text.split():
        wider = f"{lines[-1]} {word}".strip()
        if font.getlength(wider) <= width:
            lines[-1] = wider
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if lines[-1] and font.getlength(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines
