"""From the text of a source to a Program: parser, selectors, inlining and diagnostics."""
