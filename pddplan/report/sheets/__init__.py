"""Sheets of the what-if workbook, one module each; report/spreadsheet.py puts them together."""
