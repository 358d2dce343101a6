"""Kinds of answers that every domain can give: classes, labels, numbers."""
