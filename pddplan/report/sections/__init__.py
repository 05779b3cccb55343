"""Sections of the report: each module turns a part of a planning result into blocks of the document."""
