"""Trained models in other forms: ONNX files, and model folders with smaller weights."""

from dcnn.export.exporting import FORMATS, Exported, Format, export, format_of

__all__ = ["FORMATS", "Exported", "Format", "export", "format_of"]
