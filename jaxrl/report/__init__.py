"""The report: results and searches as one HTML page."""
