"""The compiler's frontend: parser, selectors, inlining and diagnostics for sources."""
