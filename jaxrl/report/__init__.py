"""Results side by side: comparisons with tables and figures, and results and searches as one HTML page."""
